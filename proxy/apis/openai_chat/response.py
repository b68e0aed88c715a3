"""What the JSON of a chat response reports, and the proxy's own errors as chat's clients expect them.

Nothing here raises.
"""

from __future__ import annotations

from functools import partial

import msgspec

from proxy.apis.openai_chat.scan import MESSAGES
from proxy.model.api import EventKind
from proxy.model.lenient_json import BROKEN
from proxy.wire.openai import choices, errors
from proxy.wire.openai.choices import EMPTY
from proxy.wire.openai.choices import landmarks as landmarks
from proxy.wire.openai.choices import read as read
from proxy.wire.openai.choices import read_tail as read_tail
from proxy.wire.openai.stream import is_end_of_stream as is_end_of_stream
from proxy.wire.openai.usage import with_more_prompt as with_more_prompt


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None


class _Piece(msgspec.Struct, gc=False):
    delta: _Delta
    finish_reason: None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Piece]
    object: str = ""
    error: msgspec.Raw = msgspec.Raw(b"null")


_CHUNK = msgspec.json.Decoder(_Chunk)

complete_usage = partial(choices.complete_usage, "chat.completion")
error_body = partial(errors.error_body, too_long=MESSAGES)
error_event = partial(errors.error_event, too_long=MESSAGES)


def event_kind(data: bytes) -> EventKind:
    """What an event's data, or a complete response, is; of nearly every stream's first chunks in a microsecond."""
    return EventKind.CONTENT if _has_text(data) else choices.event_kind(data)


def _has_text(data: bytes) -> bool:
    """Whether it is a chunk in OpenAI's own shape with text in it. False proves nothing."""
    try:
        chunk = _CHUNK.decode(data)
    except BROKEN:
        return False
    if chunk.object == "error" or bytes(chunk.error) not in EMPTY:
        return False
    for piece in chunk.choices:
        if piece.delta.content:
            return True
    return False
