"""Which messages belong together, and which may never go."""

from proxy.fit.blocks import closings, group, runs
from proxy.model.conversation import Message
from proxy.model.structs import replace
from tests.makers import assistant, prompt, system, tool_round, user


def messages(*dicts: dict[str, object]) -> tuple[Message, ...]:
    return prompt(list(dicts)).messages


def roles(*dicts: dict[str, object]) -> list[list[str]]:
    return [[m.role for m in run] for run in runs(messages(*dicts))]


def test_a_call_and_its_result_are_one_block() -> None:
    assert roles(user("a"), *tool_round("1", "x"), assistant("b")) == [["user"], ["assistant", "tool"], ["assistant"]]


def test_parallel_calls_and_all_their_results_are_one_block() -> None:
    call, first = tool_round("1", "x")
    call["tool_calls"] += tool_round("2", "y")[0]["tool_calls"]
    second = tool_round("2", "y")[1]
    assert roles(user("a"), call, first, second) == [["user"], ["assistant", "tool", "tool"]]


def test_a_result_that_nobody_asked_for_stands_alone() -> None:
    orphan = tool_round("9", "x")[1]
    assert roles(user("a"), orphan, *tool_round("1", "y"), orphan) == [
        ["user"],
        ["tool"],
        ["assistant", "tool"],
        ["tool"],
    ]


def test_a_legacy_function_call_keeps_its_result() -> None:
    call: dict[str, object] = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    assert roles(user("a"), call, {"role": "function", "name": "f", "content": "x"}) == [
        ["user"],
        ["assistant", "function"],
    ]


def test_instructions_first_and_last_user_and_the_newest_block_are_pinned() -> None:
    found = group(
        messages(
            system("s"),
            user("first"),
            assistant("a"),
            user("b"),
            assistant("c"),
            user("last"),
            *tool_round("1", "x"),
            *tool_round("2", "y"),
        )
    )
    assert [b.pinned for b in found] == [True, True, False, False, False, True, False, True]


def test_what_the_client_pins_is_pinned_with_its_whole_block() -> None:
    found = group(messages(user("first"), *tool_round("1", "x"), assistant("a"), user("last")), pins={2})
    assert [b.pinned for b in found] == [True, True, True, True]


def test_what_closes_a_pinned_round_is_pinned_and_no_more() -> None:
    told = [user("first"), *tool_round("1", "x"), *tool_round("2", "y"), assistant("a"), assistant("b"), user("last")]
    assert [b.pinned for b in group(messages(*told), pins={2})] == [True, True, False, True, False, True]


def test_a_round_is_closed_by_the_first_that_is_none() -> None:
    told = [user("a"), *tool_round("1", "x"), *tool_round("2", "y"), assistant("b"), *tool_round("3", "z"), user("c")]
    assert closings(runs(messages(*told))) == {1: 3, 2: 3}
    assert closings(runs(messages(*told[:5]))) == {}


def test_a_conversation_without_a_user_has_its_newest_block_pinned() -> None:
    assert [b.pinned for b in group(messages(assistant("a"), assistant("b")))] == [False, True]


def test_what_an_api_requires_stays_and_of_what_stands_for_all_before_it_the_newest() -> None:
    told = messages(user("a"), assistant("b"), assistant("c"), assistant("d"), assistant("e"), user("f"))
    marks = {1: {"compacts": True}, 2: {"pinned": True}, 3: {"compacts": True}}
    marked = [replace(m, **marks.get(m.index, {})) for m in told]
    assert [b.pinned for b in group(marked)] == [True, False, True, True, False, True]
