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


DECLARED = ArgumentNames(("path",), ("offset", "start_line"), ("limit",), ("page",), ("end_line",), ("view_range",))


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (("path", "offset", "limit"), "offset 25, limit 306"),
        (("path", "start_line", "end_line"), "start_line 25, end_line 330"),
        (("path", "view_range"), "view_range [25, 330]"),
        (("path", "offset"), "offset 25"),
        (("path",), ""),
        ((), ""),
    ],
)
def test_W8_arguments_that_the_call_did_not_use_are_named_from_the_schema_of_its_tool(
    declared: tuple[str, ...], said: str
) -> None:
    for text in ("x\ny", NUMBERED):
        assert read_on('{"path": "a.py"}', text, DECLARED, declared).lines(25, 306) == said


def test_W8_a_command_has_no_lines_to_read_on_by_whatever_its_tool_can() -> None:
    assert read_on('{"command": "ls"}', "x\ny", DECLARED, ("command", "offset")).lines(25, 306) == ""


def test_W8_a_call_that_used_one_keeps_to_it() -> None:
    call = read_on('{"path": "a.py", "view_range": [1, 90]}', "x\ny", DECLARED, ("path", "offset", "view_range"))
    assert call.lines(25, 306) == "view_range [25, 330]" and call.first == 1


def test_names_are_given() -> None:
    assert read_on('{"ab": 7}', "x", ArgumentNames(offsets=("ab",))) == ReadOn(7, offset="ab")
