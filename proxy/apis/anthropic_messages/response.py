"""What the JSON of a response of the Messages API reports: usage, stop reason, content, an error.

It reads objects one level at a time, so that content is never decoded. Nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from proxy.errors import CONTEXT_LENGTH_EXCEEDED
from proxy.model.api import ErrorFields, EventKind, ResponseState
from proxy.model.lenient_json import BROKEN, Json, RawFields, changed_at, raw_fields, raw_value, string
from proxy.model.names import name_of
from proxy.model.outcome import FAST, Extra, Usage
from proxy.wire.sse import last_match
from proxy.wire.usage import MAX_TOKENS, count_of, tier_of, usage_in_tail, with_more

# Anthropic pads the last events with blanks.
END = re.compile(rb'age_stop"\s*\}\s*\Z')
FINISH = re.compile(rb'"stop_reason"\s*:\s*"([^"]{1,64})"')
USAGE = re.compile(rb'"usage"\s*:\s*\{')
USAGE_KEY = b'"usage"'
RISING = frozenset({"input_tokens", "total_tokens"})  # with the prompt, where no more of it comes from a cache

# Stop reasons of responses that are no failures, whatever their content; None: the response goes on.
ORDINARY = frozenset(
    (None, "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "compaction")
)
MESSAGE, START, DELTA, STOP = "message", "message_start", "message_delta", "message_stop"
CONTENT_EVENTS = frozenset(("content_block_start", "content_block_delta"))
EMPTY = frozenset((b"null", b"[]", b'""', b"{}"))
# The types of errors by HTTP status. 529 is Anthropic's own.
TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
INVALID = "invalid_request_error"


NULL = msgspec.Raw(b"null")


class _Counts(msgspec.Struct, gc=False):
    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation: msgspec.Raw = NULL
    server_tool_use: msgspec.Raw = NULL
    service_tier: str | None = None
    speed: str | None = None


class _Response(msgspec.Struct, gc=False):
    type: str
    usage: _Counts
    stop_reason: str | None = None
    model: str = ""


class _Event(msgspec.Struct, gc=False):
    type: str


_RESPONSE = msgspec.json.Decoder(_Response)
_EVENT = msgspec.json.Decoder(_Event)


def complete_usage(body: bytes) -> Usage | None:
    """The usage of a complete response that ended well; takes a microsecond. None for any other body."""
    try:
        response = _RESPONSE.decode(body)
    except BROKEN:
        return None
    if response.type != MESSAGE or response.stop_reason not in ORDINARY:
        return None
    counts = response.usage
    cached, written = counts.cache_read_input_tokens or 0, counts.cache_creation_input_tokens
    prompt = counts.input_tokens + cached + (written or 0)
    if not (0 <= counts.input_tokens <= prompt <= MAX_TOKENS and 0 <= cached and 0 <= (written or 0)):
        return None
    extra = _extra_of(raw_value(counts.cache_creation), raw_value(counts.server_tool_use), NO_EXTRA)
    tier, model = _tier(counts.service_tier, counts.speed), name_of(response.model)
    return Usage(prompt, counts.output_tokens, cached, written=written, tier=tier, model=model, extra=extra)


def event_kind(data: bytes) -> EventKind:
    """What an event's data, or a complete response, is."""
    try:
        named = _EVENT.decode(data).type
    except BROKEN:
        return EventKind.OTHER
    if named in CONTENT_EVENTS:
        return EventKind.CONTENT
    if named == "error":
        return EventKind.OTHER
    fields = raw_fields(data)
    if _is_error(fields):
        return EventKind.OTHER
    if _finish(fields) not in ORDINARY:
        return EventKind.FINISH
    return EventKind.CONTENT if _has_content(fields) else EventKind.FRAME


def read(data: bytes, state: ResponseState, event: bytes = b"") -> ResponseState:
    """The state after an event with this name and data, or after a complete response."""
    fields = raw_fields(data)
    named = _type(fields)
    content = state.content or named in CONTENT_EVENTS or _has_content(fields)
    error = state.error
    if event == b"error" or _is_error(fields):
        error = error or data
    usage, finish = _usage_in(fields, state.usage), _finish(fields) or state.finish
    return ResponseState(usage, finish, error, content, state.ended or named == STOP)


def read_tail(tail: bytes, state: ResponseState) -> ResponseState:
    """The state after the end of an object whose beginning is missing."""
    found = FINISH.findall(tail)
    finish = found[-1].decode(errors="replace") if found else None
    usage = usage_in_tail(tail, state.usage, USAGE, _usage)
    return ResponseState(usage, finish or state.finish, state.error, state.content, state.ended)


def with_more_prompt(data: bytes, more: int) -> bytes:
    """An event's data, or a complete response, with so many tokens more in its prompt that came from no cache; all its
    other bytes stay."""
    for path in (("usage",), (MESSAGE, "usage")):
        data = changed_at(data, path, partial(_with_more, more=more))
    return data


