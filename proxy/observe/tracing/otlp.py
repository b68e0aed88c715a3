"""Encodes spans for OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp/), as protobuf or as JSON.

Field numbers are those of opentelemetry-proto: `ExportTraceServiceRequest` and what it contains.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from proxy.config.otel import JSON, PROTOBUF
from proxy.observe.tracing.spans import Span, Value

ERROR = 2  # Status.code
SAMPLED = 1  # Span.flags
_JSON = msgspec.json.Encoder()


def json_body(resource: Mapping[str, Value], version: str, spans: Iterable[Span]) -> bytes:
    """The body of an export as JSON. Each span is encoded by itself: other threads wait for no more than that."""
    about = _JSON.encode({"attributes": _json_attributes(resource)})
    scope = _JSON.encode({"name": "plimsoll", "version": version})
    encoded = b",".join(_JSON.encode(_json_span(span)) for span in spans)
    return b'{"resourceSpans":[{"resource":%b,"scopeSpans":[{"scope":%b,"spans":[%b]}]}]}' % (about, scope, encoded)


def _json_span(span: Span) -> dict[str, Any]:
    """In JSON, ids are hexadecimal and 64-bit integers are texts."""
    made: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "flags": SAMPLED,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.started),
        "endTimeUnixNano": str(span.ended),
        "attributes": _json_attributes(span.attributes),
    }
    if span.state:
        made["traceState"] = span.state
    if span.parent_id:
        made["parentSpanId"] = span.parent_id
    if span.error:
        made["status"] = {"code": ERROR}
    return made


def _json_attributes(attributes: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _json_value(value)} for name, value in attributes.items()]


def _json_value(value: Value) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"arrayValue": {"values": [_json_value(one) for one in value]}}


def protobuf_body(resource: Mapping[str, Value], version: str, spans: Iterable[Span]) -> bytes:
    """The body of an export as protobuf."""
    about = b"".join(_attribute(1, name, value) for name, value in resource.items())
    scope = _field(1, b"plimsoll") + _field(2, version.encode())
    scope_spans = _field(1, scope) + b"".join(_field(2, _span(span)) for span in spans)
    return _field(1, _field(1, about) + _field(2, scope_spans))


def _span(span: Span) -> bytes:
    parts = [_field(1, bytes.fromhex(span.trace_id)), _field(2, bytes.fromhex(span.span_id))]
    if span.state:
        parts.append(_field(3, span.state.encode()))
    if span.parent_id:
        parts.append(_field(4, bytes.fromhex(span.parent_id)))
    parts.append(_field(5, span.name.encode()))
    parts.append(b"\x30%b" % _varint(span.kind))  # field 6
    parts.append(struct.pack("<BQBQ", 0x39, span.started, 0x41, span.ended))  # fields 7 and 8, fixed64
    parts += [_attribute(9, name, value) for name, value in span.attributes.items()]
    if span.error:
        parts.append(_field(15, b"\x18%b" % _varint(ERROR)))
    parts.append(b"\x85\x01%b" % struct.pack("<I", SAMPLED))  # field 16, fixed32
    return b"".join(parts)


def _attribute(number: int, name: str, value: Value) -> bytes:
    return _field(number, _key(name) + _field(2, _value(value)))


@cache  # names are few: no client chooses one
def _key(name: str) -> bytes:
    return _field(1, name.encode())


def _value(value: Value) -> bytes:
    """An `AnyValue`: a text (1), a boolean (2), an integer (3), a number (4) or an array (5)."""
    if isinstance(value, str):
        return _field(1, value.encode())
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        return b"\x18%b" % _varint(value)
    if isinstance(value, float):
        return struct.pack("<Bd", 0x21, value)
    return _field(5, b"".join([_field(1, _value(one)) for one in value]))


def _field(number: int, payload: bytes) -> bytes:
    """A field up to 15 whose payload is preceded by its length."""
    length = len(payload)
    if length < 128:
        return b"%c%c%b" % (number << 3 | 2, length, payload)
    return b"%c%b%b" % (number << 3 | 2, _varint(length), payload)


def _varint(number: int) -> bytes:
    """A variable-length integer; a negative one as 64 bits."""
    number &= (1 << 64) - 1
    made = bytearray()
    while number >= 128:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)


# By protocol: the body of an export of some spans, with the attributes of their resource and the version of the proxy.
BODIES: Mapping[str, Callable[[Mapping[str, Value], str, Iterable[Span]], bytes]] = {
    JSON: json_body,
    PROTOBUF: protobuf_body,
}
