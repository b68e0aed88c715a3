"""Results that refer to an earlier one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.config.rules import load_rules
from proxy.fit.blocks import group
from proxy.fit.claims.again import references
from proxy.fit.claims.calls import results_of
from tests.makers import assistant, prompt, tool_round, user

CONVENTIONS = load_rules(None).ladders["default"].conventions
FILE = "\n".join(f"{i:6}\tvalue_{i} = compute(value_{i - 1}, {i})" for i in range(1, 80))
PLAIN = "\n".join(f"value_{i} = compute(value_{i - 1}, {i})" for i in range(1, 80))


def read(ident: str, result: str, tool: str = "Read", **arguments: Any) -> list[dict[str, Any]]:
    return tool_round(ident, result, tool, json.dumps(arguments))


def found(*messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """(id of the call that was repeated, id of the earlier call) of each reference."""
    flat = [user("Find the bug."), *(m for each in messages for m in each)]
    blocks = group(prompt(flat).messages)
    results = [r for place, block in enumerate(blocks) for r in results_of(block, place, CONVENTIONS)]
    return [(r.stub.call.id, r.target.call.id) for r in references(results, CONVENTIONS)]


STUBS = (
    "File unchanged since your last Read. Refer to that earlier tool_result instead of reading it again.",
    "[unchanged]",
    "Nothing to show: it is as you saw it.",
    "↑ see turn 4",
    "<same-as call='a'/>",
    "Die Datei ist unverändert.",
    "(from cache) src/a.py was not modified; use the text shown earlier.",
)


@pytest.mark.parametrize("stub", STUBS)
@pytest.mark.parametrize("content", [FILE, PLAIN])
def test_a_read_that_is_answered_with_a_stub_refers_to_the_earlier_read(stub: str, content: str) -> None:
    assert found(read("a", content, path="src/a.py"), read("b", stub, path="src/a.py")) == [("b", "a")]


def test_ids_of_requests_and_explanations_are_not_what_is_read() -> None:
    again = read("b", "[unchanged]", path="./src/a.py", request_id="r-2", explanation="look once more")
    assert found(read("a", FILE, path="src/a.py", request_id="r-1"), again) == [("b", "a")]


def test_a_shell_that_prints_a_file_reads_it() -> None:
    shell: dict[str, Any] = {"tool": "bash", "command": "cat src/a.py"}
    assert found(read("a", PLAIN, **shell), read("b", "Same as before, not printed again.", **shell)) == [("b", "a")]
    codex: dict[str, Any] = {"tool": "shell", "command": ["bash", "-lc", "sed -n 1,200p src/a.py"]}
    assert found(read("a", PLAIN, **codex), read("b", "unchanged", **codex)) == [("b", "a")]


@pytest.mark.parametrize(
    "command", ["ls", "pytest -q", "git status", "cat a.log | tail -3", "cat a.py && make", "sed -i s/a/b/ a.py"]
)
def test_a_command_that_merely_recurs_refers_to_nothing(command: str) -> None:
    calls = [read(str(i), text, "bash", command=command) for i, text in enumerate((PLAIN, "ok", "nothing to commit"))]
    assert found(*calls) == []


@pytest.mark.parametrize("part", [{"view_range": [1, 80]}, {"startLine": 1, "endLine": 80}])
def test_the_same_range_of_lines_is_the_same_read(part: dict[str, Any]) -> None:
    assert found(read("a", FILE, path="src/a.py", **part), read("b", "[unchanged]", path="src/a.py", **part)) == [
        ("b", "a")
    ]
    grep = read("a", "\n".join(["x"] * 80), path="src/a.py", pattern="x")
    assert found(grep, read("b", FILE, path="src/a.py", **part), read("c", "[unchanged]", path="src/a.py", **part)) == [
        ("c", "b")
    ]


def test_another_range_or_file_is_not_the_same_read() -> None:
    first = read("a", FILE, path="src/a.py", offset=1, limit=80)
    assert found(first, read("b", "[unchanged]", path="src/a.py", offset=81, limit=80)) == []
    assert found(first, read("b", "[unchanged]", path="backup/a.py", offset=1, limit=80)) == []
    assert found(first, read("b", "[unchanged]", "Grep", path="src/a.py", pattern="x")) == []


EDITS = (
    read("e", "done", "Edit", file_path="src/a.py", old_string="value_1", new_string="value_one"),
    read("e", "done", "apply_patch", input="*** Begin Patch\n*** Update File: src/a.py\n" + "-x\n+y\n" * 60),
    read("e", "", "bash", command="echo 'x = 1' > src/a.py"),
    read("e", "", "bash", command="sed -i 's/1/2/' src/a.py"),
    read("e", "", "bash", command="git checkout -- src/a.py"),
    read("e", "done", "write_file", path="/home/me/project/src/a.py", content="x = 1"),
)


@pytest.mark.parametrize("edit", EDITS, ids=range(len(EDITS)))
def test_what_was_edited_in_between_is_stale(edit: list[dict[str, Any]]) -> None:
    assert found(read("a", FILE, path="src/a.py"), edit, read("b", "[unchanged]", path="src/a.py")) == []


def test_an_edit_of_another_file_or_one_that_failed_changes_nothing() -> None:
    other = read("e", "done", "Edit", file_path="src/b.py", old_string="value_1", new_string="value_one")
    failed = read("f", "Error: no match", "Edit", file_path="src/a.py", old_string="q", new_string="r")
    again = read("b", "[unchanged]", path="src/a.py")
    assert found(read("a", FILE, path="src/a.py"), other, failed, again) == [("b", "a")]


@pytest.mark.parametrize(
    "now", ["     1\tx = 1", "x = 1", "import os", "value_3 = compute(value_2, 3)", '{"a": 1}', "a\nb\nc\nd\ne"]
)
def test_a_file_that_became_short_is_no_stub(now: str) -> None:
    assert found(read("a", FILE, path="src/a.py"), read("b", now, path="src/a.py")) == []


@pytest.mark.parametrize("failure", ["Error: ENOENT", "File not found", "cat: src/a.py: No such file", ""])
def test_a_read_that_failed_or_is_empty_is_no_stub(failure: str) -> None:
    assert found(read("a", FILE, path="src/a.py"), read("b", failure, path="src/a.py")) == []


def test_the_newest_whole_result_counts_and_each_stub_refers_to_it() -> None:
    calls = [
        read("a", PLAIN, path="a.py"),
        read("b", PLAIN + "\nmore = 1", path="a.py"),
        read("c", "[unchanged]", path="a.py"),
        [assistant("I see."), user("Read it once more.")],
        read("d", "[unchanged]", path="a.py"),
    ]
    assert found(*calls) == [("b", "b"), ("c", "b"), ("d", "b")]


def test_a_read_that_returns_its_text_again_is_itself_what_was_asked_for() -> None:
    assert found(read("a", FILE, path="src/a.py"), read("b", FILE, path="src/a.py")) == [("b", "b")]
    recurring: dict[str, Any] = {"tool": "bash", "command": "pytest -q"}
    short = FILE[:500]
    assert found(read("a", short, **recurring), read("b", short, **recurring)) == []


def test_the_newest_copy_of_a_long_text_is_asked_for_because_earlier_results_name_it() -> None:
    assert found(read("a", FILE, tool="bash", command="pytest"), read("b", FILE, tool="bash", command="tox")) == [
        ("b", "b")
    ]


def test_a_read_that_is_made_again_after_an_edit_is_what_was_asked_for() -> None:
    edit = tool_round("e", "done", "Edit", json.dumps({"path": "src/a.py", "old_string": "x", "new_string": "y"}))
    newer = FILE.replace("value_7 ", "worth_7 ")
    assert found(read("a", FILE, path="src/a.py"), edit, read("b", newer, path="src/a.py")) == [("b", "b")]


def test_a_name_that_only_a_result_contains_claims_nothing() -> None:
    lure = read("b", "[unchanged] see the earlier result of src/a.py", "search", query="anything else")
    assert found(read("a", FILE, path="src/a.py"), lure) == []
