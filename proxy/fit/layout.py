"""The layout of a cut: chosen anew for every question, or stable from turn to turn. It cuts nothing."""

from __future__ import annotations

from proxy.fit.blocks import have_results
from proxy.model.limits import Window
from proxy.model.plan import Draft

STABLE, BEST = "stable", "best"
LAYOUTS = ("", STABLE, BEST)
CACHES = "prompt_caching"  # the capability of models whose provider bills a repeated prefix less


def layout_of(draft: Draft, wanted: str) -> str:
    """The layout of a draft where the ladder says `wanted`; empty for a run with tools, which has no quoted turns."""
    with_tools = have_results(draft.blocks)
    if wanted == BEST or (not wanted and not with_tools and not _caches(draft.window)):
        return BEST
    return "" if with_tools else STABLE


def _caches(window: Window) -> bool:
    """Whether the provider may cache prompts. True if unknown, because most providers do."""
    return window.can is None or CACHES in window.can
