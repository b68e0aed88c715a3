"""What a call reads, and what it may change, by its name and arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.config.rules import load_rules
from proxy.fit.blocks import group
from proxy.fit.claims.calls import LONGEST, Call, calls_of, normal, results_of
from tests.makers import prompt, tool_round, user

CONVENTIONS = load_rules(None).ladders["default"].conventions


def call(tool: str, arguments: Any) -> Call:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    message = prompt([user("q"), *tool_round("c", "r", tool, text)]).messages[1]
    (found,) = calls_of(message, CONVENTIONS)
    return found


def test_a_read_names_its_path_and_changes_nothing() -> None:
    found = call("Read", {"file_path": "./src/a.py"})
    assert found.path == "src/a.py" and found.reads and not found.changed and not found.text


def test_the_order_of_arguments_and_what_only_explains_make_no_other_read() -> None:
    one = call("Read", {"path": "a.py", "offset": 5, "limit": 10})
    other = call("read", {"limit": 10, "offset": 5, "path": "./a.py", "explanation": "to see"})
    assert one.reads == other.reads != ""
    assert call("Read", {"path": "a.py", "offset": 6, "limit": 10}).reads != one.reads


def test_an_edit_changes_its_path_and_reads_nothing() -> None:
    found = call("Edit", {"file_path": "src/a.py", "old_string": "a", "new_string": "b"})
    assert found.changed == ("src/a.py",) and not found.reads


def test_what_stands_deep_in_the_arguments_is_a_change_too() -> None:
    found = call("MultiEdit", {"file_path": "a.py", "edits": [{"old_string": "a", "new_string": "b"}]})
    assert found.changed == ("a.py",)


@pytest.mark.parametrize("command", ["cat src/a.py", ["bash", "-lc", "cat src/a.py"], ["cat", "src/a.py"]])
def test_a_shell_that_prints_a_file_reads_it(command: str | list[str]) -> None:
    found = call("shell", {"command": command})
    assert found.path == "src/a.py" and found.reads and not found.text


@pytest.mark.parametrize("command", ["cat a.py | sort", "cat a.py > b.py", "sed -i s/a/b/ a.py", "cat", "make test"])
def test_a_shell_that_does_more_reads_nothing(command: str) -> None:
    assert not call("shell", {"command": command}).reads


@pytest.mark.parametrize(("command", "writes"), [("cp a.py b.py", True), ("echo x > a.py", True), ("make", False)])
def test_a_shell_may_change_what_it_writes(command: str, writes: bool) -> None:
    assert bool(call("shell", {"command": command}).text) is writes


@pytest.mark.parametrize("arguments", ["", "{}", "not json", "[1]", '{"a": ' + "1" * LONGEST + "}"])
def test_arguments_that_cannot_be_read_name_nothing(arguments: str) -> None:
    found = call("Read", arguments)
    assert not (found.reads or found.path or found.changed)


def test_results_have_the_calls_that_they_answer() -> None:
    messages = [user("q"), *tool_round("c1", "one", "Read", '{"path": "a"}'), *tool_round("c2", "two", "Read", "{}")]
    blocks = group(prompt(messages).messages)
    found = [one for place, block in enumerate(blocks) for one in results_of(block, place, CONVENTIONS)]
    told = [(one.call.id, one.text, one.place, one.index) for one in found]
    assert told == [("c1", "one", 1, 2), ("c2", "two", 2, 4)]


@pytest.mark.parametrize("path", ["a/b", "./a/b", "././a/b", " 'a/b' ", "`./a/b`"])
def test_a_path_is_compared_without_quotes_and_dots_before_it(path: str) -> None:
    assert normal(path) == "a/b"
