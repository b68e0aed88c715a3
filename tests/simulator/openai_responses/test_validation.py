"""What OpenAI refuses in a request of the Responses API, in its words."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator.check import validate
from proxy.simulator.openai_responses.items import ITEMS
from proxy.simulator.openai_responses.validation import checks

ASKED = {"role": "user", "content": "?"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
CUSTOM = {"type": "custom_tool_call", "call_id": "call_2", "name": "f", "input": ""}
COMPUTER = {"type": "computer_call", "id": "cu_1", "call_id": "c", "status": "completed", "pending_safety_checks": []}
SHOT = {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}}
WARNED = {**COMPUTER, "pending_safety_checks": [{"id": "sc_1"}]}
APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "f", "arguments": "{}"}
APPROVED = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
THOUGHT = {"type": "reasoning", "id": "rs_ar_0", "summary": []}
SAID = {"type": "message", "id": "msg_ar_1", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}


def error(
    *items: Any, provider: str = "openai", counting: bool = False, **fields: Any
) -> tuple[str, str | None] | None:
    """The message and the param of the error of a request."""
    found = validate({"model": "m", "input": list(items), **fields}, checks(provider, counting=counting))
    return None if found is None else (found.message, found.param)


def image(**fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_image", "image_url": "https://x/a.png", **fields}]}


@pytest.mark.parametrize(
    ("items", "fields"),
    [
        ([ASKED, CALL, OUTPUT], {}),
        ([ASKED, {**CALL, "id": "fc_1"}, OUTPUT], {"max_output_tokens": 16, "tools": []}),
        ([ASKED, THOUGHT, SAID, ASKED], {}),
        ([ASKED, {**THOUGHT, "encrypted_content": "gAAAAx"}], {"store": False}),
        ([ASKED, SEARCH, image(detail="original")], {"truncation": "auto"}),
        ([WARNED, {**SHOT, "acknowledged_safety_checks": [{"id": "sc_1"}]}], {}),
        ([APPROVAL, APPROVED], {}),
        ([APPROVED], {"previous_response_id": "resp_1"}),
        ([{"role": "user", "content": "x" * (10 << 20)}], {}),
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
        ([ASKED], {"truncation": "start"}, "Invalid value: 'start'. Supported values are: 'auto' and", "truncation"),
        (
            [image(detail="tiny")],
            {},
            "Invalid value: 'tiny'. Supported values are: 'low' and",
            "input[0].content[0].detail",
        ),
        ([WARNED, SHOT], {}, "The following safety checks have not been acknowledged: sc_1.", "input"),
        (
            [APPROVED],
            {},
            "No approval request found for approval response with approval_request_id mcpr_1.",
            "input",
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


LISTS: dict[str, list[Any]] = {"pending_safety_checks": [], "tools": [], "summary": []}


def test_each_type_of_item_requires_its_own_fields() -> None:
    for kind, fields in ITEMS.items():
        for field in fields:
            item = {"type": kind, **{name: LISTS.get(name, "x") for name in fields if name != field}}
            assert error(item) == (f"Missing required parameter: 'input[0].{field}'.", f"input[0].{field}")
    assert error(ASKED, SEARCH) is None


def test_texts_have_a_length_that_is_named() -> None:
    said = "Expected a string with maximum length 10485760, but got a string with length 10485761 instead."
    long = "x" * ((10 << 20) + 1)
    part = {"role": "user", "content": [{"type": "input_text", "text": long}]}
    for fields, path in (
        ({"input": [ASKED, {**ASKED, "content": long}]}, "input[1].content"),
        ({"input": [part]}, "input[0].content[0].text"),
        ({"input": long}, "input"),
        ({"instructions": long}, "instructions"),
        ({"input": [CALL, {**OUTPUT, "output": long}]}, "input[1].output"),
    ):
        assert error(ASKED, **fields) == (f"Invalid '{path}': string too long. {said}", path)
    sealed = {"type": "compaction", "encrypted_content": "gAAAA" + long}
    assert error(sealed, ASKED) is None
    found = error({**sealed, "encrypted_content": "gAAAA" + 2 * long}, ASKED)
    assert found is not None and "maximum length 20971520" in found[0]


def test_what_is_only_counted_has_no_reply() -> None:
    fields: list[dict[str, Any]] = [{"max_output_tokens": 16}, {"store": False}, {"include": []}, {"stream": True}]
    for field in fields:
        (name,) = field
        assert error(ASKED, counting=True, **field) == (f"Unknown parameter: '{name}'.", name)
        assert error(ASKED, **field) is None
    assert error(ASKED, counting=True, tools=[], instructions="x", reasoning={"effort": "low"}) is None


def test_ollama_knows_few_items_and_no_files() -> None:
    custom = [CUSTOM, {"type": "custom_tool_call_output", "call_id": "call_2", "output": "x"}]
    file = {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}
    assert error(ASKED, *custom, provider="ollama") == ('unknown input item type: "custom_tool_call"', "")
    assert error(file, provider="ollama") == ("input_file is not supported", "")
    assert error(ASKED, *custom, file) is None and error(ASKED, CALL, OUTPUT, provider="ollama") is None


def test_the_errors_of_calls_have_a_code_at_some_providers() -> None:
    for provider, code in (("openai", ""), ("azure", "invalid_request_body"), ("xai", "invalid_request_body")):
        for items in ([ASKED, CALL], [ASKED, OUTPUT]):
            found = validate({"model": "m", "input": items}, checks(provider))
            assert found is not None and found.code == code


def test_copilot_takes_no_reasoning() -> None:
    assert error(ASKED, THOUGHT, SAID, provider="copilot") == (
        'input[1].type "reasoning" is not a valid input item type',
        "input[1].type",
    )
    assert error(ASKED, CALL, OUTPUT, provider="copilot") is None
