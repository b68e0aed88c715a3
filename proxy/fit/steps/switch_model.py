"""Switches to the first allowed model whose window fits the request with spare room (seed 003)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.model.plan import CandidateModel, Draft, Facts

OF_ORIGINAL = True  # seed 003 compares the load of what the client sent, before any cut


@dataclass(frozen=True, slots=True)
class Params:
    """`to`: model names in order of preference. `spare`: the spare room, as a share of prompt + reserve."""

    to: tuple[str, ...] = ()
    spare: float = 0.10

    def __post_init__(self) -> None:
        if not 0 <= self.spare < 10:
            raise ValueError("spare must be a share between 0 and 10")


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft for another model, or the same draft if no candidate fits.

    The uncut original goes to the first candidate that fits it. If there is none and the draft does not fit its own
    model, the draft goes to the first candidate that fits it. A draft that was switched before and fits is not switched
    again.
    """
    if facts.original is not None and facts.original.model != draft.model and draft.excess <= 0:
        return draft
    candidates = [r for r in _in_order(facts.candidates, params.to) if r.model != draft.model and able(r, draft)]
    if candidates:
        draft = draft.made()
    sources = [facts.original or draft, *([draft] if draft.excess > 0 else [])]
    for source in sources:
        for candidate in candidates:
            moved = move(source, candidate)
            if holds(moved, params.spare):
                return moved
    return draft


def _in_order(candidates: tuple[CandidateModel, ...], names: tuple[str, ...]) -> list[CandidateModel]:
    known = {candidate.model: candidate for candidate in candidates}
    return [known[name] for name in names if name in known]


def able(candidate: CandidateModel, draft: Draft) -> bool:
    """Whether the candidate supports what the request needs and a reply of the floor. Unknown support counts as yes."""
    floor = dataclasses.replace(draft, window=candidate.window).floor
    least = floor if draft.reply is None else min(floor, draft.reply)
    if candidate.window.max_output is not None and candidate.window.max_output < least:
        return False
    return candidate.window.can is None or draft.needs <= candidate.window.can


def move(draft: Draft, candidate: CandidateModel) -> Draft:
    """The same request for another model, counted by its meter. The reply limit is at most the model's `max_output`."""
    meter = candidate.meter()
    if draft.definitions.changed:
        meter = meter.with_fields(draft.definitions.fields)
    reply = draft.reply if draft.reply is None else min(draft.reply, candidate.window.max_output or draft.reply)
    moved = dataclasses.replace(
        draft, model=candidate.model, window=candidate.window, meter=meter, reply=reply, rounding=0
    )
    return moved.with_blocks([replace(b, messages=moved.recount(b.messages)) for b in draft.blocks])


def holds(draft: Draft, spare: float) -> bool:
    """Whether prompt and reserve, plus the share `spare` of them, fit into the window. False for a guessed window."""
    if draft.window.guessed or draft.excess > 0:
        return False
    return math.floor((draft.prompt + draft.window.counted(draft.reserve)) * (1 + spare)) <= draft.window.tokens
