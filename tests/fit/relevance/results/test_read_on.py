"""How a call can be repeated for what its shortened result leaves out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.fit.relevance.results.read_on import ArgumentNames, ReadOn, read_on

NAMES = ArgumentNames(("path", "file_path"), ("offset", "view_range"), ("limit",), ("page",))
NUMBERED = "   120→def f():\n   121→    pass\n"


@pytest.mark.parametrize(
    ("arguments", "text", "expected"),
    [
        ({"path": "a.py"}, "x\ny", ReadOn(1)),
        ({"file_path": "a.py", "offset": 40, "limit": 90}, "x\ny", ReadOn(40, offset="offset", limit="limit")),
        ({"path": "a.py", "view_range": [40, 90]}, "x\ny", ReadOn(40, offset="view_range")),
        ({"path": "a.py", "offset": "forty"}, "x\ny", ReadOn(1, offset="offset")),
        ({"path": "a.py", "offset": 100}, NUMBERED, ReadOn(120, True, "offset")),
        ({"command": "cat -n a.py"}, NUMBERED, ReadOn(120, True)),
        ({"command": "cat a.py"}, "x\ny", ReadOn()),
        ({"path": "a.py", "pattern": "def"}, "x\ny", ReadOn()),
        ({"owner": "a", "page": 3}, "[]", ReadOn(page="page 3")),
        ({}, "1: one\n9: nine", ReadOn()),
        ({"limit": 7}, "x", ReadOn()),
        ([1], "x", ReadOn()),
    ],
)
def test_the_arguments_and_the_text_tell(arguments: Any, text: str, expected: ReadOn) -> None:
    assert read_on(json.dumps(arguments), text, NAMES) == expected


def test_arguments_that_are_no_json_tell_nothing() -> None:
    assert read_on("path: a", "x") == ReadOn() and read_on("", NUMBERED) == ReadOn(120, True)


def test_without_names_only_the_text_tells() -> None:
    assert read_on('{"path": "a.py"}', "x\ny") == ReadOn() and read_on("{}", NUMBERED) == ReadOn(120, True)


def test_names_are_given() -> None:
    assert read_on('{"ab": 7}', "x", ArgumentNames(offsets=("ab",))) == ReadOn(7, offset="ab")
