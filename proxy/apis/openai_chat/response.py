"""What the JSON of a chat response reports, and the proxy's own errors as chat's clients expect them.

Nothing here raises.
"""

from __future__ import annotations

from functools import partial

import msgspec

from proxy.apis.openai_chat.scan import MESSAGES
from proxy.model.api import ErrorFields, EventKind
from proxy.model.lenient_json import BROKEN
from proxy.wire.openai import choices, errors
from proxy.wire.openai.choices import EMPTY, keep_alive, landmarks, read, read_tail

__all__ = ["complete_usage", "event_kind", "keep_alive", "landmarks", "read", "read_tail"]

HOLD_S = 1.0  # a refusal comes in the first event, or in the one that follows the role


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


def event_kind(data: bytes) -> EventKind:
    """What an event's data, or a complete response, is; of nearly every stream's first chunks in a microsecond."""
    return EventKind.CONTENT if _has_text(data) else choices.event_kind(data)


def error_body(error: ErrorFields) -> bytes:
    """The body of an error response of the proxy's own, in the shape of OpenAI's errors."""
    return errors.error_body(error, too_long=MESSAGES)


def error_event(error: ErrorFields) -> bytes:
    """The event that reports an error of the proxy's own in a stream that has begun."""
    return errors.error_event(error, too_long=MESSAGES)


def refusal_stream(error: ErrorFields, model: str, created: int) -> None:
    """None: clients read an error response."""


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
