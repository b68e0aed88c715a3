"""The token usage in responses of OpenAI's APIs and of the servers that are compatible with them.

It reads JSON one level at a time, so that content is never decoded. Nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from proxy.model.lenient_json import Json, RawFields, changed_at, raw_fields, raw_value
from proxy.model.names import name_of
from proxy.model.outcome import Extra, Usage
from proxy.wire import usage
from proxy.wire.usage import cost_of, count_of, extra_of, tier_of

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
REASONING = (("completion_tokens_details", "reasoning_tokens"), ("output_tokens_details", "reasoning_tokens"))
AUDIO = (("prompt_tokens_details", "audio_tokens"), ("input_tokens_details", "audio_tokens"))
AUDIO_REPLY = (("completion_tokens_details", "audio_tokens"), ("output_tokens_details", "audio_tokens"))
# Searches of the web: of OpenRouter's and Anthropic's names, and of xAI's.
SEARCHES = (("server_tool_use", "web_search_requests"), ("server_side_tool_usage_details", "web_search_calls"))
COSTS = (("cost",), ("cost", "total_cost"))  # OpenRouter's and xAI's; Perplexity's
TICKS, TICKS_PER_DOLLAR = "cost_in_usd_ticks", 10**10  # xAI, Cost tracking
TRAFFIC = ("extra_properties", "google", "traffic_type")  # the tier at Vertex
# What rises with the prompt, where no more of it comes from a cache. DeepSeek reports what does not.
RISING = frozenset({*PROMPT, "total_tokens", "prompt_cache_miss_tokens"})
IN_ADDITION = ("cache_read_input_tokens", "cache_creation_input_tokens")


def usage_in(fields: RawFields, before: Usage | None = None) -> Usage | None:
    """The usage that an object reports, itself or in one of `HOLDERS`; `before` if it reports none."""
    for holder in (fields, *(raw_fields(fields[key]) for key in HOLDERS if key in fields)):
        reported = raw_value(holder["usage"]) if "usage" in holder else None
        if isinstance(reported, dict):
            found = _usage(reported, before)
            return found and _named(holder, found)
    return before


def _named(holder: RawFields, found: Usage) -> Usage:
    """With what stands beside the usage: the model that answered, and the tier of its service."""
    model = raw_value(holder["model"]) if "model" in holder else None
    tier = tier_of(raw_value(holder["service_tier"])) if "service_tier" in holder else ""
    if not tier and not isinstance(model, str):
        return found
    return replace(found, model=name_of(model) if isinstance(model, str) else found.model, tier=tier or found.tier)


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
        return before and replace(before, completion=before.completion if completion is None else completion)
    addition = sum(count for key in IN_ADDITION if (count := count_of(reported.get(key))) is not None)
    cached, written = _at_any(reported, CACHED) or 0, _at_any(reported, WRITTEN)
    thought, prompt = _at_any(reported, REASONING) or 0, prompt + addition
    # Gemini's and xAI's thinking is not in the completion, only in the total.
    unnamed = max(0, (count_of(reported.get("total_tokens")) or 0) - prompt - (completion or 0))
    return Usage(
        prompt,
        (completion or 0) + unnamed,
        cached,
        written=written,
        reasoning=max(thought, unnamed),
        tier=tier_of(_at(reported, TRAFFIC)),
        model="" if before is None else before.model,
        extra=extra_of(_extra(reported)),
    )


def _extra(reported: Mapping[str, Json]) -> Extra:
    """What is billed otherwise. With a key of the client's own OpenRouter reports its fee as the cost, and the cost of
    the model beside it."""
    cost = next((found for path in COSTS if (found := cost_of(_at(reported, path))) is not None), None)
    if cost is None and (ticks := count_of(reported.get(TICKS))) is not None:
        cost = ticks / TICKS_PER_DOLLAR
    if cost is not None and reported.get("is_byok") is True:
        cost += cost_of(_at(reported, ("cost_details", "upstream_inference_cost"))) or 0.0
    return Extra(
        audio=_at_any(reported, AUDIO) or 0,
        audio_reply=_at_any(reported, AUDIO_REPLY) or 0,
        searches=_at_any(reported, SEARCHES) or 0,
        cost=cost,
    )


def _first(reported: Mapping[str, Json], keys: Sequence[str]) -> int | None:
    return next((count for key in keys if (count := count_of(reported.get(key))) is not None), None)


def _at_any(reported: Json, paths: Sequence[Sequence[str]]) -> int | None:
    """The count at the first of the paths that has one; None if none has."""
    return next((count for path in paths if (count := count_of(_at(reported, path))) is not None), None)


def _at(reported: Json, path: Sequence[str]) -> Json:
    for key in path:
        reported = reported.get(key) if isinstance(reported, dict) else None
    return reported
