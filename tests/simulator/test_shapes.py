"""The types of JSON values, and where a wrong one stands."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator.shapes import ANY, BOOLEAN, INTEGER, NUMBER, OBJECT, TEXT, type_of, wrong_type

SHAPE = {
    "text": TEXT,
    "count": INTEGER,
    "share": NUMBER,
    "on": BOOLEAN,
    "names": [TEXT],
    "either": (TEXT, [{"type": TEXT}]),
    "free": ANY,
    "many": [ANY],
    "object": OBJECT,
}


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"text": "x", "count": 1, "share": 1, "on": False, "names": [], "either": "x", "free": [None], "many": [None]},
        {"share": 1.5, "names": ["a"], "either": [{"type": "a", "more": 1}, {}], "object": {"a": 1}, "unknown": 5},
        dict.fromkeys(SHAPE),
    ],
)
def test_values_of_the_right_types(value: Any) -> None:
    assert wrong_type(value, SHAPE) is None


@pytest.mark.parametrize(
    ("value", "path", "expected", "got"),
    [
        ([], "", "an object", "an array"),
        ({"text": 5}, "text", "a string", "an integer"),
        ({"count": True}, "count", "an integer", "a boolean"),
        ({"count": 1.5}, "count", "an integer", "a number"),
        ({"share": "1"}, "share", "a number", "a string"),
        ({"on": 1}, "on", "a boolean", "an integer"),
        ({"names": ["a", None]}, "names[1]", "a string", "null"),
        ({"names": {}}, "names", "an array", "an object"),
        ({"either": 5}, "either", "one of a string or an array of objects", "an integer"),
        ({"either": [{}, {"type": []}]}, "either[1].type", "a string", "an array"),
        ({"object": "x"}, "object", "an object", "a string"),
    ],
)
def test_the_first_value_of_a_wrong_type_is_found(value: Any, path: str, expected: str, got: str) -> None:
    wrong = wrong_type(value, SHAPE)
    assert wrong is not None
    assert (wrong.path(), wrong.expected, type_of(wrong.value)) == (path, expected, got)


def test_a_path_may_have_dots() -> None:
    wrong = wrong_type({"either": [{}, {"type": 5}]}, SHAPE)
    assert wrong is not None and wrong.path(dotted=True) == "either.1.type"
