"""Compacts the JSON of tool results without loss: no white space, and one header for rows of equal shape."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from proxy.fit.relevance.results.tables import compacted
from proxy.fit.relevance.text.memo import digest
from proxy.model.bounded import Bounded
from proxy.model.conversation import Block, Message, PartKind
from proxy.model.oversized_json import OUTSIZE
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace

MOST, REMEMBERED = 20_000, 8 << 20  # cached messages, and their bytes: enough for fifty long conversations
ENTRY = 256  # bytes of a cache entry besides the message
SHORTEST = 40  # characters; a shorter text is left as it is
WHY = "JSON written shorter"

COMPACTED: Bounded[int, bytes] = Bounded(MOST, REMEMBERED)


@dataclass(frozen=True, slots=True)
class Params:
    """`newest`: whether the results of the newest block, which is pinned, are compacted too."""

    newest: bool = False


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with the JSON of its tool results compacted wherever that costs fewer tokens.

    The compacted text depends only on the result itself, so it stays the same in later requests.
    """
    draft = draft.made()
    newest = draft.blocks[-1] if params.newest and draft.blocks else None
    blocks = [
        _compacted(block, draft) if block.has_results and (block is newest or not block.pinned) else block
        for block in draft.blocks
    ]
    return draft if all(a is b for a, b in zip(blocks, draft.blocks, strict=True)) else draft.with_blocks(blocks)


def _compacted(block: Block, draft: Draft) -> Block:
    """The block with each result compacted if that costs fewer tokens."""
    tried = tuple(_shorter(m) if m.answers else m for m in block.messages)
    if all(a is b for a, b in zip(tried, block.messages, strict=True)):
        return block
    counted = draft.recount(tried)
    better = tuple(new if new.tokens < old.tokens else old for new, old in zip(counted, block.messages, strict=True))
    made = replace(block, messages=draft.recount(better))
    return made if made.tokens < block.tokens else block


def _shorter(message: Message) -> Message:
    """The message with its JSON compacted. The same message if it has no JSON or is already compact."""
    if len(message.raw) > OUTSIZE:
        return message
    key = digest(message.raw)
    raw = COMPACTED.get(key)
    if raw is None:
        made = _made(message)
        raw = b"" if made is message else made.raw
        COMPACTED.put(key, raw, ENTRY + len(raw))
    return replace(message, raw=raw, why=WHY) if raw else message


def _made(message: Message) -> Message:
    return message.edit([(p, _text(p.text)) for p in message.parts() if p.kind is PartKind.RESULT], WHY)


def _text(text: str) -> str:
    """The compacted text if the text is JSON and gets shorter, else the same text."""
    if len(text) < SHORTEST or text.lstrip()[:1] not in ("[", "{"):
        return text
    try:
        short = compacted(text).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
    return short if len(short) < len(text) else text
