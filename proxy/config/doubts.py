"""Settings that are valid and that nobody means. The start remarks on them, and `plimsoll check` lists them; what could
serve no request is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from proxy.apis import apis
from proxy.config.settings import Settings
from proxy.errors import ConfigError

FLOOR = 500  # tokens: the least reply that is asked for
LIST = "/models"
CHAT = "/chat/completions"
BASE = "/v1"  # what an upstream's URL ends in; other paths of its server stand beside it
URLS = ("upstream", "summary_upstream", "embeddings_upstream")


@cache
def added() -> tuple[tuple[str, str], ...]:
    """What clients add to a base URL, the longest first, and what stands in its place in one."""
    paths = {
        (path.removeprefix(BASE), "" if path.startswith(BASE) else BASE)
        for path in (BASE + LIST, *(api.path for api in apis()))
    }
    return tuple(sorted(paths, key=lambda row: (-len(row[0]), row)))


@cache
def requested() -> tuple[str, ...]:
    """Ends of a URL that is that of a request and no base URL: every path of an API, whole."""
    return (CHAT, *(api.path for api in apis()))


def _with_paths(settings: Settings) -> Iterator[tuple[str, bool]]:
    """A line for each base URL that has what clients add, and whether no request could be served under it."""
    for name in URLS:
        url = getattr(settings, name) or ""
        path, instead = next((row for row in added() if url.lower().endswith(row[0])), ("", ""))
        if path:
            meant = url[: -len(path)] + instead
            line = f"PLIMSOLL_{name.upper()} ends in {path}, which clients add: it should be {meant}"
            yield line, url.lower().endswith(requested())


def check_upstreams(settings: Settings) -> None:
    """Raises `ConfigError` where a base URL is that of a request, such as `https://api.openai.com/v1/chat/completions`."""
    if wrong := [line for line, is_certain in _with_paths(settings) if is_certain]:
        raise ConfigError("\n".join(wrong))


def doubts(settings: Settings) -> list[str]:
    """One line for each that is only doubtful."""
    said = [line for line, is_certain in _with_paths(settings) if not is_certain]
    if settings.llm_fallback_enabled and not settings.llm_allowed_fallback_models:
        said.append("LLM_FALLBACK_ENABLED is of no use without LLM_ALLOWED_FALLBACK_MODELS: no model is allowed")
    limit = settings.context_total_token_limit
    if limit is not None and limit < 2 * FLOOR:
        said.append(f"CONTEXT_TOTAL_TOKEN_LIMIT is {limit} tokens of prompt and reply: a reply alone has {FLOOR}")
    return said