def _with_more(reported: bytes, more: int) -> bytes:
    counts = raw_value(reported)
    found = _usage(counts, None) if isinstance(counts, dict) else None
    if found is None or not found.prompt:  # where servers begin with 0, the count comes with the last event
        return reported
    return with_more(reported, RISING, more)


def landmarks(data: bytes) -> Sequence[int]:
    """The offsets in a stream at which a usage, a stop reason, an error and the last event stand last."""
    usage = last_match(USAGE, data) if USAGE_KEY in data else -1
    places = (usage, last_match(FINISH, data), data.rfind(b'"error"'), data.rfind(b"message_stop"))
    return [place for place in places if place >= 0]


def is_end_of_stream(tail: bytes) -> bool:
    """Whether the last bytes of a stream are its last event."""
    return END.search(tail) is not None


def error_body(error: ErrorFields) -> bytes:
    """The body of an error response of the proxy's own, in the shape of Anthropic's errors."""
    kind = TYPES.get(error.status, INVALID)
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": _message(error)}})


def error_event(error: ErrorFields) -> bytes:
    """The event that reports an error of the proxy's own in a stream that has begun."""
    return b"event: error\ndata: " + error_body(error) + b"\n\n"


def _message(error: ErrorFields) -> str:
    """The text; for a request that is too long in Anthropic's own words, from which clients read the figures."""
    if error.code != CONTEXT_LENGTH_EXCEEDED or error.figures is None:
        return error.message
    prompt, reply, window = error.figures
    if prompt > window:
        return f"prompt is too long: {prompt} tokens > {window} maximum"
    return (
        f"input length and `max_tokens` exceed context limit: {prompt} + {reply} > {window}, decrease input length or "
        "`max_tokens` and try again"
    )


def _type(fields: RawFields) -> str:
    return string(raw_value(fields["type"])) if "type" in fields else ""


def _is_error(fields: RawFields) -> bool:
    return bytes(fields.get("error", b"null")) not in EMPTY or _type(fields) == "error"


def _has_content(fields: RawFields) -> bool:
    """Whether a complete response has anything of a reply."""
    holders = (fields, raw_fields(fields[MESSAGE])) if MESSAGE in fields else (fields,)
    return any("content" in holder and bytes(holder["content"]) not in EMPTY for holder in holders)


def _finish(fields: RawFields) -> str | None:
    """The stop reason of a response or of a `message_delta`."""
    for holder in (fields, raw_fields(fields.get("delta", b"")), raw_fields(fields.get(MESSAGE, b""))):
        found = raw_value(holder["stop_reason"]) if "stop_reason" in holder else None
        if isinstance(found, str):
            return found
    return None


def _usage_in(fields: RawFields, before: Usage | None) -> Usage | None:
    """The usage that an object reports, itself or in its `message`; `before` if it reports none."""
    for holder in (fields, raw_fields(fields.get(MESSAGE, b""))):
        reported = raw_value(holder["usage"]) if "usage" in holder else None
        if isinstance(reported, dict):
            found, model = _usage(reported, before), raw_value(holder["model"]) if "model" in holder else None
            return replace(found, model=name_of(model)) if found is not None and isinstance(model, str) else found
    return before


def _usage(reported: Mapping[str, Json], before: Usage | None) -> Usage | None:
    """The prompt is the sum of what was not cached, what was written to the cache, and what was read from it. The
    `message_delta` of older versions reports the reply alone: then the prompt stays as it was."""
    rest, reply = count_of(reported.get("input_tokens")), count_of(reported.get("output_tokens"))
    extra = NO_EXTRA if before is None or before.extra is None else before.extra
    billed = _extra_of(reported.get("cache_creation"), reported.get("server_tool_use"), extra)
    if rest is None:
        return before and replace(before, completion=before.completion if reply is None else reply, extra=billed)
    written, cached = (count_of(reported.get(f"cache_{what}_input_tokens")) for what in ("creation", "read"))
    prompt = rest + (written or 0) + (cached or 0)
    if before is not None and prompt < before.prompt:  # an event that leaves the cached part out
        return replace(before, completion=reply or 0, extra=billed)
    named, tier = "" if before is None else before.model, _tier(reported.get("service_tier"), reported.get("speed"))
    tier = tier or ("" if before is None else before.tier)
    return Usage(prompt, reply or 0, cached or 0, written=written, tier=tier, model=named, extra=billed)


NO_EXTRA = Extra()


def _tier(tier: Json, speed: Json) -> str:
    """The tier of service; that of the fast mode is `FAST`, whose prices are a multiple of the usual ones."""
    return FAST if speed == FAST else tier_of(tier)


def _extra_of(kept: Json, tools: Json, before: Extra) -> Extra | None:
    """What is billed otherwise: by the objects that say how long what was written to the cache is kept, and which tools
    the provider ran. What they do not say stays as it was."""
    hour = count_of(kept.get("ephemeral_1h_input_tokens")) if isinstance(kept, dict) else None
    searches = count_of(tools.get("web_search_requests")) if isinstance(tools, dict) else None
    hour, searches = before.written_hour if hour is None else hour, before.searches if searches is None else searches
    return Extra(written_hour=hour, searches=searches) if hour or searches else None
