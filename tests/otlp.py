"""Reads exports of traces as a collector does: OTLP in both of its encodings, as the same values."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """A span as a collector reads it."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: int
    started: int
    ended: int
    attributes: dict[str, Any]
    error: bool
    flags: int
    state: str


@dataclass(frozen=True, slots=True)
class Export:
    """The body of one export: the attributes of its resource, the name and the version of its scope, its spans."""

    resource: dict[str, Any]
    scope: tuple[str, str]
    spans: list[ReadSpan]


def read_json(body: bytes) -> Export:
    """An export as JSON."""
    (resource_spans,) = json.loads(body)["resourceSpans"]
    (scope_spans,) = resource_spans["scopeSpans"]
    scope = scope_spans["scope"]
    spans = [
        ReadSpan(
            span["traceId"],
            span["spanId"],
            span.get("parentSpanId", ""),
            span["name"],
            span["kind"],
            int(span["startTimeUnixNano"]),
            int(span["endTimeUnixNano"]),
            _json_attributes(span["attributes"]),
            span.get("status", {}).get("code") == 2,
            span["flags"],
            span.get("traceState", ""),
        )
        for span in scope_spans["spans"]
    ]
    return Export(_json_attributes(resource_spans["resource"]["attributes"]), (scope["name"], scope["version"]), spans)


def _json_attributes(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {row["key"]: _json_value(row["value"]) for row in rows}


def _json_value(value: dict[str, Any]) -> Any:
    ((kind, found),) = value.items()
    if kind == "arrayValue":
        return [_json_value(one) for one in found["values"]]
    return {"stringValue": str, "boolValue": bool, "intValue": int, "doubleValue": float}[kind](found)


def read_protobuf(body: bytes) -> Export:
    """An export as protobuf, by the field numbers of opentelemetry-proto 1.x."""
    resource_spans = dict(fields(dict(fields(body))[1]))
    scope_spans = list(fields(resource_spans[2]))
    scope = dict(fields(scope_spans[0][1]))
    spans = [_span(list(fields(data))) for number, data in scope_spans if number == 2]
    about = _attributes(list(fields(resource_spans[1])), 1)
    return Export(about, (scope[1].decode(), scope[2].decode()), spans)


def _span(found: list[tuple[int, Any]]) -> ReadSpan:
    last = dict(found)
    return ReadSpan(
        last[1].hex(),
        last[2].hex(),
        last.get(4, b"").hex(),
        last[5].decode(),
        last[6],
        last[7],
        last[8],
        _attributes(found, 9),
        dict(fields(last.get(15, b""))).get(3) == 2,
        last[16],
        last.get(3, b"").decode(),
    )


def _attributes(found: list[tuple[int, Any]], number: int) -> dict[str, Any]:
    rows = [dict(fields(data)) for at, data in found if at == number]
    return {row[1].decode(): _value(row[2]) for row in rows}


def _value(data: bytes) -> Any:
    ((kind, found),) = fields(data)
    if kind == 5:
        return [_value(one) for _, one in fields(found)]
    if kind == 4:
        return struct.unpack("<d", struct.pack("<Q", found))[0]
    if kind == 3:
        return found - (1 << 64) if found >= 1 << 63 else found
    return found.decode() if kind == 1 else {0: False, 1: True}[found]


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: their numbers, with integers or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        length, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        taken, at = data[at : at + length], at + length
        assert len(taken) == length, "the message is cut off"
        yield number, taken if kind == 2 else int.from_bytes(taken, "little")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
