"""Rows of equal shape with their header once, and back again."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.results.tables import compacted, expanded, is_table

ROWS = [{"id": i, "name": f"n{i}", "at": {"x": 1.50, "y": None}} for i in range(9)]

scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=8)
keys = st.sampled_from(["a", "b", "c", "columns", "rows", "é"])
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=3)
        | st.tuples(st.lists(keys, min_size=1, max_size=3, unique=True), st.integers(1, 4), inner).map(
            lambda made: [{key: made[2] for key in made[0]} for _ in range(made[1])]
        )
    ),
    max_leaves=24,
)


def same(one: Any, other: Any) -> bool:
    """Equal with the same types and the same order of keys."""
    return json.dumps(one) == json.dumps(other)


@given(values, st.sampled_from([None, 0, 1, 4]), st.booleans())
def test_the_original_can_be_rebuilt(value: Any, indent: int | None, ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    short = compacted(text)
    assert len(short) <= len(text.encode())
    rebuilt = json.loads(short)
    assert same(rebuilt if same(rebuilt, value) else expanded(rebuilt), value)


@given(values)
def test_it_is_never_told_wrongly_whether_something_is_a_table(value: Any) -> None:
    """What is no table is not read as one: only then may the short form be expanded."""
    short = json.loads(compacted(json.dumps(value)))
    has_own = '"columns"' in json.dumps(value) and '"rows"' in json.dumps(value)
    assert has_own or same(expanded(short), value)


def test_rows_of_equal_shape_have_their_header_once() -> None:
    short = json.loads(compacted(json.dumps({"rest": ROWS, "n": 9}, indent=2)))
    assert short["rest"]["columns"] == ["id", "name", "at"] and short["rest"]["rows"][0] == [
        0,
        "n0",
        {"x": 1.5, "y": None},
    ]
    assert expanded(short) == {"rest": ROWS, "n": 9}


def test_numbers_and_strings_keep_their_bytes() -> None:
    text = rb'[{"price": 1.50, "big": 123456789012345678901234567890, "s": "\u00e9\/"}'
    text += rb', {"price": 2.0e3, "big": 1, "s": ""}, {"price": 0, "big": 1, "s": ""}]'
    short = compacted(text)
    for literal in (b"1.50", b"123456789012345678901234567890", rb"\u00e9\/", b"2.0e3"):
        assert literal in short
    assert short.startswith(b'{"columns":["price","big","s"],"rows":[[1.50,')


@pytest.mark.parametrize(
    "text",
    [
        '[{"a":1},{"b":1}]',  # another shape
        '[{"aaaa":1,"b":2},{"b":2,"aaaa":1}]',  # another order
        '[{"aaaaaaaaaaaaaaa":1,"aaaaaaaaaaaaaaa":2},{"aaaaaaaaaaaaaaa":1,"aaaaaaaaaaaaaaa":2}]',  # a key twice
        r'[{"\u0061aaaaaaaaaaaaaaaaa":1},{"\u0061aaaaaaaaaaaaaaaaa":1},{"\u0061aaaaaaaaaaaaaaaaa":1}]',  # escaped
        "[{},{},{},{}]",
        '[{"a":1}]',
        '[{"a":1},{"a":2}]',  # a header would cost more
        '{"columns":[1],"rows":[[{"abcdef":1},{"abcdef":2},{"abcdef":3},{"abcdef":3},{"abcdef":3}]]}',
        '"text"',
        "12",
    ],
)
def test_what_is_no_rows_of_equal_shape_only_loses_its_white_space(text: str) -> None:
    assert compacted(json.dumps(text)) == json.dumps(text).encode()
    assert compacted(text) == text.encode()
    assert compacted(text.replace(":", " : ")) == text.encode()


def test_tables_stand_in_tables() -> None:
    orders = [{"order": i, "items": [{"product": i, "price": j, "colour": "red"} for j in range(4)]} for i in range(3)]
    short = compacted(json.dumps(orders))
    assert short.count(b'"columns"') == 4 and expanded(json.loads(short)) == orders


def test_what_lies_very_deep_keeps_its_form() -> None:
    rows = [{"abcdef": i} for i in range(9)]
    text = "[" * 70 + json.dumps(rows, separators=(",", ":")) + "]" * 70
    assert compacted(text).decode() == text


def test_what_is_compact_stays_as_it_is() -> None:
    short = compacted(json.dumps(ROWS))
    assert compacted(short) == short


@pytest.mark.parametrize("text", ["", "{", "[1,]", "nope", '{"a":1} trailing'])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        compacted(text)


@pytest.mark.parametrize(
    "value",
    [
        {"columns": ["a"], "rows": [[1, 2]]},
        {"columns": [1], "rows": [[1]]},
        {"columns": "a", "rows": []},
        {"columns": ["a"], "rows": {}},
        {"columns": ["a"], "rows": [[1]], "more": 1},
        [],
    ],
)
def test_what_only_looks_like_a_table_is_none(value: Any) -> None:
    assert not is_table(value) and expanded(value) == value
