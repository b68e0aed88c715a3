"""What the JSON of a response of Ollama's own APIs reports: usage, why it ended, content, an error.

A stream is JSON, one object a line; its last line has the figures. Nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from proxy.model.api import ErrorFields, EventKind, ResponseState
from proxy.model.lenient_json import BROKEN, RawFields, raw_fields, raw_value
from proxy.model.outcome import Usage
from proxy.wire.sse import last_match
from proxy.wire.usage import MAX_TOKENS, count_of, with_more

USAGE_KEY = b'"prompt_eval_count"'
# The last line ends with the time that the reply took: quotes inside a text are escaped.
END = re.compile(rb'_duration"\s*:\s*\d+\s*\}\s*\Z')
FINISH = re.compile(rb'"done_reason"\s*:\s*"([^"]{1,64})"')
PROMPT = re.compile(rb'"prompt_eval_count"\s*:\s*(\d{1,15})\b')
REPLY = re.compile(rb'"eval_count"\s*:\s*(\d{1,15})\b')
DONE = re.compile(rb'"done"\s*:\s*true')
ORDINARY = frozenset((None, "stop", "length", "load", "unload"))
MESSAGE, RESPONSE = "message", "response"  # what has the reply: of a chat, of a text
CONTENT_KEYS = (RESPONSE, "content", "thinking", "tool_calls", "images")
EMPTY = frozenset((b'""', b"null", b"[]", b"{}"))


class _Response(msgspec.Struct, gc=False):
    prompt_eval_count: int
    done: bool
    eval_count: int = 0
    done_reason: str | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


_RESPONSE = msgspec.json.Decoder(_Response)


def complete_usage(body: bytes) -> Usage | None:
    """The usage of a complete response that ended well; takes a microsecond. None for any other body."""
    try:
        response = _RESPONSE.decode(body)
    except BROKEN:
        return None
    if not response.done or response.done_reason not in ORDINARY or bytes(response.error) not in EMPTY:
        return None
    if not 0 <= response.prompt_eval_count <= MAX_TOKENS:
        return None
    return Usage(response.prompt_eval_count, response.eval_count)


def event_kind(data: bytes) -> EventKind:
    """What a line of a stream, or a complete response, is."""
    fields = raw_fields(data)
    if _is_error(fields) or not any(key in fields for key in (MESSAGE, RESPONSE, "done")):
        return EventKind.OTHER
    if _has_content(fields):
        return EventKind.CONTENT
    return EventKind.FRAME if _finish(fields) in ORDINARY else EventKind.FINISH


def read(data: bytes, state: ResponseState, event: bytes = b"") -> ResponseState:
    """The state after a line, or after a complete response."""
    fields = raw_fields(data)
    error = state.error or (data if _is_error(fields) else None)
    prompt, reply = (_count(fields, key) for key in ("prompt_eval_count", "eval_count"))
    usage = state.usage if prompt is None else Usage(prompt, reply or 0)
    ended = state.ended or bytes(fields.get("done", b"")) == b"true"
    return ResponseState(usage, _finish(fields) or state.finish, error, state.content or _has_content(fields), ended)


def read_tail(tail: bytes, state: ResponseState) -> ResponseState:
    """The state after the end of an object whose beginning is missing."""
    reasons, prompts, replies = (found.findall(tail) for found in (FINISH, PROMPT, REPLY))
    finish = reasons[-1].decode(errors="replace") if reasons else state.finish
    usage = Usage(int(prompts[-1]), int(replies[-1]) if replies else 0) if prompts else state.usage
    return ResponseState(usage, finish, state.error, state.content, state.ended or DONE.search(tail) is not None)


def with_more_prompt(data: bytes, more: int) -> bytes:
    """A line of a stream, or a complete response, with so many tokens more in its prompt; its other bytes stay."""
    return with_more(data, ("prompt_eval_count",), more) if _count(raw_fields(data), "prompt_eval_count") else data


def landmarks(data: bytes) -> Sequence[int]:
    """The offsets in a stream at which a usage, a reason, an error and the end stand last."""
    places = (last_match(PROMPT, data), last_match(FINISH, data), data.rfind(b'"error"'), last_match(DONE, data))
    return [place for place in places if place >= 0]


def is_end_of_stream(tail: bytes) -> bool:
    """Whether the last bytes of a stream are its last line."""
    return END.search(tail) is not None


def error_body(error: ErrorFields) -> bytes:
    """The body of an error response of the proxy's own, in the shape of Ollama's errors."""
    return msgspec.json.encode({"error": error.message})


def error_event(error: ErrorFields) -> bytes:
    """The line that reports an error in a stream that has begun."""
    return error_body(error) + b"\n"


def _is_error(fields: RawFields) -> bool:
    return bytes(fields.get("error", b"null")) not in EMPTY


def _has_content(fields: RawFields) -> bool:
    said = raw_fields(fields[MESSAGE]) if MESSAGE in fields else fields
    return any(bytes(said[key]) not in EMPTY for key in CONTENT_KEYS if key in said)


def _finish(fields: RawFields) -> str | None:
    found = raw_value(fields["done_reason"]) if "done_reason" in fields else None
    return found if isinstance(found, str) else None


def _count(fields: RawFields, key: str) -> int | None:
    return count_of(raw_value(fields[key])) if key in fields else None
