"""The middle of a crowded conversation is left out, and what belongs together stays so; else nothing is."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from proxy.apis.anthropic_messages import API as MESSAGES
from proxy.apis.openai_chat import API as CHAT
from proxy.apis.openai_responses import API as RESPONSES
from proxy.wire.crowded import STAYING
from tests.makers import assistant, system, tool_round, user

MOST = (120, 12)  # values and messages
ASKED = [system("s"), user("first")]


def ends(told: list[Any], most: tuple[int, int] = MOST, **fields: Any) -> list[Any] | None:
    """The messages of chat that are kept; None if none may be left out."""
    raw = json.dumps({"model": "m", **fields, "messages": told, "n": 1}).encode()
    found = CHAT.without_middle(raw, most)
    if found is None:
        return None
    kept: dict[str, Any] = json.loads(found[0])
    assert list(kept) == ["model", *fields, "messages", "n"]
    assert len(kept["messages"]) + found[1] == len(told)
    messages: list[Any] = kept["messages"]
    return messages


def of_items(items: list[Any], **fields: Any) -> list[Any] | None:
    """The items of Responses that are kept; None if none may be left out."""
    found = RESPONSES.without_middle(json.dumps({"model": "m", **fields, "input": items}).encode(), MOST)
    return None if found is None else json.loads(found[0])["input"]


def test_the_first_and_the_newest_stay_and_the_gap_ends_with_the_assistant() -> None:
    told = [*ASKED, *(one for n in range(50) for one in (assistant(f"a{n}"), user(f"u{n}")))]
    kept = ends(told)
    assert kept is not None and kept[:2] == ASKED
    assert kept[2:] == told[-10:], "the first run of the newest twelve may have begun before"


def test_no_result_is_kept_without_its_call() -> None:
    told = [*ASKED, *(one for n in range(50) for one in tool_round(f"c{n}", "r"))]
    for most in range(3, 12):
        kept = ends(told, (500, most))
        assert kept is None or (len(kept) % 2 == 0 and kept[2:] == told[-len(kept) + 2 :])
    parallel = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in "abcdef"]
    results = [{"role": "tool", "tool_call_id": i, "content": "r"} for i in "abcdef"]
    calling = {"role": "assistant", "tool_calls": parallel}
    assert ends([*ASKED, *told[2:], calling, *results], (500, 6)) is None, "no run begins in what may be kept"
    assert ends([*ASKED, *told[2:], calling, *results, assistant("done")], (500, 6)) == [*ASKED, assistant("done")]


def test_what_has_an_orphan_at_its_end_is_not_cut() -> None:
    told = [*ASKED, *(assistant(str(n)) for n in range(50)), {"role": "tool", "tool_call_id": "x", "content": "r"}]
    assert ends(told) is None


@pytest.mark.parametrize("lead", [[], [system("s")], [*tool_round("c", "r")[:1], user("first")]])
def test_without_a_first_question_or_within_an_open_call_nothing_is_left_out(lead: list[Any]) -> None:
    assert ends([*lead, *([assistant("a")] * 100)]) is None


def test_instructions_in_the_middle_stay_in_their_place_unless_there_are_too_many() -> None:
    told = [*ASKED, *(assistant(str(n)) for n in range(50))]
    told.insert(20, system("late"))
    kept = ends(told)
    assert kept is not None and kept[2] == system("late") and kept[-1] == assistant("49")
    assert ends([*ASKED, *([system("late")] * (STAYING + 1)), *told[2:]]) is None


def test_other_fields_take_of_the_values_that_are_kept() -> None:
    told = [*ASKED, *(assistant("a") for _ in range(50))]
    assert ends(told, (40, 12), tools=[1] * 10) is not None
    assert ends(told, (40, 12), tools=[1] * 40) is None


def test_a_result_and_its_call_stay_together_in_messages() -> None:
    told: list[Any] = [user("first")]
    for n in range(50):
        told.append({"role": "assistant", "content": [{"type": "tool_use", "id": f"c{n}", "name": "f", "input": {}}]})
        told.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "r"}]})
    found = MESSAGES.without_middle(json.dumps({"model": "m", "system": "s", "messages": told}).encode(), MOST)
    assert found is not None
    kept = json.loads(found[0])["messages"]
    assert kept[0] == told[0] and kept[1:] == told[-len(kept) + 1 :] and kept[1]["role"] == "assistant"
    edits = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    managed = json.dumps({"model": "m", "context_management": edits, "messages": told}).encode()
    assert MESSAGES.without_middle(managed, MOST) is None


def test_items_behind_reasoning_that_is_gone_are_not_kept() -> None:
    items: list[Any] = [user("first")]
    for n in range(40):
        items.append({"type": "reasoning", "id": f"rs_{n}", "summary": []})
        items.append({"type": "function_call", "id": f"fc_{n}", "call_id": f"c{n}", "name": "f", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": f"c{n}", "output": "r"})
    kept = of_items(items)
    assert kept is not None and kept[1]["type"] == "reasoning" and kept[1:] == items[-len(kept) + 1 :]
    assert of_items(items, previous_response_id="resp_1") is None, "what is stored may refer to any of them"
    assert of_items(items, truncation="auto") is None
    assert of_items([*items[:2], *items[2:3] * 30]) is None, (
        "no later reasoning and no user: they may refer to the first"
    )


def test_an_input_that_is_a_text_is_not_cut_and_what_is_no_list_raises() -> None:
    assert RESPONSES.without_middle(b'{"model":"m","input":"hi"}', MOST) is None
    with pytest.raises(KeyError):
        CHAT.without_middle(b"{}", MOST)
    with pytest.raises(msgspec.MsgspecError):
        CHAT.without_middle(b'{"messages":7}', MOST)
