"""Reading of values from other programs' logs: every function takes any JSON value, and never raises."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from proxy.model.lenient_json import BROKEN, Json, RawFields, mapping
from proxy.model.outcome import Extra, Usage
from proxy.wire.usage import cost_of, extra_of, tier_of

MILLISECONDS, NANOSECONDS = 1e11, 1e17  # a larger number of seconds is one of these units
MAX_TOKENS = 10**12
MAX_NESTED, NESTED_BYTES = 1 << 16, 32  # values in such a text, and its bytes for each one more
MAX_NAME = 200  # characters of names that a report shows
# The names that APIs and logs give to the parts of usage. The first that is there counts. Prompts with one of `CACHED`
# or `WRITTEN` beside `input_tokens` as Anthropic counts it are without them.
PROMPT = ("prompt_tokens", "input_tokens", "prompt_eval_count")
COMPLETION = ("completion_tokens", "output_tokens", "eval_count")
DETAILS = ("prompt_tokens_details", "input_tokens_details")
CACHED, WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"


def value(raw: msgspec.Raw | None) -> Json:
    """The decoded value of a field; None if it is missing or broken."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except BROKEN:
        return None


def nested(found: Json) -> Json:
    """The value, or what its text says where it is a text with JSON in it (tables, attributes of spans)."""
    if not isinstance(found, str) or found[:1] not in ("{", "[", '"'):
        return found
    if found.count(",") > MAX_NESTED + len(found) // NESTED_BYTES:
        return found
    try:
        return msgspec.json.decode(found)
    except BROKEN:
        return found


def of(fields: RawFields, *names: str) -> Json:
    """The first of these fields that is there and not null, decoded."""
    for name in names:
        if (found := value(fields.get(name))) is not None:
            return found
    return None


def text(found: Json) -> str:
    """A text, without characters that no terminal shows, of at most `MAX_NAME`; empty for anything else."""
    if not isinstance(found, str):
        return ""
    return "".join([c if c.isprintable() else "?" for c in found[:MAX_NAME]])


def tokens(found: Json) -> int | None:
    """A number of tokens; None for anything else."""
    if isinstance(found, str) and found.isascii() and found.isdecimal() and len(found) < 13:
        found = int(found)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found < MAX_TOKENS:
        return None
    return int(found)


def first(found: Mapping[str, Json], names: Sequence[str]) -> int:
    """The first of these that is a number of tokens; 0 if none is."""
    return next((count for name in names if (count := tokens(found.get(name))) is not None), 0)


def usage(found: Json) -> Usage | None:
    """The usage in the JSON of any of the APIs; None if it has no prompt."""
    found = nested(found)
    if not isinstance(found, dict) or all(tokens(found.get(name)) is None for name in PROMPT):
        return None
    prompt, cached, written = first(found, PROMPT), first(found, (CACHED,)), tokens(found.get(WRITTEN))
    details = next((d for name in DETAILS if isinstance(d := found.get(name), dict)), None)
    if details is not None:
        cached, written = cached or first(details, ("cached_tokens",)), tokens(details.get("cache_write_tokens"))
    elif CACHED in found or WRITTEN in found:
        prompt += cached + (written or 0)
    replied, thought = found.get("completion_tokens_details"), found.get("output_tokens_details")
    reply = next((d for d in (replied, thought) if isinstance(d, dict)), {})
    return Usage(
        prompt,
        first(found, COMPLETION),
        min(cached, prompt),
        written=written,
        reasoning=first(reply, ("reasoning_tokens",)),
        tier=tier_of(found.get("service_tier")),
        extra=_extra(found, details or {}, reply),
    )


def _extra(found: Mapping[str, Json], asked: Mapping[str, Json], reply: Mapping[str, Json]) -> Extra | None:
    """What is billed otherwise: what is written to the cache for an hour, audio, searches, and the cost itself."""
    kept, tools = (mapping(found.get(name)) for name in ("cache_creation", "server_tool_use"))
    return extra_of(
        Extra(
            written_hour=first(kept, ("ephemeral_1h_input_tokens",)),
            audio=first(asked, ("audio_tokens",)),
            audio_reply=first(reply, ("audio_tokens",)),
            searches=first(tools, ("web_search_requests",)),
            cost=cost_of(found.get("cost")),
        )
    )


def moment(found: Json) -> float | None:
    """Seconds since 1970: of a number of seconds, milliseconds or nanoseconds, or of an ISO 8601 text, in UTC unless it
    says otherwise."""
    if isinstance(found, str):
        return _read_moment(found.strip())
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not math.isfinite(found) or found <= 0:
        return None
    seconds = found / 1e9 if found > NANOSECONDS else found / 1e3 if found > MILLISECONDS else float(found)
    return seconds if seconds < MILLISECONDS else None


def _read_moment(found: str) -> float | None:
    if not found or len(found) > 40:
        return None
    try:
        if found.isascii() and found.replace(".", "", 1).isdecimal():
            return moment(float(found))
        read = datetime.fromisoformat(found)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def status(found: Json) -> int:
    """An HTTP status; 0 for anything else."""
    if isinstance(found, str) and found.isascii() and found.isdecimal() and len(found) == 3:
        found = int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) and 100 <= found < 600 else 0


def body(pairs: Mapping[str, Any], drop: Iterable[str] = ()) -> bytes:
    """The JSON of a request with these fields, without those that are None. Empty if it cannot be written."""
    dropped = set(drop)
    try:
        return msgspec.json.encode({k: v for k, v in pairs.items() if v is not None and k not in dropped})
    except BROKEN:
        return b""
