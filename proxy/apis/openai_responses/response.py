"""What the JSON of a response, or of an event of its stream, reports: usage, why it ended, content, an error.

Every event names its type. The response object is in the first events and in the last one, and repeats the request's
instructions and tools. Nothing here decodes content, and nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from proxy.apis.openai_responses.scan import INPUT
from proxy.errors import CONTEXT_LENGTH_EXCEEDED
from proxy.model.api import ErrorFields, EventKind, ResponseState
from proxy.model.lenient_json import BROKEN, RawFields, raw_fields, raw_value, string
from proxy.model.names import name_of
from proxy.model.outcome import Extra, Usage
from proxy.wire.openai import errors
from proxy.wire.openai.usage import KEY, USAGE, usage_in, usage_in_tail
from proxy.wire.openai.usage import with_more_prompt as with_more_prompt
from proxy.wire.sse import last_match
from proxy.wire.usage import MAX_TOKENS, extra_of, tier_of

# OpenAI refuses in a stream that has begun: the first events come at once, the refusal when the prompt was counted.
HOLD_S = 10.0
# Events that prove nothing: a refusal may still follow. OpenAI's "keepalive" is not documented.
FRAMES = frozenset({"response.created", "response.in_progress", "response.queued", "keepalive"})
COMPLETED, INCOMPLETE, FAILED, ERROR = "response.completed", "response.incomplete", "response.failed", "error"
ENDS = frozenset({COMPLETED, INCOMPLETE, FAILED, ERROR})
END = re.compile(rb'"type"\s*:\s*"(?:response\.(?:completed|incomplete|failed)|error)"')
REASON = re.compile(rb'"incomplete_details"\s*:\s*\{\s*"reason"\s*:\s*"([^"]{1,64})"')
# Why a response may be incomplete without being a failure.
ORDINARY = frozenset({None, "max_output_tokens", "max_tokens", "content_filter"})
COMPACTION = "response.compaction"  # the object that a request to compact brings; it has no status
OBJECTS = ("response", COMPACTION)
EMPTY = frozenset((b'""', b"null", b"[]", b"{}", b"false"))


# The items of an answer that are searches of the web; a text in JSON has no such quotes.
SEARCH, SEARCH_ITEM = b"web_search_call", re.compile(rb'"type"\s*:\s*"web_search_call"')
NULL = msgspec.Raw(b"null")


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _ReplyDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Counts(msgspec.Struct):
    input_tokens: int
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _ReplyDetails | None = None
    cost: msgspec.Raw = NULL
    cost_in_usd_ticks: msgspec.Raw = NULL
    server_side_tool_usage_details: msgspec.Raw = NULL


class _Reason(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    usage: _Counts
    object: str
    status: str = "completed"
    incomplete_details: _Reason | None = None
    id: str = ""
    store: bool | None = None
    error: msgspec.Raw = NULL
    model: str = ""
    service_tier: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str


_RESPONSE = msgspec.json.Decoder(_Response)
_EVENT = msgspec.json.Decoder(_Event)

error_body = partial(errors.error_body, too_long=INPUT)


def complete_usage(body: bytes) -> Usage | None:
    """The usage of a complete, ordinary response; None for any other JSON."""
    try:
        found = _RESPONSE.decode(body)
    except BROKEN:
        return None
    counts, why = found.usage, found.incomplete_details
    if found.object not in OBJECTS or found.status not in ("completed", "incomplete"):
        return None
    if bytes(found.error) not in EMPTY or (why is not None and why.reason not in ORDINARY):
        return None
    if not 0 <= counts.input_tokens <= MAX_TOKENS:
        return None
    details = counts.input_tokens_details
    cached, written = (details.cached_tokens or 0, details.cache_write_tokens) if details else (0, None)
    stored_as = "" if found.store is False else found.id
    if SEARCH in body or not (counts.cost is counts.cost_in_usd_ticks is counts.server_side_tool_usage_details is NULL):
        fields = raw_fields(body)
        return _searched(fields, usage_in(fields), stored_as)
    thought = (counts.output_tokens_details.reasoning_tokens or 0) if counts.output_tokens_details else 0
    tier, model = tier_of(found.service_tier), name_of(found.model)
    return Usage(counts.input_tokens, counts.output_tokens or 0, cached, stored_as, written, thought, tier, model)


def event_kind(data: bytes) -> EventKind:
    """What an event's data, or a complete response, is."""
    try:
        kind = _EVENT.decode(data).type
    except BROKEN:
        return _response_kind(raw_fields(data))
    if kind in FRAMES:
        return EventKind.FRAME
    if kind == INCOMPLETE:
        reason = _reason(raw_fields(raw_fields(data).get("response", b"")))
        return EventKind.CONTENT if reason in ORDINARY else EventKind.FINISH
    if kind == FAILED or not kind.startswith("response."):
        return EventKind.OTHER
    return EventKind.CONTENT


