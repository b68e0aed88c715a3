"""What OpenAI refuses in a request of the Responses API, in its words."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator.responses_validation import checks
from proxy.simulator.validation import validate

ASKED = {"role": "user", "content": "?"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
CUSTOM = {"type": "custom_tool_call", "call_id": "call_2", "name": "f", "input": ""}
THOUGHT = {"type": "reasoning", "id": "rs_ar_0", "summary": []}
SAID = {"type": "message", "id": "msg_ar_1", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}


def error(*items: Any, **fields: Any) -> tuple[str, str | None] | None:
    """The message and the param of the error of a request."""
    found = validate({"model": "m", "input": list(items), **fields}, checks())
    return None if found is None else (found.message, found.param)


@pytest.mark.parametrize(
    ("items", "fields"),
    [
        ([ASKED, CALL, OUTPUT], {}),
        ([ASKED, {**CALL, "id": "fc_1"}, OUTPUT], {"max_output_tokens": 16, "tools": []}),
        ([ASKED, THOUGHT, SAID, ASKED], {}),
        ([ASKED, THOUGHT], {"store": False}),
        ([OUTPUT], {"previous_response_id": "resp_1"}),
        ([{"type": "item_reference", "id": "fc_1"}, OUTPUT], {}),
        ([ASKED, {"type": "compaction", "encrypted_content": "gAAAAx"}, {"type": "compaction_trigger"}], {}),
        ([{"role": "assistant", "content": "x"}, {"id": "msg_1"}], {}),
    ],
)
def test_what_openai_takes_is_taken(items: list[Any], fields: dict[str, Any]) -> None:
    assert error(*items, **fields) is None
    assert error(model="m", input="text") is None and error(input=None, previous_response_id="x") is None


@pytest.mark.parametrize(
    ("items", "fields", "message", "param"),
    [
        ([ASKED], {"model": None}, "Missing required parameter: 'model'.", "model"),
        ([], {"input": None}, "Missing required parameter: 'input'.", "input"),
        (
            [{"type": "item_reference", "id": "rs_1"}, ASKED],
            {"store": False},
            "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
            "input",
        ),
        (
            [ASKED],
            {"context_management": [{"type": "compaction", "compact_threshold": 999}]},
            "Invalid 'context_management[0].compact_threshold': integer below minimum value. Expected a value >= 1000",
            "context_management[0].compact_threshold",
        ),
        ([], {}, "Invalid 'input': empty array.", "input"),
        ([5], {}, "Invalid type for 'input[0]'", "input[0]"),
        ([{"type": "news"}], {}, "Invalid value: 'news'. Supported values are: 'message'", "input[0]"),
        ([ASKED, {"type": "function_call", "call_id": "c", "arguments": ""}], {}, "'input[1].name'.", "input[1].name"),
        ([{"role": "tool", "content": "x"}], {}, "Invalid value: 'tool'.", "input[0].role"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
            {},
            "Invalid value: 'text'. Supported values are: 'input_text'",
            "input[0].content[0]",
        ),
        (
            [{"role": "assistant", "content": [5]}],
            {},
            "Invalid type for 'input[0].content[0]': expected an object, but got an integer instead.",
            "input[0].content[0]",
        ),
        ([{**CALL, "call_id": "c" * 65}], {}, "Invalid 'input[0].call_id': string too long.", "input[0].call_id"),
        (
            [ASKED, {**CALL, "id": "x"}, OUTPUT],
            {},
            "Invalid 'input[1].id': 'x'. Expected an ID that begins with 'fc'.",
            "input[1].id",
        ),
        (
            [THOUGHT, SAID, THOUGHT, {**SAID, "id": "msg_ar_2"}],
            {},
            "Duplicate item found with id rs_ar_0. Remove duplicate items from your input and try again.",
            "input",
        ),
        ([ASKED, CALL], {}, "No tool output found for function call call_1.", "input"),
        ([ASKED, CUSTOM], {}, "No tool output found for custom tool call call_2.", "input"),
        ([ASKED, OUTPUT, CALL], {}, "No tool call found for function call output with call_id call_1.", "input"),
        (
            [ASKED, THOUGHT, ASKED],
            {},
            "Item 'rs_ar_0' of type 'reasoning' was provided without its required following item.",
            "input",
        ),
        (
            [THOUGHT, OUTPUT],
            {"previous_response_id": "x"},
            "was provided without its required following item.",
            "input",
        ),
        (
            [ASKED, SAID],
            {},
            "Item 'msg_ar_1' of type 'message' was provided without its required 'reasoning' item: 'rs_ar_0'.",
            "input",
        ),
        (
            [{**THOUGHT, "encrypted_content": "ours"}, SAID],
            {},
            "content ours... could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
            None,
        ),
        ([{"type": "compaction_trigger"}, ASKED], {}, "must be the last item of the input.", "input"),
        ([ASKED], {"max_output_tokens": 5}, "Expected a value >= 16, but got 5 instead.", "max_output_tokens"),
        ([ASKED], {"max_output_tokens": "x"}, "Invalid type for 'max_output_tokens'", "max_output_tokens"),
        (
            [ASKED],
            {"previous_response_id": "a", "conversation": "b"},
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.",
            "previous_response_id",
        ),
        ([ASKED], {"tools": [5]}, "Invalid type for 'tools[0]'", "tools[0]"),
        ([ASKED], {"messages": []}, "this parameter has moved to 'input'.", "messages"),
    ],
)
def test_what_openai_refuses_is_refused_in_its_words(
    items: list[Any], fields: dict[str, Any], message: str, param: str | None
) -> None:
    found = error(*items, **fields)
    assert found is not None and message in found[0] and found[1] == param


def test_references_to_its_own_items_stand_for_them() -> None:
    def refer(ident: str) -> dict[str, Any]:
        return {"type": "item_reference", "id": ident}

    def output(call: str) -> dict[str, Any]:
        return {**OUTPUT, "call_id": call}

    thought, call = refer("rs_ar_0"), refer("fc_ar_1")
    assert error(ASKED, thought, call, output("call_ar1")) is None
    assert error(ASKED, refer("msg_b_9"), ASKED) is None
    for items, says in (
        ((ASKED, thought, call), "No tool output found for function call call_ar1."),
        ((ASKED, output("call_ar1")), "No tool call found for function call output with call_id call_ar1."),
        ((ASKED, thought, ASKED), "was provided without its required following item."),
        ((ASKED, call, output("call_ar1")), "was provided without its required 'reasoning' item: 'rs_ar_0'."),
    ):
        found = error(*items)
        assert found is not None and found[0].endswith(says)
