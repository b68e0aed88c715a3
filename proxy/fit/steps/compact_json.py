"""Compacts the JSON of tool results without loss: no white space, and if that is not enough, one header for rows of
equal shape.

A table is harder to read than the objects it came from: a small model answers .25 of the questions about a record in a
table, and .68 about the same record as an object (Gemma 3 270M, 112 results).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from proxy.fit.blocks import have_results
from proxy.fit.relevance.results.tables import compacted, without_white_space
from proxy.fit.relevance.text.memo import digest
from proxy.model.bounded import Bounded
from proxy.model.conversation import Block, Message, PartKind
from proxy.model.oversized_json import OUTSIZE
from proxy.model.plan import Draft, Facts

MOST, REMEMBERED = 20_000, 8 << 20  # cached messages, and their bytes: enough for fifty long conversations
ENTRY = 256  # bytes of a cache entry besides the message
SHORTEST = 40  # characters; a shorter text is left as it is
WHY = "JSON written shorter"


@dataclass(frozen=True, slots=True)
class Forms:
    """The JSON of a message compacted, each empty if that changes nothing: without white space, and with tables."""

    spaceless: bytes = b""
    tabular: bytes = b""


AS_IS = Forms()
COMPACTED: Bounded[int, Forms] = Bounded(MOST, REMEMBERED)


@dataclass(frozen=True, slots=True)
class Params:
    """`newest`: whether the results of the newest block, which is pinned, are compacted too."""

    newest: bool = False


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with the JSON of its tool results compacted wherever that costs fewer tokens: without white space; with
    tables if that is not enough for it to fit.

    The compacted text depends only on the result itself, so it stays the same in later requests, but for the one in
    which the tables come.
    """
    draft = draft.made()
    if not have_results(draft.blocks):
        return draft
    newest = draft.blocks[-1] if params.newest and draft.blocks else None
    forms = [
        [_forms(m) if m.answers else AS_IS for m in block.messages]
        if block.has_results and (block is newest or not block.pinned)
        else []
        for block in draft.blocks
    ]
    if min(draft.excess, draft.prompt - draft.room) <= _white_space(draft, forms):
        made = _written(draft, [[form.spaceless for form in each] for each in forms])
        if made.excess <= 0 or made.prompt <= made.room:  # `clamp_output` lowers a reply limit that is too high
            return made
    return _written(draft, [[form.tabular for form in each] for each in forms])


def _white_space(draft: Draft, forms: Sequence[Sequence[Forms]]) -> int:
    """The bytes of white space in the JSON: without it the prompt is at most so many tokens shorter."""
    return sum(
        len(message.raw) - len(form.spaceless)
        for block, known in zip(draft.blocks, forms, strict=True)
        for message, form in zip(block.messages, known, strict=False)
        if form.spaceless
    )


def _written(draft: Draft, forms: Sequence[Sequence[bytes]]) -> Draft:
    """The draft with the messages in these forms, wherever that costs fewer tokens."""
    each = zip(draft.blocks, forms, strict=True)
    blocks = [_shorter(block, raws, draft) if any(raws) else block for block, raws in each]
    return draft if all(a is b for a, b in zip(blocks, draft.blocks, strict=True)) else draft.with_blocks(blocks)


def _shorter(block: Block, raws: Sequence[bytes], draft: Draft) -> Block:
    """The block with each message in its form if that costs fewer tokens."""
    each = zip(block.messages, raws, strict=True)
    counted = draft.recount(tuple(replace(m, raw=raw, why=WHY) if raw else m for m, raw in each))
    better = tuple(new if new.tokens < old.tokens else old for new, old in zip(counted, block.messages, strict=True))
    made = replace(block, messages=draft.recount(better))
    return made if made.tokens < block.tokens else block


def _forms(message: Message) -> Forms:
    """The forms of a message; as it is if it has no JSON or is already compact."""
    if len(message.raw) > OUTSIZE:
        return AS_IS
    key = digest(message.raw)
    forms = COMPACTED.get(key)
    if forms is None:
        results = [part for part in message.parts() if part.kind is PartKind.RESULT]
        made = [
            message.edit([(part, _text(part.text, write)) for part in results], WHY)
            for write in (without_white_space, compacted)
        ]
        forms = Forms(*[b"" if each is message else each.raw for each in made])
        COMPACTED.put(key, forms, ENTRY + len(forms.spaceless) + len(forms.tabular))
    return forms


def _text(text: str, write: Callable[[str], bytes]) -> str:
    """The compacted text if the text is JSON and gets shorter, else the same text."""
    if len(text) < SHORTEST or text.lstrip()[:1] not in ("[", "{"):
        return text
    try:
        short = write(text).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
    return short if len(short) < len(text) else text
