"""JSON values in texts."""

from __future__ import annotations

import json

import pytest

from proxy.fit.relevance.passages import data
from proxy.fit.relevance.passages.data import data_in, left_out

ROWS = [{"id": i, "place": f"harbour {i}", "open": i % 2 == 0} for i in range(60)]


@pytest.mark.parametrize("value", [json.dumps(ROWS), json.dumps(ROWS, indent=1), json.dumps({"took": 3, "hits": ROWS})])
@pytest.mark.parametrize("before", ["", "Answer from this:\n\n", "Orders: ", "<data>", "[1] see below\n\n"])
@pytest.mark.parametrize("after", ["", "\n\nWhich [one] is {open}?", "</data>"])
def test_a_value_is_found_wherever_it_stands(value: str, before: str, after: str) -> None:
    assert data_in(before + value + after) == [(len(before), len(before) + len(value))]


def test_several_values_are_found_each_once() -> None:
    one = json.dumps(ROWS)
    text = f"Orders: {one}\nCustomers: {one}\n"
    assert [text[a:b] for a, b in data_in(text)] == [one, one]


@pytest.mark.parametrize(
    "text",
    [
        "[12:30] Anna: hello\n" * 100,
        json.dumps(ROWS)[:-1],
        json.dumps(ROWS[:3]),
        "\n".join(json.dumps(row) for row in ROWS),
        "[" * 600 + "]" * 600,
        "[" * 200_000,
        '["' * 2000,
        '[{"a": NaN}, ' + '"x", ' * 400 + "1]",
        "{[" * 50_000,
    ],
)
def test_what_is_no_value_or_none_that_can_be_walked_is_text(text: str) -> None:
    assert data_in(text) == []


def test_a_text_with_too_many_values_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "VALUES", 100)
    assert data_in(json.dumps(ROWS)) == []


def test_no_more_than_so_many_beginnings_are_tried() -> None:
    assert data_in('[{"a": \n' * data.TRIES + json.dumps(ROWS)) == []


def test_the_note_says_how_many_rows_are_missing() -> None:
    assert left_out(json.dumps(ROWS)) == "[… JSON of 60 results left out …]"
    assert left_out('{"text": "long"}') == left_out("none") == "[… JSON left out …]"
