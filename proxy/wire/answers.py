"""What one JSON object of an answer says: usage, finish reason, content, an error; whoever the provider is.

Objects are read one level at a time with their values left raw, so that content costs nothing. Nothing here raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import msgspec

from proxy.model.lenient_json import Json
from proxy.model.outcome import Usage

Fields = Mapping[str, msgspec.Raw]

SAYS_USAGE = re.compile(rb'"usage"\s*:\s*\{')
SAYS_FINISH = re.compile(rb'_reason"\s*:\s*"([^"]{1,64})"')
ROOM_FOR_USAGE = 16_384  # bytes from "usage" on in which its object ends

# How answers end that are no failures, with whatever content; None: it goes on.
ORDINARY = frozenset(
    (
        *(None, "stop", "length", "tool_calls", "function_call", "content_filter"),
        *("end_turn", "max_tokens", "tool_use", "stop_sequence", "eos", "eos_token"),
    )
)
FINISHES = ("finish_reason", "stop_reason")
# Where usage stands: Groq has it under x_groq, the Responses and Messages APIs inside the object that an event tells.
HOLDERS = ("x_groq", "response", "message")
PROMPTS = ("prompt_tokens", "input_tokens")
COMPLETIONS = ("completion_tokens", "output_tokens")
# Tokens of the prompt that came from a cache: within the prompt's count, or beside it (Anthropic).
CACHED = (
    ("prompt_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",),
    ("cache_read_input_tokens",),
)
BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")
CONTENT = (
    *("content", "reasoning_content", "reasoning", "reasoning_details", "thinking", "refusal"),
    *("tool_calls", "function_call", "audio", "images", "text", "partial_json", "output"),
)
MOST = 10**15  # tokens; a larger number is none, and overflows what reckons with it
NOTHING = frozenset((b'""', b"null", b"[]", b"{}", b"false"))

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_CHOICES = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Counts(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Choice(msgspec.Struct, gc=False):
    finish_reason: str | None = None


class _Answer(msgspec.Struct, gc=False):
    usage: _Counts
    object: str
    choices: list[_Choice]
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None


class _Piece(msgspec.Struct, gc=False):
    delta: _Delta
    finish_reason: None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Piece]
    object: str = ""
    error: msgspec.Raw = msgspec.Raw(b"null")


_PLAIN = msgspec.json.Decoder(_Answer)
_WORDS = msgspec.json.Decoder(_Chunk)


def plain_usage(payload: bytes) -> Usage | None:
    """The usage of a whole chat answer in OpenAI's own shape that ended well, in a microsecond; None for any other."""
    try:
        answer = _PLAIN.decode(payload)
    except _UNREADABLE:
        return None
    told = answer.usage
    if answer.object != "chat.completion" or not 0 <= told.prompt_tokens <= MOST or bytes(answer.error) not in NOTHING:
        return None
    for choice in answer.choices:
        if choice.finish_reason not in ORDINARY:
            return None
    details = told.prompt_tokens_details
    return Usage(told.prompt_tokens, told.completion_tokens or 0, (details.cached_tokens or 0) if details else 0)


def says_words(payload: bytes) -> bool:
    """Whether it is a chunk of a chat answer in OpenAI's own shape that brings words of a reply, in a microsecond;
    False says nothing."""
    try:
        chunk = _WORDS.decode(payload)
    except _UNREADABLE:
        return False
    if chunk.object == "error" or bytes(chunk.error) not in NOTHING:
        return False
    for piece in chunk.choices:
        if piece.delta.content:
            return True
    return False


def fields_of(payload: bytes | msgspec.Raw) -> Fields:
    """The fields of a JSON object, their values unread; none of anything else."""
    try:
        return _FIELDS.decode(payload)
    except _UNREADABLE:
        return {}


def choices_of(fields: Fields) -> Sequence[Fields]:
    """The choices of a chat answer or of a chunk of one."""
    try:
        return _CHOICES.decode(fields.get("choices", b"[]"))
    except _UNREADABLE:
        return ()


def is_error(fields: Fields) -> bool:
    """Whether it is an error in place of an answer: clients raise on anything true under "error"."""
    return bytes(fields.get("error", b"null")) not in NOTHING or bytes(fields.get("object", b"")) == b'"error"'


def has_content(fields: Fields) -> bool:
    """Whether a choice, an event or an answer brings anything of a reply."""
    said = (fields, *(fields_of(fields[key]) for key in ("delta", "message") if key in fields))
    told = bytes(fields.get("delta", b"null"))  # the Responses API's deltas are bare strings
    return (told[:1] == b'"' and told != b'""') or any(
        bytes(part[key]) not in NOTHING for part in said for key in CONTENT if key in part
    )


def finish_of(fields: Fields) -> str | None:
    """The finish reason of a choice, or of an answer of the Messages API."""
    found = (
        _value(part[key]) for part in (fields, fields_of(fields.get("delta", b""))) for key in FINISHES if key in part
    )
    return next((reason for reason in found if isinstance(reason, str)), None)


def finish_within(rest: bytes) -> str | None:
    """The last finish reason in the end of an object whose beginning is gone."""
    found = SAYS_FINISH.findall(rest)
    return found[-1].decode(errors="replace") if found else None


def usage_of(fields: Fields, before: Usage | None = None) -> Usage | None:
    """The usage that an object tells, itself or in what it holds; else what was known before."""
    for holder in (fields, *(fields_of(fields[key]) for key in HOLDERS if key in fields)):
        told = _value(holder["usage"]) if "usage" in holder else None
        if isinstance(told, dict):
            return _counts(told, before)
    return before


def usage_within(rest: bytes, before: Usage | None = None) -> Usage | None:
    """The last usage in the end of an object whose beginning is gone, else what was known before."""
    starts = [found.end() - 1 for found in SAYS_USAGE.finditer(rest)]
    if not starts:
        return before
    try:
        text = rest[starts[-1] : starts[-1] + ROOM_FOR_USAGE].decode(errors="replace")
        return _counts(json.JSONDecoder().raw_decode(text)[0], before)
    except (ValueError, RecursionError):
        return before


def _counts(told: Mapping[str, Json], before: Usage | None) -> Usage | None:
    """Counts under whatever names; what is not told (the prompt in Anthropic's last event) stays as it was."""
    prompt, completion = _first(told, PROMPTS), _first(told, COMPLETIONS)
    if prompt is None:
        return before and Usage(before.prompt, before.completion if completion is None else completion, before.cached)
    beside = sum(count for key in BESIDE if (count := _count(told.get(key))) is not None)
    cached = next((count for path in CACHED if (count := _count(_at(told, path))) is not None), 0)
    return Usage(prompt + beside, completion or 0, cached)


def _first(told: Mapping[str, Json], keys: Sequence[str]) -> int | None:
    return next((count for key in keys if (count := _count(told.get(key))) is not None), None)


def _at(told: Json, path: Sequence[str]) -> Json:
    for key in path:
        told = told.get(key) if isinstance(told, dict) else None
    return told


def _count(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST else None


def _value(raw: msgspec.Raw) -> Json:
    try:
        return msgspec.json.decode(raw)
    except _UNREADABLE:
        return None
