"""Stale states of todo lists and plans become stubs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.fit.steps.drop_superseded import ARGUMENTS_STUB, RESULT_STUB, Params, apply
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace
from tests.makers import assistant, contents, draft, fields, system, tool_round, user, words


def todo(i: int, name: str = "TodoWrite", result: str = "", arguments: Any = None) -> list[dict[str, Any]]:
    """A call that sets a list of todos, and its result."""
    given = {"todos": words(30, f"t{i}x")} if arguments is None else arguments
    return tool_round(f"c{i}", result or f"Todos are now {words(30, f't{i}x')}", name, json.dumps(given))


def drafted(*rounds: Sequence[dict[str, Any]], window: int = 2_000) -> Draft:
    return draft([system("s"), user("q"), *[m for made in rounds for m in made], assistant("so"), user("on")], window)


def drop(before: Draft, **params: Any) -> Draft:
    return apply(before, Facts(Window(2_000), before.meter), Params(**{"batch": 0.0, **params}))


def stubbed(after: Draft) -> list[str]:
    """The ids of the calls whose result is a stub."""
    return [m.answers[0] for m in after.messages if m.answers and m.text() == RESULT_STUB]


def arguments(after: Draft) -> dict[str, str]:
    calls = [call for m in after.messages for call in fields(m).get("tool_calls") or ()]
    return {call["id"]: call["function"]["arguments"] for call in calls}


def test_only_the_newest_result_and_the_newest_arguments_keep_their_text() -> None:
    before = drafted(todo(0), todo(1), todo(2))
    after = drop(before)
    assert stubbed(after) == ["c0", "c1"] and contents(after)[7] == contents(before)[7]
    assert arguments(after)["c0"] == arguments(after)["c1"] == ARGUMENTS_STUB
    assert arguments(after)["c2"] == arguments(before)["c2"] and json.loads(ARGUMENTS_STUB)
    assert after.prompt < before.prompt and not after.drops


def test_pairs_stay_whole_and_every_other_field_keeps_its_bytes() -> None:
    first = todo(0)
    first[0]["x-own"] = first[0]["tool_calls"][0]["x-too"] = {"b": 1.50}
    after = drop(drafted(first, todo(1)))
    sent = [fields(m) for m in after.messages]
    assert [(f["role"], f.get("tool_call_id")) for f in sent[2:6:2]] == [("assistant", None), ("assistant", None)]
    assert sent[3]["tool_call_id"] == "c0" and sent[2]["tool_calls"][0]["id"] == "c0"
    assert sent[2]["x-own"] == sent[2]["tool_calls"][0]["x-too"] == {"b": 1.5}
    assert list(after.messages)[2].why == list(after.messages)[3].why == "superseded by #4"


@pytest.mark.parametrize("name", ["todo_write", "todowrite", "mcp__list__TodoWrite", "write_todos", "update-plan"])
def test_names_match_without_case_signs_and_prefix(name: str) -> None:
    assert stubbed(drop(drafted(todo(0, name), todo(1, name)))) == ["c0"]


def test_every_tool_has_a_state_of_its_own() -> None:
    assert stubbed(drop(drafted(todo(0, "TodoRead"), todo(1), todo(2, "TodoRead")))) == ["c0"]


def test_other_tools_are_left_alone_unless_they_are_named() -> None:
    before = drafted(todo(0, "search"), todo(1, "search"))
    assert drop(before) is before
    assert stubbed(drop(before, tools=("Search",))) == ["c0"]
    assert drop(drafted(todo(0), todo(1)), tools=()).prompt == drafted(todo(0), todo(1)).prompt


def test_a_call_that_carries_only_what_changed_supersedes_nothing() -> None:
    merge = {"merge": True, "todos": words(30)}
    assert stubbed(drop(drafted(todo(0), todo(1, arguments=merge)))) == []
    assert stubbed(drop(drafted(todo(0), todo(1, arguments=merge), todo(2)))) == ["c0", "c1"]
    assert stubbed(drop(drafted(todo(0), todo(1, arguments={**merge, "merge": False})))) == ["c0"]
    assert stubbed(drop(drafted(todo(0), todo(1, arguments=merge)), partial=())) == ["c0"]


@pytest.mark.parametrize("result", ["Error: no such todo", '{"error": "x"}', " <tool_use_error>bad</tool_use_error>"])
def test_a_call_that_failed_supersedes_nothing(result: str) -> None:
    assert stubbed(drop(drafted(todo(0), todo(1, result=result)))) == []
    assert stubbed(drop(drafted(todo(0), todo(1, result=result + words(30)), todo(2)))) == ["c0", "c1"]


def test_arguments_that_are_no_json_are_a_state_too() -> None:
    first, last = (tool_round(f"c{i}", words(30), "TodoWrite", f"no json {words(30)}") for i in range(2))
    after = drop(drafted(first, last))
    assert stubbed(after) == ["c0"] and arguments(after)["c0"] == ARGUMENTS_STUB


def test_what_is_shorter_than_a_stub_stays() -> None:
    before = drafted(todo(0, result="ok", arguments={}), todo(1))
    assert drop(before) is before
    after = drop(drafted(todo(0, result="ok"), todo(1)))
    assert contents(after)[3] == "ok" and arguments(after)["c0"] == ARGUMENTS_STUB


def test_what_is_pinned_stays() -> None:
    before = drafted(todo(0), todo(1))
    pinned = before.with_blocks([replace(block, pinned=True) for block in before.blocks])
    assert drop(pinned) is pinned


def test_of_parallel_calls_only_the_stale_one_is_stubbed() -> None:
    call, result = todo(0)
    call["tool_calls"].insert(
        0, {"id": "s", "type": "function", "function": {"name": "search", "arguments": json.dumps({"q": words(30)})}}
    )
    other = {"role": "tool", "tool_call_id": "s", "content": words(30)}
    after = drop(drafted([call, result, other], todo(1)))
    assert stubbed(after) == ["c0"] and arguments(after)["s"] != ARGUMENTS_STUB and contents(after)[4] == words(30)


def test_stale_text_waits_until_it_comes_to_so_much_and_then_goes_at_once() -> None:
    rounds = [todo(i) for i in range(6)]
    found = [stubbed(drop(drafted(*rounds[:count]), batch=0.1)) for count in range(1, 7)]
    assert found == [[], [], ["c0", "c1"], ["c0", "c1"], ["c0", "c1", "c2", "c3"], ["c0", "c1", "c2", "c3"]]


def test_what_was_stubbed_stays_stubbed() -> None:
    rounds = [todo(i) for i in range(12)]
    before: list[str] = []
    for count in range(1, 13):
        now = stubbed(drop(drafted(*rounds[:count]), batch=0.1))
        assert now[: len(before)] == before
        before = now
    assert len(before) >= 8


@pytest.mark.parametrize("batch", [-0.1, 1.1])
def test_a_batch_that_is_no_share_is_refused(batch: float) -> None:
    with pytest.raises(ValueError, match="batch"):
        Params(batch=batch)


def test_calls_of_another_shape_are_left_alone() -> None:
    old = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "TodoWrite", "arguments": json.dumps({"t": words(30)})},
    }
    answer = {"role": "function", "name": "TodoWrite", "content": words(30)}
    after = drop(drafted([old, answer], todo(1)))
    assert [fields(m).get("function_call") for m in after.messages][2] == old["function_call"]


def test_what_is_no_utf8_is_a_state_too() -> None:
    before = drafted(todo(0), todo(1))
    newest = before.blocks[3]
    raw = newest.messages[0].raw.replace(b'"content": null', b'"content": "\xff"')
    assert raw != newest.messages[0].raw
    broken = replace(newest, messages=(replace(newest.messages[0], raw=raw), *newest.messages[1:]))
    after = drop(replace(before, blocks=(*before.blocks[:3], broken, *before.blocks[4:])))
    assert list(after.messages)[3].text() == RESULT_STUB and list(after.messages)[4].raw == raw
