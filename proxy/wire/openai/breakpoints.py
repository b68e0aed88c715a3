"""`prompt_cache_breakpoint` marks in content parts of OpenAI's APIs: those of dropped messages move."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from proxy.model.conversation import Kind, Message
from proxy.model.lenient_json import BROKEN, RAWS
from proxy.wire import cache_marks

KEY = "prompt_cache_breakpoint"
MARK = b'"prompt_cache_breakpoint"'
NULL = b"null"
# Who may carry one; OpenAI ignores it on what an assistant said.
CARRIERS = frozenset({Kind.INSTRUCTION, Kind.USER, Kind.RESULT})

_PARTS = msgspec.json.Decoder(list[msgspec.Raw])


def with_breakpoints(before: Iterable[Message], after: Sequence[Message], fields: Sequence[str]) -> list[Message]:
    """The messages that are sent, with the breakpoints of those that are not (see `cache_marks.moved`). `fields`: where
    a message's content may stand."""

    def mark_in(message: Message) -> msgspec.Raw | None:
        try:
            marks = [RAWS.decode(part).get(KEY) for part in _content(message, fields)[1]]
        except BROKEN:
            return None
        return next((mark for mark in reversed(marks) if mark is not None and bytes(mark) != NULL), None)

    def marked(message: Message, mark: msgspec.Raw) -> Message | None:
        try:
            field, parts = _content(message, fields)
            if message.kind not in CARRIERS or not parts:
                return None
            parts[-1] = msgspec.Raw(msgspec.json.encode({**RAWS.decode(parts[-1]), KEY: mark}))
            whole = {**RAWS.decode(message.raw), field: msgspec.Raw(msgspec.json.encode(parts))}
        except BROKEN:
            return None
        return replace(message, raw=msgspec.json.encode(whole))

    return cache_marks.moved(before, after, MARK, mark_in, marked)


def _content(message: Message, fields: Sequence[str]) -> tuple[str, list[msgspec.Raw]]:
    """The field with the content of a message, and its parts; none where the content is one text, which has no place
    for a mark."""
    if message.raw[:1] != b"{":
        return "", []
    said = RAWS.decode(message.raw)
    field = next((name for name in fields if name in said), "")
    parts = said.get(field, msgspec.Raw(NULL))
    return field, _PARTS.decode(parts) if bytes(memoryview(parts)[:1]) == b"[" else []
