"""What OpenAI says of reasoning without what it led to, of references, and of encrypted content of another."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator.check import ApiError, validate
from proxy.simulator.openai_responses.stored import seal
from proxy.simulator.openai_responses.validation import checks

ASKED = {"role": "user", "content": "?"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
CALL = {"type": "function_call", "id": "fc_ar_1", "call_id": "call_1", "name": "f", "arguments": "{}"}
THOUGHT = {"type": "reasoning", "id": "rs_ar_0", "summary": []}
SAID = {"type": "message", "id": "msg_ar_1", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
HOSTED = [
    {"type": "file_search_call", "id": "fs_ar_1", "queries": [], "status": "completed"},
    {"type": "web_search_call", "id": "ws_ar_1", "status": "completed"},
    {"type": "code_interpreter_call", "id": "ci_ar_1", "status": "completed"},
    {"type": "image_generation_call", "id": "ig_ar_1", "result": "", "status": "completed"},
    {"type": "mcp_call", "id": "mcp_ar_1", "server_label": "s", "name": "f", "arguments": "{}"},
]
UNREADABLE = "could not be verified. Reason: Encrypted content could not be decrypted or parsed."
OF_ANOTHER = "could not be verified. Reason: Encrypted content item_id did not match the target item id."


def refused(*items: Any, provider: str = "openai", owner: str = "us", **fields: Any) -> ApiError | None:
    return validate({"model": "m", "input": list(items), **fields}, checks(provider, owner))


def error(*items: Any, **fields: Any) -> str:
    """The message of the error of a request; empty for a valid one."""
    found = refused(*items, **fields)
    return "" if found is None else found.message


def test_reasoning_comes_with_what_it_led_to() -> None:
    alone = "Item 'rs_ar_0' of type 'reasoning' was provided without its required following item."
    assert error(ASKED, THOUGHT, ASKED) == error(ASKED, THOUGHT) == alone
    assert error(THOUGHT, OUTPUT, previous_response_id="resp_1") == alone
    assert error(ASKED, THOUGHT, SAID, ASKED) == error(ASKED, THOUGHT, CALL, OUTPUT) == ""


@pytest.mark.parametrize("item", [SAID, CALL, *HOSTED])
def test_what_followed_reasoning_comes_with_it(item: dict[str, Any]) -> None:
    answers = [OUTPUT] if item is CALL else []
    assert error(ASKED, item, *answers) == (
        f"Item '{item['id']}' of type '{item['type']}' was provided without its required 'reasoning' item: 'rs_ar_0'."
    )
    assert error(ASKED, THOUGHT, item, *answers) == ""
    assert error(ASKED, {**item, "id": item["id"].replace("_ar_", "_b_")}, *answers) == ""


def test_what_has_no_id_requires_nothing() -> None:
    inline = [{key: value for key, value in item.items() if key != "id"} for item in (SAID, CALL)]
    assert error(ASKED, *inline, OUTPUT) == ""
    assert error(ASKED, {**SAID, "id": "msg_b_1"}) == ""


def test_where_nothing_is_stored_nothing_is_required_but_by_azure() -> None:
    sealed = {**THOUGHT, "encrypted_content": "gAAAAx"}
    assert error(ASKED, sealed, store=False) == error(ASKED, SAID, store=False) == ""
    assert "required following item" in error(ASKED, sealed, store=False, provider="azure")
    assert "required 'reasoning' item" in error(ASKED, SAID, store=False, provider="azure")
    assert error(ASKED, sealed, SAID, store=False, provider="azure") == ""


def test_where_nothing_is_stored_an_id_names_nothing() -> None:
    for item in ({"type": "item_reference", "id": "rs_1"}, {**THOUGHT, "id": "rs_1"}):
        found = refused(ASKED, item, store=False)
        assert found is not None and (found.status, found.param) == (404, "input")
        assert found.message == (
            "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false. Try again with "
            "`store` set to true, or remove this item from your input."
        )
    said = {**THOUGHT, "content": [{"type": "reasoning_text", "text": "x"}]}
    assert error(ASKED, said, store=False) == error(ASKED, {"type": "item_reference", "id": "msg_1"}) == ""


def test_references_to_its_own_items_stand_for_them() -> None:
    def refer(ident: str) -> dict[str, Any]:
        return {"type": "item_reference", "id": ident}

    def output(call: str) -> dict[str, Any]:
        return {**OUTPUT, "call_id": call}

    thought, call = refer("rs_ar_0"), refer("fc_ar_1")
    assert error(ASKED, thought, call, output("call_ar1")) == ""
    assert error(ASKED, refer("msg_b_9"), ASKED) == ""
    for items, says in (
        ((ASKED, thought, call), "No tool output found for function call call_ar1."),
        ((ASKED, output("call_ar1")), "No tool call found for function call output with call_id call_ar1."),
        ((ASKED, thought, ASKED), "was provided without its required following item."),
        ((ASKED, call, output("call_ar1")), "was provided without its required 'reasoning' item: 'rs_ar_0'."),
    ):
        assert error(*items).endswith(says)


def test_what_is_encrypted_is_bound_to_its_owner_and_to_its_item() -> None:
    sealed = {**THOUGHT, "encrypted_content": seal("rs_ar_0", "us", 1_205)}
    assert len(sealed["encrypted_content"]) == 1_205
    assert error(ASKED, sealed, SAID) == error(ASKED, {**sealed, "id": None}, store=False) == ""
    assert error(ASKED, {**sealed, "encrypted_content": "gAAAA of another"}, SAID) == ""
    found = refused(ASKED, {**sealed, "id": "rs_ar_7"}, SAID)
    assert found is not None and (found.status, found.code) == (400, "invalid_encrypted_content")
    assert found.message == f"The encrypted content gAAA...rrrr {OF_ANOTHER}"
    assert error(ASKED, sealed, SAID, owner="them") == f"The encrypted content gAAA...rrrr {UNREADABLE}"
    ours = {**sealed, "encrypted_content": "our own words"}
    assert error(ASKED, ours, SAID) == f"The encrypted content our ...ords {UNREADABLE}"
