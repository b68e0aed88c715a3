"""Both encodings of an export, read as a collector reads them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from proxy.config.otel import JSON, PROTOBUF
from proxy.observe.tracing.otlp import BODIES, json_body, protobuf_body
from proxy.observe.tracing.spans import CLIENT, SERVER, Attributes, Span
from tests.otlp import Export, ReadSpan, read_json, read_protobuf

READERS: dict[str, Callable[[bytes], Export]] = {JSON: read_json, PROTOBUF: read_protobuf}
VALUES: Attributes = {
    "text": "ü€😀",
    "empty": "",
    "long": "x" * 20_000,
    "true": True,
    "false": False,
    "zero": 0,
    "small": 127,
    "large": 1 << 40,
    "largest": (1 << 63) - 1,
    "negative": -5,
    "number": 0.25,
    "texts": ("a", "b" * 200),
    "none": (),
}
ROOT = Span("c" * 32, "a" * 16, "", "GET /v1/models", SERVER, 1_795_375_715_916_996_249, 1 << 62, VALUES, False)
CHILD = Span("c" * 32, "1" * 16, "a" * 16, "GET", CLIENT, 0, 1, {}, True, "vendor=1,other=2")

EXPECTED = (
    "0a82010a100a0e0a0172120921000000000000f83f126e0a0d0a08706c696d736f6c6c120131125d0a100000000000000000"
    "000000000000000112080000000000000002220800000000000000032a034745543003390400000000000000410500000000"
    "0000004a080a016112030a01624a080a016e120318ac027a021802850101000000"
)


def read(protocol: str, *spans: Span) -> Export:
    return READERS[protocol](BODIES[protocol]({"service.name": "plimsoll"}, "1.2", spans))


def as_read(span: Span) -> ReadSpan:
    attributes = {name: list(value) if isinstance(value, tuple) else value for name, value in span.attributes.items()}
    ids = (span.trace_id, span.span_id, span.parent_id)
    return ReadSpan(*ids, span.name, span.kind, span.started, span.ended, attributes, span.error, 1, span.state)


@pytest.mark.parametrize("protocol", READERS)
def test_a_collector_reads_what_was_written(protocol: str) -> None:
    export = read(protocol, ROOT, CHILD)
    assert export == Export({"service.name": "plimsoll"}, ("plimsoll", "1.2"), [as_read(ROOT), as_read(CHILD)])
    for value, found in zip(VALUES.values(), export.spans[0].attributes.values(), strict=True):
        assert type(found) is (list if isinstance(value, tuple) else type(value))


@pytest.mark.parametrize("protocol", READERS)
def test_an_export_may_have_no_spans(protocol: str) -> None:
    assert read(protocol).spans == []


def test_in_json_integers_are_texts_and_enumerations_numbers() -> None:
    """JSON's numbers have 53 bits (https://protobuf.dev/programming-guides/json/)."""
    (resource_spans,) = json.loads(json_body({}, "1", [ROOT]))["resourceSpans"]
    (span,) = resource_spans["scopeSpans"][0]["spans"]
    assert span["startTimeUnixNano"] == "1795375715916996249" and span["kind"] == 2
    assert {"key": "large", "value": {"intValue": "1099511627776"}} in span["attributes"]
    assert "parentSpanId" not in span and "status" not in span


def test_protobuf_is_encoded_as_its_own_library_does() -> None:
    """The bytes of opentelemetry-proto 1.45 for the same values."""
    span = Span("0" * 31 + "1", "0" * 15 + "2", "0" * 15 + "3", "GET", CLIENT, 4, 5, {"a": "b", "n": 300}, True)
    assert protobuf_body({"r": 1.5}, "1", [span]).hex() == EXPECTED
