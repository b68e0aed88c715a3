"""Remarks on settings that are valid, and that nobody means: the start says them, and `plimsoll check` lists them."""

from __future__ import annotations

from functools import cache

from proxy.apis import apis
from proxy.config.settings import Settings

FLOOR = 500  # tokens: the least reply that is asked for
LIST = "/models"


@cache
def added() -> tuple[str, ...]:
    """What clients add to a base URL, the longest first."""
    paths = {path.removeprefix("/v1") for path in (LIST, *(api.path for api in apis()))}
    return tuple(sorted(paths, key=lambda path: (-len(path), path)))


def doubts(settings: Settings) -> list[str]:
    """One line for each."""
    said = []
    for name in ("upstream", "summary_upstream", "embeddings_upstream"):
        url = getattr(settings, name) or ""
        path = next((path for path in added() if url.lower().endswith(path)), "")
        if path:
            said.append(f"PLIMSOLL_{name.upper()} ends in {path}, which clients add: it should be {url[: -len(path)]}")
    if settings.llm_fallback_enabled and not settings.llm_allowed_fallback_models:
        said.append("LLM_FALLBACK_ENABLED is of no use without LLM_ALLOWED_FALLBACK_MODELS: no model is allowed")
    limit = settings.context_total_token_limit
    if limit is not None and limit < 2 * FLOOR:
        said.append(f"CONTEXT_TOTAL_TOKEN_LIMIT is {limit} tokens of prompt and reply: a reply alone has {FLOOR}")
    return said
