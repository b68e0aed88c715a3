"""The items of a request of the Responses API."""

from __future__ import annotations

from proxy.simulator.openai_responses.items import ITEMS, OUTPUTS, PAIRS, items_of, listed, resolved, stem_of, type_of


def test_a_text_is_one_message_of_the_user() -> None:
    assert items_of({"input": "hi"}) == [(0, "message", {"role": "user", "content": "hi"})]
    assert items_of({}) == items_of({"input": []}) == []


def test_messages_and_references_need_no_type() -> None:
    assert type_of({"role": "user"}) == "message"
    assert type_of({"id": "msg_1"}) == "item_reference"
    assert type_of({"type": "reasoning", "role": "x"}) == "reasoning"


def test_calls_and_outputs_are_items() -> None:
    assert set(PAIRS) | set(OUTPUTS) <= set(ITEMS)


def test_what_the_simulator_made_stands_for_its_references() -> None:
    asked = {"input": [{"id": "fc_1a2br_1"}, {"id": "rs_1a2br_0"}, {"id": "msg_other"}]}
    first, second, third = resolved(asked)
    assert first[1:] == ("function_call", {"type": "function_call", "id": "fc_1a2br_1", "call_id": "call_1a2br1"})
    assert second[1:] == ("reasoning", {"type": "reasoning", "id": "rs_1a2br_0"})
    assert third[1] == "item_reference"


def test_the_stem_of_a_response_that_reasoned() -> None:
    assert stem_of({"id": "fc_12r_1"}) == "12r"
    assert stem_of({"id": "fc_12_1"}) == stem_of({"id": "fc_12r_1", "type": "item_reference"}) == stem_of({}) == ""


def test_only_objects_of_a_list_are_listed() -> None:
    assert list(listed([{"a": 1}, 2, "x", {}])) == [{"a": 1}, {}]
    assert list(listed("x")) == list(listed(None)) == []
