"""The two text formats, as the reference parsers read them."""

from __future__ import annotations

import math

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from proxy.observe.metrics.text_formats import Family, Row, exposition
from proxy.observe.metrics.worker_values import Exemplars

COUNTER = Row("rows_total", "Rows.", ("kind", "name"))
GAUGE = Row("level", "A level.", (), mode="max")
HISTOGRAM = Row("seconds", "Time.", ("kind",), (0.1, 1.0))
SIGNED = Row("error_ratio", "Error.", (), (-1.0, 1.0))
MARKS: Exemplars = {("a",): {1: ("f" * 32, 0.5)}}
FAMILIES: list[Family] = [
    (COUNTER, {("a", "x"): [3.0], ("b", "y"): [2.5]}, {}),
    (GAUGE, {(): [7]}, {}),
    (HISTOGRAM, {("a",): [1.0, 2.0, 0.0, 1.75]}, MARKS),
]


def samples(body: bytes, openmetrics: bool) -> dict[tuple[str, ...], float]:
    """Values by the name of the sample and the values of its labels."""
    parse = openmetrics_parser if openmetrics else parser
    families = parse.text_string_to_metric_families(body.decode())
    return {(s.name, *(v for _, v in sorted(s.labels.items()))): s.value for f in families for s in f.samples}


@pytest.mark.parametrize("openmetrics", [False, True])
def test_both_formats_say_the_same(openmetrics: bool) -> None:
    assert samples(exposition(FAMILIES, openmetrics), openmetrics) == {
        ("rows_total", "a", "x"): 3,
        ("rows_total", "b", "y"): 2.5,
        ("level",): 7,
        ("seconds_bucket", "a", "0.1"): 1,
        ("seconds_bucket", "a", "1.0"): 3,
        ("seconds_bucket", "a", "+Inf"): 3,
        ("seconds_count", "a"): 3,
        ("seconds_sum", "a"): 1.75,
    }


def test_only_openmetrics_has_exemplars_and_an_end() -> None:
    text, openmetrics = exposition(FAMILIES, False), exposition(FAMILIES, True)
    assert b"trace_id" not in text and b"EOF" not in text
    assert f'le="1.0"}} 3.0 # {{trace_id="{"f" * 32}"}} 0.5\n'.encode() in openmetrics
    assert openmetrics.endswith(b"\n# EOF\n") and b"# TYPE rows counter" in openmetrics
    assert b"# TYPE rows_total counter" in text


@pytest.mark.parametrize("value", ['say "no"', "C:\\models", "two\nlines", "\\n", "", '\u03b1,x="1"}'])
@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_label_says_what_it_said_whatever_is_in_it(value: str, openmetrics: bool) -> None:
    body = exposition([(COUNTER, {("a", value): [1.0]}, {})], openmetrics)
    assert samples(body, openmetrics) == {("rows_total", "a", value): 1}


def test_a_row_without_labels_has_a_sample_before_its_first_value() -> None:
    found = samples(exposition([(GAUGE, {}, {}), (SIGNED, {}, {}), (COUNTER, {}, {})], False), False)
    assert found[("level",)] == 0 and found["error_ratio_count",] == 0
    assert not any(name.startswith("rows") for name, *_ in found)


def test_a_histogram_of_values_that_may_be_negative_has_no_sum() -> None:
    found = samples(exposition([(SIGNED, {(): [1.0, 1.0, 0.0, -0.5]}, {})], False), False)
    assert found["error_ratio_bucket", "-1.0"] == 1 and ("error_ratio_sum",) not in found


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (1e14, "1e+14"), (1e16, "1e+16"), (0.1, "0.1"), (math.inf, "+Inf"), (-math.inf, "-Inf")],
)
def test_numbers_are_written_as_go_reads_them(value: float, text: str) -> None:
    assert f"level {text}\n".encode() in exposition([(GAUGE, {(): [value]}, {})], True)
    assert b"level NaN\n" in exposition([(GAUGE, {(): [math.nan]}, {})], True)
