"""What messages add, counted in characters so that one can add it up in one's head."""

import json
from typing import Any

import pytest

from proxy.apis.openai_chat import messages as chat_messages
from proxy.model.conversation import Kind, Message
from proxy.model.structs import replace
from proxy.tokens.images import Tiles
from proxy.tokens.messages import CountingRules, certain, costs, fields_of, text_of_raw
from proxy.tokens.recipes import CHANNELS, CLASSIC, ESCAPING, HARMONY, JUNE_2023, SEARCH, WRAPPING

HOW = CountingRules(len, CLASSIC, Tiles(85, 170))
LINK = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


def message(fields: Any) -> Message:
    raw = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return Message(raw, "user", Kind.USER, chat_messages)


def cost(fields: Any, rules: CountingRules = HOW) -> int:
    return costs([message(fields)], rules)[0]


def block(*fields: Any, rules: CountingRules = HOW) -> tuple[int, ...]:
    return costs([message(f) for f in fields], rules)


def call(ident: str, arguments: Any = "{}", name: str = "find") -> dict[str, Any]:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(ident: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": content}


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"role": "user", "content": "hello"}, 4 + 5),
        ({"role": "user", "content": ""}, 4),
        ({"role": "user", "content": None}, 4),
        ({"role": "user", "content": [{"type": "text", "text": "he"}, {"type": "text", "text": "llo"}]}, 4 + 5),
        ({"role": "user", "content": "hello", "name": "ann"}, 4 + 5 + 1 + 3),
        ({"role": "user", "content": "hello", "name": "user"}, 4 + 5 + 1),
        ({"role": "assistant", "content": None, "refusal": "no"}, 4 + 2),
        ({"role": "user", "content": [LINK]}, 4 + 765),
        ({}, 4),
    ],
)
def test_a_message_costs_its_frame_and_what_stands_in_it(fields: Any, tokens: int) -> None:
    assert cost(fields) == tokens


def test_an_assistant_message_of_text_costs_a_channel_more_where_there_are_channels() -> None:
    assistant_text = replace(HOW, recipe=CHANNELS, assistant_text=CHANNELS.assistant_text)
    assert cost({"role": "assistant", "content": "hello"}, assistant_text) == 4 + 5 + 2
    assert cost({"role": "user", "content": "hello"}, assistant_text) == 4 + 5


def test_a_search_models_prompt_is_its_bare_text() -> None:
    assert cost({"role": "user", "content": "hello"}, replace(HOW, recipe=SEARCH)) == 5


def test_a_call_costs_its_name_and_its_arguments_without_blanks() -> None:
    asks = {"role": "assistant", "content": None, "tool_calls": [call("1", '{ "a": [1, 2] }')]}
    assert block(asks, result("1", "found")) == (4 + 4 + 11, 8 + len("functions.find") + 5)


def test_text_beside_a_call_and_a_name_are_paid_for() -> None:
    asks = {"role": "assistant", "content": "So:", "name": "ann", "tool_calls": [call("1")]}
    assert cost(asks) == 4 + 3 + 4 + 4 + 2 + 3


def test_arguments_that_are_no_json_or_no_text_are_counted_as_they_are() -> None:
    assert cost({"role": "assistant", "tool_calls": [call("1", "{oops")]}) == 4 + 4 + 5
    assert cost({"role": "assistant", "tool_calls": [call("1", {"a": 1})]}) == 4 + 4 + 7
    assert cost({"role": "assistant", "tool_calls": [call("1", None)]}) == 4 + 4


def test_a_custom_call_is_counted_by_its_input() -> None:
    asks = {
        "role": "assistant",
        "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "sql", "input": "x y"}}],
    }
    assert cost(asks) == 4 + 3 + 3


def test_a_legacy_call_and_its_result_cost_what_modern_ones_do() -> None:
    asks = {"role": "assistant", "content": None, "function_call": {"name": "find", "arguments": "{}"}}
    answers = {"role": "function", "name": "find", "content": "found"}
    modern = block({"role": "assistant", "tool_calls": [call("1")]}, result("1", "found"))
    assert block(asks, answers) == modern == (10, 8 + 14 + 5)


def test_a_result_whose_call_is_not_there_costs_some_name() -> None:
    assert cost(result("9", "found")) == 8 + len("functions.x") + 5


