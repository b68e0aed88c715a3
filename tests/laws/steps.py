"""Every step there is, found by listing its folder, with the parameters that it is tried with."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from types import ModuleType
from typing import Any

from proxy.fit import steps
from proxy.fit.relevance.history.embedding_scores import Embedded
from proxy.fit.relevance.text.vectors import Vector, quantize
from proxy.model.plan import Draft, Facts, LadderStep, Step, Want
from proxy.model.structs import replace
from tests.makers import words

NAMES = sorted(module.name for module in pkgutil.iter_modules(steps.__path__))
TO = ("m", "rival-2", "rival-0", "rival-1")
VARIATIONS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "compact_json": ({}, {"newest": True}),
    "drop_repeated": ({}, {"least": 20}, {"least": 1, "batch": 0.01}, {"least": 40, "low": 0.2}),
    "drop_superseded": ({"tools": ("search",), "batch": 0.0}, {"tools": ("search",), "batch": 0.3}, {}),
    "drop_old_images": ({}, {"keep": 0}, {"keep": 1, "low": 0.1}, {"keep": 0, "low": 1.0}),
    "drop_reasoning": ({}, {"low": 0.05}),
    "trim_tool_results": (
        {},
        {"cap_tokens": 24},
        {"cap_tokens": 60, "keep_newest": 1},
        {"cap_chars": 300, "preview": 2},
        {"cap_tokens": 100, "cap_chars": 100, "preview": 1},
    ),
    "clamp_output": ({}, {"floor": 1}, {"floor": 700}),
    "switch_model": ({"to": TO}, {"to": TO, "spare": 0.0}, {}),
    "prune_history": (
        {},
        {"low": 1.0},
        {"low": 0.05},
        {"target": 0.8, "min_messages": 5},
        {"target": 1.0},
        {"max_messages": 5, "keep_last": 3},
        {"max_messages": 9},
        {"max_messages": 7, "target": 0.3},
        {"recall": 0.5},
        {"recall": 0.9, "low": 0.3},
        {"recall": 0.5, "layout": "best"},
        {"recall": 0.5, "layout": "best", "embeddings": "m"},
        {"recall": 0.5, "layout": "stable", "embeddings": "m"},
        {"recall": 0.5, "layout": "stable", "max_messages": 9},
        {"budget": 300},
        {"budget": 90, "recall": 0.5, "layout": "stable"},
    ),
    "recall": (
        {},
        {"budget": 60},
        {"budget": 400, "total": 900},
        {"sources": ("history",)},
        {"sources": ("history",), "embeddings": "m"},
        {"sources": ("lorebooks",)},
    ),
    "summarise_history": (
        {"model": "m", "max_tokens": 8, "keep_last": 3},
        {"model": "m", "max_tokens": 8, "keep_last": 1, "at": 0.5, "ready": 0.4},
        {"model": "m", "max_tokens": 20, "keep_last": 9, "at": 0.85, "low": 0.9},
        {"model": "m", "max_tokens": 1, "keep_last": 2, "at": 0.2, "low": 0.0},
        {},
    ),
    "excerpt_texts": ({}, {"share": 0.05}, {"layout": "best"}, {"share": 0.05, "layout": "best"}, {"layout": "stable"}),
    "truncate_longest": ({}, {"head": 0.0}, {"head": 1.0}, {"instructions": True}),
}


def module(name: str) -> ModuleType:
    return importlib.import_module(f"proxy.fit.steps.{name}")


def step(name: str, variation: int = 0) -> Step:
    """The step with one of its variations; a step that has none here is tried as it comes."""
    tried = VARIATIONS.get(name, ({},))
    found = module(name)
    applied: Callable[..., Draft | Want] = found.apply
    return partial(_told, partial(applied, params=found.Params(**tried[variation % len(tried)])))


def _told(applied: Step, draft: Draft, facts: Facts) -> Draft | Want:
    """The step, told at once what it wants: a summary of as many words as its key says, or vectors of its texts."""
    after = applied(draft, facts)
    if not isinstance(after, Want):
        return after
    told: Any = words(int(after.key[:2], 16) % 12, "sum") if after.kind == "summary" else _vectors(after)
    return applied(draft, replace(facts, knowledge={**facts.knowledge, after.key: told}))


def _vectors(want: Want) -> Embedded:
    """A vector for each text but some, as chance has it for that text."""
    texts = {text: _vector(text) for text in want.payload.texts if Random(f"known {text}").random() < 0.8}
    return Embedded(_vector(want.payload.question), texts)


def _vector(text: str) -> Vector:
    return quantize([Random(f"{text} {i}").gauss() for i in range(8)])


def ladder_step(name: str, variation: int = 0, at: float | None = None) -> LadderStep:
    """The step in its place in a ladder."""
    return LadderStep(name, step(name, variation), at, bool(getattr(module(name), "OF_ORIGINAL", False)))
