"""Says in a client's stub what of the earlier result, to which it refers, is not sent. It cuts and restores nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from proxy.fit.relevance.results.messages import parts_of_results
from proxy.model.claims import Back
from proxy.model.conversation import Block, Message
from proxy.model.plan import Draft

NAME = "stub_notes"  # of the note in a plan
WHY = "its earlier result was shortened"
MISSING = "[A proxy left out the earlier result that this refers to.]"
CUT = "[A proxy shortened the earlier result that this refers to: {kept} of its {lines} lines are left.]"


def noted(first: Draft, draft: Draft, backs: Iterable[Back]) -> Draft:
    """The draft with a sentence in each stub whose earlier result is not sent whole, as far as the sentences fit.

    `first`: what the client sent. The same draft if every stub is right, or has no room for more.
    """
    wanted = list(backs)
    if not wanted:
        return draft
    before, now = _texts(first, wanted), _texts(draft, wanted)
    notes = {
        back.stub: _note(before[back.target], now.get(back.target))
        for back in wanted
        if back.stub in now and back.target in before and now.get(back.target) != before[back.target]
    }
    if not notes:
        return draft
    blocks = [_with_notes(block, notes, draft) for block in draft.blocks]
    made = draft.with_blocks(blocks)
    return made if made.excess <= 0 or made.excess <= draft.excess else draft


def _texts(draft: Draft, backs: Iterable[Back]) -> Mapping[str, str]:
    """The texts of the results that are stubs or that stubs refer to, by their calls."""
    calls = {call for back in backs for call in (back.stub, back.target)}
    found: dict[str, str] = {}
    for message in draft.messages:
        if not calls.isdisjoint(message.answers):
            parts = parts_of_results(message)
            found |= {call: "".join([p.text for p in parts[call]]) for call in calls.intersection(parts)}
    return found


def _note(before: str, now: str | None) -> str:
    if now is None:
        return MISSING
    kept = set(now.split("\n"))
    lines = before.split("\n")
    return CUT.format(kept=sum(line in kept for line in lines), lines=len(lines))


def _with_notes(block: Block, notes: Mapping[str, str], draft: Draft) -> Block:
    messages = tuple(_with_note(message, notes) for message in block.messages)
    if all(a is b for a, b in zip(messages, block.messages, strict=True)):
        return block
    return replace(block, messages=draft.recount(messages))


def _with_note(message: Message, notes: Mapping[str, str]) -> Message:
    if notes.keys().isdisjoint(message.answers):
        return message
    edits = []
    for call, parts in parts_of_results(message).items():
        texts = [part for part in parts if part.editable]
        if call in notes and texts:
            edits.append((texts[-1], f"{texts[-1].text}\n{notes[call]}"))
    return message.edit(edits, WHY)