def test_the_frame_of_a_result_was_smaller_until_june_2023() -> None:
    assert cost(result("9", "found"), replace(HOW, recipe=JUNE_2023)) == cost(result("9", "found")) - 3


def test_results_may_hold_parts() -> None:
    assert cost(result("9", [{"type": "text", "text": "found"}, LINK])) == 8 + len("functions.x") + 5 + 765


PARALLEL = (
    {"role": "assistant", "content": "So:", "tool_calls": [call("1", '{"a": "é"}'), call("2", "oops")]},
    result("1", '{"n":1.0,"s":"é"}'),
    result("2", "ok"),
)
WRAPPED = (
    '{"tool_uses":[{"recipient_name":"functions.find","parameters":{"a":"é"}},'
    '{"recipient_name":"functions.find","parameters":"oops"}]}'
)
LISTED = '[{"n": 1.0, "s": "é"}, "ok"]'


def test_calls_made_at_once_are_one_object_and_their_results_one_list() -> None:
    first, *results = block(*PARALLEL)
    assert first == 12 + len(WRAPPED) + 4 + 3
    assert sum(results) == 8 + len(LISTED)
    assert results[0] > 3 * results[1] > 0


def test_older_models_see_the_list_in_ascii() -> None:
    _, *results = block(*PARALLEL, rules=replace(HOW, recipe=ESCAPING))
    assert sum(results) == 8 + len(LISTED) + len("\\u00e9") - 1


def test_calls_made_at_once_without_results_have_no_list() -> None:
    assert block(PARALLEL[0]) == (12 + len(WRAPPED) + 4 + 3,)


def test_where_calls_are_wrapped_and_results_are_not_each_result_costs_its_own() -> None:
    rules = replace(HOW, recipe=WRAPPING)
    turn = {"role": "assistant", "content": None, "tool_calls": [call("1", '{"a": 1}'), call("2", name="see")]}
    uses = (
        '{"tool_uses":[{"recipient_name":"functions.find","parameters":{"a":1}},'
        '{"recipient_name":"functions.see","parameters":{}}]}'
    )
    found = block(turn, result("2", "é" * 9), result("1", "x"), rules=rules)
    assert found == (16 + len(uses), 6 + len("functions.see") + 9, 6 + len("functions.find") + 1)
    alone = {"role": "assistant", "content": None, "tool_calls": [call("1")]}
    assert block(alone, result("1", "x"), rules=rules) == block(
        alone, result("1", "x"), rules=replace(HOW, recipe=HARMONY)
    )


def test_where_calls_are_not_wrapped_a_turn_of_calls_costs_its_frame_once() -> None:
    asks = {"role": "assistant", "tool_calls": [call("1"), call("2")]}
    rules = replace(HOW, recipe=HARMONY)
    assert block(asks, result("1", "a"), result("2", "b"), rules=rules) == (6 + 2 * (4 + 4 + 2), 8 + 14 + 1, 8 + 14 + 1)


def test_images_weigh_less_where_a_token_of_the_encoding_is_worth_more() -> None:
    assert cost({"role": "user", "content": [LINK]}, replace(HOW, unit=0.5)) == 4 + round(765 / 2)


@pytest.mark.parametrize(
    ("raw", "tokens"),
    [
        (rb'{"role":"user","content":"\ud800"}', 4 + 1),
        (b"not json", 4 + 8),
        (b"[1, 2]", 4 + 6),
        (b'{"role":[],"content":7,"tool_calls":[5],"name":{}}', 4),
        (b'{"role":"assistant","tool_calls":[{"id":1,"function":5}]}', 4),
    ],
)
def test_counting_never_fails(raw: bytes, tokens: int) -> None:
    assert cost(raw) == tokens


def test_only_parts_whose_cost_is_assumed_make_a_message_uncertain() -> None:
    assert certain(message({"content": "hello"}), HOW)
    assert certain(message({"content": [{"type": "text", "text": "hello"}]}), HOW)
    assert not certain(message({"content": [{"type": "text", "text": "hello"}, LINK]}), HOW)
    assert not certain(message({"content": [{"type": "file", "file": {"file_id": "f"}}]}), HOW)


def test_a_messages_text_is_its_contents() -> None:
    assert text_of_raw(b'{"content":"a"}') == "a"
    assert text_of_raw(b'{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}') == "ab"
    assert fields_of(b'"a"') == {"content": "a"}
