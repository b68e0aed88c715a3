"""Which values are counts, and which report of usage in the end of a response counts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from proxy.model.lenient_json import Json
from proxy.model.outcome import Usage
from proxy.wire.usage import MAX_OBJECT, MAX_TOKENS, cost_of, count_of, tier_of, usage_in_tail, with_more

BEFORE = Usage(7, 1)
START = re.compile(rb'"spent"\s*:\s*\{')


def read(reported: Mapping[str, Json], before: Usage | None) -> Usage | None:
    """The usage of an API that names its counts so."""
    return Usage(reported["in"], before.completion if before else 0)


@pytest.mark.parametrize("value", [0, 1, MAX_TOKENS])
def test_a_whole_number_is_a_count(value: int) -> None:
    assert count_of(value) == value


@pytest.mark.parametrize("value", [-1, MAX_TOKENS + 1, True, 1.0, "1", None, [1], {}])
def test_nothing_else_is_a_count(value: Json) -> None:
    assert count_of(value) is None


def test_the_last_report_counts_and_the_api_reads_it_with_the_one_before() -> None:
    tail = b'..."}, "spent": {"in": 1}, "spent" : {"in": 2}, "x": 1}'
    assert usage_in_tail(tail, BEFORE, START, read) == Usage(2, 1)
    assert usage_in_tail(tail, None, START, read) == Usage(2)


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b'"spent": null}',
        b'"spent": {"in": 1',
        b'"spent": ' + b'{"in": ' * 5_000,
        b'"spent": {"in": 1, "x": "' + b"x" * MAX_OBJECT + b'"}',
    ],
)
def test_without_a_whole_report_the_one_before_stays(tail: bytes) -> None:
    assert usage_in_tail(tail, BEFORE, START, read) is BEFORE


def test_counts_rise_where_they_stand_and_what_is_no_count_stays() -> None:
    told = b'{ "in": 5, "all" :7,"cached": 3,"odd": -1, "text":"5" }'
    assert with_more(told, {"in", "all", "odd", "text"}, 10) == told.replace(b"5,", b"15,").replace(b":7", b":17")


@pytest.mark.parametrize("value", [b"9" * 40, b"1e300", b"12.0", b"true", b"null", b'"7"', b"[7]", b"-0.5"])
def test_a_value_of_any_other_kind_stays_as_it_is(value: bytes) -> None:
    assert with_more(b'{"in":%b}' % value, {"in"}, 10) == b'{"in":%b}' % value


@pytest.mark.parametrize("value", [True, "0.1", None, -0.1, float("nan"), float("inf"), 1e9, [], {}])
def test_what_is_no_cost_is_none(value: Any) -> None:
    assert cost_of(value) is None


def test_a_cost_is_a_number_of_dollars() -> None:
    assert [cost_of(value) for value in (0, 1, 0.0025)] == [0.0, 1.0, 0.0025]


def test_a_tier_of_service_has_many_names() -> None:
    names = ("flex", "PRIORITY", "fast", "ON_DEMAND_PRIORITY", "batch", "standard", "on_demand", "scale", "", None, 5)
    assert [tier_of(name) for name in names] == [
        *("flex", "priority", "priority", "priority", "batch", "default", "default", "default", "", "", "")
    ]
