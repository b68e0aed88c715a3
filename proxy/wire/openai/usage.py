"""The token usage in responses of OpenAI's APIs and of the servers that are compatible with them.

It reads JSON one level at a time, so that content is never decoded. Nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from proxy.model.lenient_json import Json, RawFields, changed_at, raw_fields, raw_value
from proxy.model.outcome import Usage
from proxy.wire import usage
from proxy.wire.usage import count_of

USAGE = re.compile(rb'"usage"\s*:\s*\{')
KEY = b'"usage"'

# Where usage is: Groq has it under x_groq, the Responses and Messages APIs inside the object that an event reports.
HOLDERS = ("x_groq", "response", "message")
PROMPT = ("prompt_tokens", "input_tokens")
COMPLETION = ("completion_tokens", "output_tokens")
# Prompt tokens that came from a cache: a part of the prompt's count, or in addition to it (Anthropic).
CACHED = (
    ("prompt_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",),
    ("cache_read_input_tokens",),
)
# Prompt tokens that were written to a cache.
WRITTEN = (
    ("prompt_tokens_details", "cache_write_tokens"),
    ("input_tokens_details", "cache_write_tokens"),
    ("cache_creation_input_tokens",),
)
# What rises with the prompt, where no more of it comes from a cache. DeepSeek reports what does not.
RISING = frozenset({*PROMPT, "total_tokens", "prompt_cache_miss_tokens"})
IN_ADDITION = ("cache_read_input_tokens", "cache_creation_input_tokens")


def usage_in(fields: RawFields, before: Usage | None = None) -> Usage | None:
    """The usage that an object reports, itself or in one of `HOLDERS`; `before` if it reports none."""
    for holder in (fields, *(raw_fields(fields[key]) for key in HOLDERS if key in fields)):
        reported = raw_value(holder["usage"]) if "usage" in holder else None
        if isinstance(reported, dict):
            return _usage(reported, before)
    return before


def with_more_prompt(data: bytes, more: int) -> bytes:
    """An object with so many tokens more in the prompt of each usage that it reports, and in its totals; all its other
    bytes stay."""
    for path in (("usage",), *((holder, "usage") for holder in HOLDERS)):
        data = changed_at(data, path, partial(_with_more, more=more))
    return data


def _with_more(reported: bytes, more: int) -> bytes:
    counts = raw_value(reported)
    if not isinstance(counts, dict) or not _first(counts, PROMPT):  # of some servers 0 is no count
        return reported
    return usage.with_more(reported, RISING, more)


def usage_in_tail(tail: bytes, before: Usage | None = None) -> Usage | None:
    """The last usage in the end of an object whose beginning is missing; `before` if there is none."""
    return usage.usage_in_tail(tail, before, USAGE, _usage)


def _usage(reported: Mapping[str, Json], before: Usage | None) -> Usage | None:
    """The counts under any of their names. A prompt that is not reported (Anthropic's last event) stays as it was."""
    prompt, completion = _first(reported, PROMPT), _first(reported, COMPLETION)
    if prompt is None:
        return before and Usage(
            before.prompt,
            before.completion if completion is None else completion,
            before.cached,
            written=before.written,
        )
    addition = sum(count for key in IN_ADDITION if (count := count_of(reported.get(key))) is not None)
    cached, written = _at_any(reported, CACHED) or 0, _at_any(reported, WRITTEN)
    return Usage(prompt + addition, completion or 0, cached, written=written)


def _first(reported: Mapping[str, Json], keys: Sequence[str]) -> int | None:
    return next((count for key in keys if (count := count_of(reported.get(key))) is not None), None)


def _at_any(reported: Json, paths: Sequence[Sequence[str]]) -> int | None:
    """The count at the first of the paths that has one; None if none has."""
    return next((count for path in paths if (count := count_of(_at(reported, path))) is not None), None)


def _at(reported: Json, path: Sequence[str]) -> Json:
    for key in path:
        reported = reported.get(key) if isinstance(reported, dict) else None
    return reported
