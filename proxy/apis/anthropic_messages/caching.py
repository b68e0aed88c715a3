"""`cache_control` marks: those of dropped messages move to what stays before them, so that caching goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from proxy.apis.anthropic_messages.messages import CONTENT, REASONING, TEXT
from proxy.model.conversation import Message
from proxy.model.lenient_json import BROKEN, RAWS, raw_value, string
from proxy.wire import cache_marks
from proxy.wire.cache_marks import KEY, MARK

NULL = b"null"

_BLOCKS = msgspec.json.Decoder(list[msgspec.Raw])


def with_marks(before: Iterable[Message], after: Sequence[Message]) -> list[Message]:
    """The messages that are sent, with the marks of those that are not: each on the last message that stays before the
    dropped one. One that has a mark already keeps it, so their number never grows."""
    return cache_marks.moved(before, after, MARK, _mark_in, _marked)


def blocks_of(message: Message) -> list[msgspec.Raw]:
    """The blocks of a message; of a text the one block that it stands for."""
    raw = message.raw
    content = RAWS.decode(raw).get(CONTENT, msgspec.Raw(NULL)) if raw[:1] == b"{" else msgspec.Raw(raw)
    if memoryview(content)[0] == ord("["):
        return _BLOCKS.decode(content)
    if memoryview(content)[0] != ord('"') or bytes(content) == b'""':
        return []
    return [msgspec.Raw(msgspec.json.encode({"type": TEXT, TEXT: content}))]


def _mark_in(message: Message) -> msgspec.Raw | None:
    """The last mark on a block of a message; None if it has none there."""
    try:
        marks = [RAWS.decode(block).get(KEY) for block in blocks_of(message)]
    except BROKEN:
        return None
    return next((mark for mark in reversed(marks) if mark is not None and bytes(mark) != NULL), None)


def _marked(message: Message, mark: msgspec.Raw) -> Message:
    """The message with a mark on its last block that may have one; itself if none may."""
    try:
        blocks = blocks_of(message)
        for place in reversed(range(len(blocks))):
            fields = RAWS.decode(blocks[place])
            if string(raw_value(fields.get("type", msgspec.Raw(NULL)))) not in REASONING:
                blocks[place] = msgspec.Raw(msgspec.json.encode({**fields, KEY: mark}))
                return replace(message, raw=_with_blocks(message.raw, blocks))
    except BROKEN:
        return message
    return message


def _with_blocks(raw: bytes, blocks: Sequence[msgspec.Raw]) -> bytes:
    if raw[:1] != b"{":
        return msgspec.json.encode(blocks)
    return msgspec.json.encode({**RAWS.decode(raw), CONTENT: blocks})
