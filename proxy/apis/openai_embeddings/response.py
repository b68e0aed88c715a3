"""What the JSON of a response with vectors reports, several responses as one, and the proxy's own errors.

Nothing here raises. No vector is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

from proxy.model.api import ErrorFields, EventKind, ResponseState
from proxy.model.lenient_json import BROKEN, Json, RawFields, raw_fields, raw_value
from proxy.model.names import name_of
from proxy.model.outcome import Usage
from proxy.wire.openai import choices, errors
from proxy.wire.openai.choices import landmarks as landmarks
from proxy.wire.openai.stream import is_end_of_stream as is_end_of_stream
from proxy.wire.openai.usage import usage_in, usage_in_tail
from proxy.wire.openai.usage import with_more_prompt as with_more_prompt
from proxy.wire.usage import MAX_TOKENS

DATA, USAGE, INDEX = "data", "usage", "index"
EMPTY = (b"[]", b"null")

_ITEMS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


class _Counts(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int | None = None
    cost: msgspec.Raw = msgspec.Raw(b"null")


class _Response(msgspec.Struct):
    object: str
    data: msgspec.Raw
    usage: _Counts
    model: str = ""
    error: msgspec.Raw = msgspec.Raw(b"null")


_RESPONSE = msgspec.json.Decoder(_Response)


def complete_usage(body: bytes) -> Usage | None:
    """The usage of a complete response in OpenAI's own shape; None for any other body."""
    try:
        found = _RESPONSE.decode(body)
    except BROKEN:
        return None
    if found.object != "list" or bytes(found.error) not in choices.EMPTY or bytes(found.data) in EMPTY:
        return None
    prompt = found.usage.prompt_tokens
    if bytes(found.usage.cost) != b"null":
        return usage_in(raw_fields(body))
    return Usage(prompt, model=name_of(found.model)) if 0 <= prompt <= MAX_TOKENS else None


def event_kind(data: bytes) -> EventKind:
    """What a complete response is."""
    fields = raw_fields(data)
    return EventKind.CONTENT if DATA in fields and not _is_error(fields) else EventKind.OTHER


def read(data: bytes, state: ResponseState, event: bytes = b"") -> ResponseState:
    """The state after a complete response."""
    fields = raw_fields(data)
    error = state.error or (data if _is_error(fields) else None)
    content = state.content or bytes(fields.get(DATA, b"[]")) not in EMPTY
    return ResponseState(usage_in(fields, state.usage), state.finish, error, content, True)


def read_tail(tail: bytes, state: ResponseState) -> ResponseState:
    """The state after the end of a response whose beginning is missing."""
    return ResponseState(usage_in_tail(tail, state.usage), state.finish, state.error, state.content, state.ended)


def joined(bodies: Sequence[bytes], counts: Sequence[int]) -> list[bytes] | None:
    """One response of those to the pieces of a request, in parts: the vectors in their order, under the indices of the
    whole request, and the sum of the usages. Every vector keeps its bytes. `counts`: the inputs of each piece. None for
    what are no such responses, and where one has another number of vectors: it is unknown which inputs they are of."""
    heads = [raw_fields(body) for body in bodies]
    try:
        items = [_ITEMS.decode(head[DATA]) for head in heads]
    except (*BROKEN, KeyError):
        return None
    if any(_is_error(head) for head in heads) or [len(found) for found in items] != list(counts):
        return None
    written = [b"["]
    for offset, found in zip(accumulate(counts, initial=0), items, strict=False):
        for place, item in enumerate(_in_order(found)):
            written += [b"," if len(written) > 1 else b"", *_item(item, offset + place)]
    fields = {**heads[0], USAGE: msgspec.Raw(_sum([raw_value(head.get(USAGE, NOTHING)) for head in heads]))}
    parts: list[bytes] = []
    for key, raw in fields.items():
        parts += [b"," if parts else b"{", msgspec.json.encode(key), b":"]
        parts += [*written, b"]"] if key == DATA else [bytes(raw)]
    return [*parts, b"}"]


NOTHING = msgspec.Raw(b"{}")


def error_body(error: ErrorFields) -> bytes:
    """The body of an error response of the proxy's own, in the shape of OpenAI's errors."""
    return errors.error_body(error, too_long=error.param)


def error_event(error: ErrorFields) -> bytes:
    """The event that reports an error of the proxy's own in a stream."""
    return errors.error_event(error, too_long=error.param)


def _is_error(fields: RawFields) -> bool:
    return bytes(fields.get("error", b"null")) not in choices.EMPTY or bytes(fields.get("object", b"")) == b'"error"'


def _in_order(items: Sequence[RawFields]) -> Sequence[RawFields]:
    """The vectors in the order of their inputs."""
    indices = [raw_value(item.get(INDEX, msgspec.Raw(b"null"))) for item in items]
    if sorted(i for i in indices if type(i) is int) != list(range(len(items))):
        return items
    return [item for _, item in sorted(zip(indices, items, strict=True), key=lambda pair: pair[0])]


def _item(item: RawFields, index: int) -> list[bytes]:
    parts: list[bytes] = []
    for key, raw in item.items():
        value = b"%d" % index if key == INDEX else bytes(raw)
        parts += [b"," if parts else b"{", msgspec.json.encode(key), b":", value]
    return [*parts, b"}"] if parts else [b"{}"]


def _sum(usages: Sequence[Json]) -> bytes:
    """The JSON of the sum of usage objects: of every number that they report, at any depth."""
    return msgspec.json.encode(_added([usage for usage in usages if isinstance(usage, dict)]))


def _added(found: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    total: dict[str, Json] = {}
    for key in dict.fromkeys(key for one in found for key in one):
        values = [one[key] for one in found if key in one]
        if all(type(value) in (int, float) for value in values):
            total[key] = sum(values)
        elif all(isinstance(value, dict) for value in values):
            total[key] = _added(values)
        else:
            total[key] = values[0]
    return total
