"""What the JSON of responses with choices reports: usage, finish reason, content, an error; from any compatible server.

It reads objects one level at a time, so that content is never decoded. Nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from proxy.model.api import EventKind, ResponseState
from proxy.model.lenient_json import BROKEN, RawFields, raw_fields, raw_value
from proxy.model.names import name_of
from proxy.model.outcome import Usage
from proxy.wire.openai.stream import END
from proxy.wire.openai.usage import KEY, USAGE, usage_in, usage_in_tail
from proxy.wire.sse import last_match
from proxy.wire.usage import MAX_TOKENS, tier_of

FINISH = re.compile(rb'_reason"\s*:\s*"([^"]{1,64})"')

# Finish reasons of responses that are no failures, whatever their content; None: the response goes on.
ORDINARY = frozenset(
    (
        *(None, "stop", "length", "tool_calls", "function_call", "content_filter"),
        *("end_turn", "max_tokens", "tool_use", "stop_sequence", "eos", "eos_token"),
    )
)
FINISH_KEYS = ("finish_reason", "stop_reason")
CONTENT_KEYS = (
    *("content", "reasoning_content", "reasoning", "reasoning_details", "thinking", "refusal"),
    *("tool_calls", "function_call", "audio", "images", "text", "partial_json", "output"),
)
EMPTY = frozenset((b'""', b"null", b"[]", b"{}", b"false"))

_CHOICES = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


NULL = msgspec.Raw(b"null")


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    audio_tokens: int | None = None


class _ReplyDetails(msgspec.Struct):
    reasoning_tokens: int | None = None
    audio_tokens: int | None = None


class _Counts(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int | None = None
    total_tokens: int = 0
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _ReplyDetails | None = None
    cost: msgspec.Raw = NULL
    cost_in_usd_ticks: msgspec.Raw = NULL
    server_tool_use: msgspec.Raw = NULL
    server_side_tool_usage_details: msgspec.Raw = NULL
    extra_properties: msgspec.Raw = NULL


PLAIN_COUNTS = (NULL,) * 5
MORE = attrgetter("cost", "cost_in_usd_ticks", "server_tool_use", "server_side_tool_usage_details", "extra_properties")


class _Choice(msgspec.Struct, gc=False):
    finish_reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    usage: _Counts
    object: str
    choices: list[_Choice]
    error: msgspec.Raw = NULL
    model: str = ""
    service_tier: str | None = None


_RESPONSE = msgspec.json.Decoder(_Response)


def complete_usage(kind: str, body: bytes) -> Usage | None:
    """The usage of a complete response in OpenAI's own shape that ended well; takes a microsecond. `kind`:
    what the API names its responses.

    None for any other body: `read` may still find a usage in it.
    """
    try:
        response = _RESPONSE.decode(body)
    except BROKEN:
        return None
    counts = response.usage
    if response.object != kind or not 0 <= counts.prompt_tokens <= MAX_TOKENS:
        return None
    if bytes(response.error) not in EMPTY:
        return None
    for choice in response.choices:
        if choice.finish_reason not in ORDINARY:
            return None
    details, completion = counts.prompt_tokens_details or NO_DETAILS, counts.completion_tokens or 0
    replied = counts.completion_tokens_details or NO_REPLY_DETAILS
    if details.audio_tokens or replied.audio_tokens or MORE(counts) != PLAIN_COUNTS:
        return usage_in(raw_fields(body))
    cached, written, thought = details.cached_tokens or 0, details.cache_write_tokens, replied.reasoning_tokens or 0
    if completion < 0 or cached < 0 or thought < 0 or (written is not None and written < 0):
        return None
    unnamed = counts.total_tokens - counts.prompt_tokens - completion
    if 0 < unnamed <= MAX_TOKENS:  # thinking that is only in the total
        completion, thought = completion + unnamed, max(thought, unnamed)
    tier = "" if response.service_tier is None else tier_of(response.service_tier)
    return Usage(counts.prompt_tokens, completion, cached, "", written, thought, tier, name_of(response.model))


NO_DETAILS, NO_REPLY_DETAILS = _Details(), _ReplyDetails()


def event_kind(data: bytes) -> EventKind:
    """What an event's data, or a complete response, is."""
    fields = raw_fields(data)
    if "choices" not in fields or _is_error(fields):
        return EventKind.OTHER
    choices = _choices(fields)
    if any(_finish(choice) not in ORDINARY for choice in choices):
        return EventKind.FINISH
    return EventKind.CONTENT if any(map(_has_content, choices)) else EventKind.FRAME


def read(data: bytes, state: ResponseState, event: bytes = b"") -> ResponseState:
    """The state after an event with this name and data, or after a complete response."""
    if data == END:
        return ResponseState(state.usage, state.finish, state.error, state.content, True)
    fields = raw_fields(data)
    error, finish, content = state.error, state.finish, state.content
    if event == b"error" or _is_error(fields):
        error = error or data
    for part in (fields, *_choices(fields)):
        finish = _finish(part) or finish
        content = content or _has_content(part)
    return ResponseState(usage_in(fields, state.usage), finish, error, content, state.ended)


def read_tail(tail: bytes, state: ResponseState) -> ResponseState:
    """The state after the end of an object whose beginning is missing."""
    found = FINISH.findall(tail)
    finish = found[-1].decode(errors="replace") if found else None
    usage = usage_in_tail(tail, state.usage)
    return ResponseState(usage, finish or state.finish, state.error, state.content, state.ended)


def landmarks(data: bytes) -> Sequence[int]:
    """The offsets in a stream at which a usage, a finish reason, an error and the end stand last."""
    usage = last_match(USAGE, data) if KEY in data else -1
    places = (usage, last_match(FINISH, data), data.rfind(b"error"), data.rfind(END))
    return [place for place in places if place >= 0]


def _choices(fields: RawFields) -> Sequence[RawFields]:
    """The choices of a response or of a chunk."""
    try:
        return _CHOICES.decode(fields.get("choices", b"[]"))
    except BROKEN:
        return ()


def _is_error(fields: RawFields) -> bool:
    """Whether it is an error instead of a response: clients raise for anything true under "error"."""
    return bytes(fields.get("error", b"null")) not in EMPTY or bytes(fields.get("object", b"")) == b'"error"'


def _has_content(fields: RawFields) -> bool:
    """Whether a choice, an event or a response has anything of a reply."""
    holders = (fields, *(raw_fields(fields[key]) for key in ("delta", "message") if key in fields))
    delta = bytes(fields.get("delta", b"null"))  # the Responses API's deltas are bare strings
    return (delta[:1] == b'"' and delta != b'""') or any(
        bytes(holder[key]) not in EMPTY for holder in holders for key in CONTENT_KEYS if key in holder
    )


def _finish(fields: RawFields) -> str | None:
    """The finish reason of a choice, or of a response of the Messages API."""
    holders = (fields, raw_fields(fields.get("delta", b"")))
    found = (raw_value(holder[key]) for holder in holders for key in FINISH_KEYS if key in holder)
    return next((reason for reason in found if isinstance(reason, str)), None)
