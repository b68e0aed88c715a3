"""The parameters of steps that the settings give: defaults for ladders that do not set them, and overrides."""

from __future__ import annotations

from typing import Any

from proxy.config.settings import Settings


def defaults(settings: Settings) -> dict[str, dict[str, Any]]:
    """The models that steps use, by step: for rows of ladders that name none."""
    given: dict[str, dict[str, Any]] = {}
    if settings.fallback_models:
        given["switch_model"] = {"to": settings.fallback_models}
    if settings.summary_model:
        given["summarise_history"] = {"model": settings.summary_model}
    if settings.embeddings_model:
        given["prune_history"] = given["recall"] = {"embeddings": settings.embeddings_model}
    return given


def overrides(settings: Settings) -> dict[str, dict[str, int]]:
    """The budgets in tokens, by step, which replace those that rows of ladders set."""
    recent, recalled = settings.context_recent_history_token_budget, settings.context_rag_token_budget
    total = settings.context_total_token_limit
    return {
        "prune_history": {} if recent is None else {"budget": recent},
        "recall": ({} if recalled is None else {"budget": recalled}) | ({} if total is None else {"total": total}),
    }