def read(data: bytes, state: ResponseState, event: bytes = b"") -> ResponseState:
    """The state after an event with this name and data, or after a complete response."""
    fields = raw_fields(data)
    response = raw_fields(fields["response"]) if "response" in fields else fields
    kind = string(raw_value(fields["type"])) if "type" in fields else event.decode("latin-1")
    failed = kind in (FAILED, ERROR) or _status(response) == "failed"
    error = state.error or (data if failed or bytes(fields.get("error", b"null")) not in EMPTY else None)
    content = state.content or event_kind(data) is EventKind.CONTENT
    finish = _reason(response) or state.finish
    usage = usage_in(fields, state.usage)
    if usage is not None and usage is not state.usage and bytes(response.get("store", b"")) != b"false":
        usage = replace(usage, stored_as=string(raw_value(response["id"])) if "id" in response else "")
    if usage is not state.usage and SEARCH in data:
        usage = _searched(response, usage, "" if usage is None else usage.stored_as)
    return ResponseState(usage, finish, error, content, state.ended or kind in ENDS)


def _searched(response: RawFields, usage: Usage | None, stored_as: str) -> Usage | None:
    """The usage with the searches of the web that the answer has, which it does not count."""
    if usage is None:
        return None
    extra, searches = usage.extra or Extra(), len(SEARCH_ITEM.findall(bytes(response.get("output", b""))))
    found = extra_of(replace(extra, searches=max(extra.searches, searches)))
    return replace(usage, stored_as=stored_as, extra=found)


def read_tail(tail: bytes, state: ResponseState) -> ResponseState:
    """The state after the end of an object whose beginning is missing."""
    found = REASON.findall(tail)
    finish = found[-1].decode(errors="replace") if found else state.finish
    return ResponseState(usage_in_tail(tail, state.usage), finish, state.error, state.content, state.ended)


def landmarks(data: bytes) -> Sequence[int]:
    """The offsets in a stream at which a usage, a reason, an error and the end stand last."""
    usage = last_match(USAGE, data) if KEY in data else -1
    places = (usage, last_match(REASON, data), data.rfind(b"event: error"), last_match(END, data))
    return [place for place in places if place >= 0]


def is_end_of_stream(tail: bytes) -> bool:
    """False: the last event is as long as the whole response, and its last bytes do not tell it from others."""
    return False


def error_event(error: ErrorFields) -> bytes:
    """The event that reports an error of the proxy's own in a stream that has begun."""
    fields = {"type": ERROR, "code": error.code or None, "message": error.message, "param": error.param}
    return _event(ERROR, {**fields, "sequence_number": 0})


def refusal_stream(error: ErrorFields, model: str, created: int) -> bytes | None:
    """A whole stream that reports that a request is too long; None for any other error.

    Codex compacts its history only after such an event. It takes an error response with the same code for a failure
    that is final.
    """
    if error.code != CONTEXT_LENGTH_EXCEEDED:
        return None
    response = {
        "id": f"resp_plimsoll{created}",
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }
    failed = {**response, "status": "failed", "error": {"code": error.code, "message": error.message}}
    begun = _event("response.created", {"type": "response.created", "sequence_number": 0, "response": response})
    return begun + _event(FAILED, {"type": FAILED, "sequence_number": 1, "response": failed})


def _event(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))


def _response_kind(fields: RawFields) -> EventKind:
    """What a complete response is."""
    if bytes(fields.get("object", b"")) == b'"%b"' % COMPACTION.encode():
        return EventKind.CONTENT
    if bytes(fields.get("error", b"null")) not in EMPTY or _status(fields) not in ("completed", "incomplete"):
        return EventKind.OTHER
    if _reason(fields) not in ORDINARY:
        return EventKind.FINISH
    return EventKind.FRAME if bytes(fields.get("output", b"[]")) in EMPTY else EventKind.CONTENT


def _status(fields: RawFields) -> str | None:
    found = raw_value(fields["status"]) if "status" in fields else None
    return found if isinstance(found, str) else None


def _reason(fields: RawFields) -> str | None:
    """Why a response is incomplete."""
    details = raw_fields(fields["incomplete_details"]) if "incomplete_details" in fields else {}
    found = raw_value(details["reason"]) if "reason" in details else None
    return found if isinstance(found, str) else None
