"""Validation of requests of the Responses API: one check per function, with OpenAI's wording.

The ids of one response's items share a stem: rs_<stem>_0, fc_<stem>_1. A stem that ends with "r" is of a response that
reasoned: its other items require the reasoning. It does not check the length of a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy.simulator.check import ApiError, Body, Check, empty_array, invalid, invalid_type
from proxy.simulator.json import Json
from proxy.simulator.shapes import BOOLEAN, INTEGER, NUMBER, OBJECT, TEXT, wrong_type

ROLES = ("assistant", "system", "developer", "user")
WRITTEN = ("output_text", "refusal")  # content parts of the assistant's messages
GIVEN = ("input_text", "input_image", "input_file")  # of all others
MAX_CALL_ID = 64
MIN_OUTPUT_TOKENS = 16
MIN_COMPACT_THRESHOLD = 1_000  # tokens
# The types of items, with the fields that each requires.
ITEMS: Mapping[str, tuple[str, ...]] = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id", "output"),
    "local_shell_call": ("id", "call_id", "action", "status"),
    "local_shell_call_output": ("output",),
    "shell_call": ("call_id", "action"),
    "shell_call_output": ("call_id", "output"),
    "apply_patch_call": ("call_id", "operation", "status"),
    "apply_patch_call_output": ("call_id", "status"),
    "computer_call": ("id", "call_id", "pending_safety_checks", "status"),
    "computer_call_output": ("call_id", "output"),
    "tool_search_call": ("arguments",),
    "tool_search_output": ("tools",),
    "additional_tools": ("tools", "role"),
    "program": ("id", "call_id", "code", "fingerprint"),
    "program_output": ("id", "call_id", "result", "status"),
    "reasoning": ("summary",),
    "compaction": ("encrypted_content",),
    "compaction_trigger": (),
    "item_reference": ("id",),
    "file_search_call": ("id", "queries", "status"),
    "web_search_call": ("id", "status"),
    "code_interpreter_call": ("id", "status"),
    "image_generation_call": ("id", "result", "status"),
    "mcp_call": ("id", "server_label", "name", "arguments"),
    "mcp_list_tools": ("id", "server_label", "tools"),
    "mcp_approval_request": ("id", "server_label", "name", "arguments"),
    "mcp_approval_response": ("approval_request_id", "approve"),
    "configuration_update": (),
}
PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
# Calls, with the types of their outputs and their names in error messages.
PAIRS = {
    "function_call": ("function_call_output", "function call"),
    "custom_tool_call": ("custom_tool_call_output", "custom tool call"),
    "local_shell_call": ("local_shell_call_output", "local shell call"),
    "shell_call": ("shell_call_output", "shell call"),
    "apply_patch_call": ("apply_patch_call_output", "apply patch call"),
    "computer_call": ("computer_call_output", "computer call"),
    "program": ("program_output", "program"),
}
OUTPUTS = {output: (call, name) for call, (output, name) in PAIRS.items()}
STEM = re.compile(r"[a-z]+_(\w+r)_\d+")
OWN_ID = re.compile(r"(fc|rs|msg)_(\w+)_(\d+)")  # of an item that the simulator made
REFERRED = {"fc": "function_call", "rs": "reasoning", "msg": "message"}
SEALED = "gAAAA"  # the beginning of everything that OpenAI encrypts

Items = Sequence[tuple[int, str, Mapping[str, Any]]]  # place, type, fields


def checks() -> tuple[Check, ...]:
    """The checks, in the order in which OpenAI makes them."""
    return CHECKS


def items_of(body: Body) -> list[tuple[int, str, Mapping[str, Any]]]:
    """The items of a request's input with their places and types; a text is one message of the user."""
    given = body.get("input")
    found = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    return [(i, type_of(item), item) for i, item in enumerate(found)]


def type_of(item: Mapping[str, Any]) -> str:
    """An item's type; messages and references may leave it out."""
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


PART = {"type": TEXT, "text": TEXT, "image_url": TEXT, "file_id": TEXT, "file_data": TEXT, "refusal": TEXT}
ITEM = {
    "type": TEXT,
    "id": TEXT,
    "call_id": TEXT,
    "role": TEXT,
    "status": TEXT,
    "name": TEXT,
    "content": (TEXT, [PART]),
    "arguments": (TEXT, OBJECT),  # of a tool_search_call an object
    "encrypted_content": TEXT,
    "summary": [{"type": TEXT, "text": TEXT}],
    "output": (TEXT, [PART], OBJECT),
    "tools": [OBJECT],
}
FORMAT = {"type": TEXT, "name": TEXT, "description": TEXT, "schema": OBJECT, "strict": BOOLEAN}
REQUEST = {
    "model": TEXT,
    "input": (TEXT, [ITEM]),
    "instructions": TEXT,
    "previous_response_id": TEXT,
    "conversation": (TEXT, {"id": TEXT}),
    "prompt": {"id": TEXT, "variables": OBJECT},
    "tools": [{"type": TEXT, "name": TEXT, "description": TEXT, "parameters": OBJECT}],
    "tool_choice": (TEXT, {"type": TEXT, "name": TEXT}),
    "text": {"format": FORMAT, "verbosity": TEXT},
    "reasoning": {"effort": TEXT, "summary": TEXT},
    "max_output_tokens": INTEGER,
    "truncation": TEXT,
    "context_management": [{"type": TEXT, "compact_threshold": INTEGER}],
    "include": [TEXT],
    "metadata": OBJECT,
    **dict.fromkeys(("stream", "store", "background", "parallel_tool_calls"), BOOLEAN),
    **dict.fromkeys(("temperature", "top_p"), NUMBER),
}


def _types_are_right(body: Body) -> ApiError | None:
    found = wrong_type(body, REQUEST)
    return None if found is None else invalid_type(found)


def resolved(body: Body) -> list[tuple[int, str, Mapping[str, Any]]]:
    """The items of a request's input; those that the simulator made stand for the references to them, without their
    texts."""
    return [_resolved(place, kind, item) for place, kind, item in items_of(body)]


def _resolved(place: int, kind: str, item: Mapping[str, Any]) -> tuple[int, str, Mapping[str, Any]]:
    found = OWN_ID.fullmatch(str(item.get("id") or "")) if kind == "item_reference" else None
    if found is None:
        return place, kind, item
    stands_for: dict[str, Any] = {"type": REFERRED[found[1]], "id": item["id"]}
    if found[1] == "fc":
        stands_for["call_id"] = f"call_{found[2]}{found[3]}"
    return place, REFERRED[found[1]], stands_for


def _has_model(body: Body) -> ApiError | None:
    if isinstance(body.get("model"), str):
        return None
    return invalid("Missing required parameter: 'model'.", "missing_required_parameter", "model")


def _has_input(body: Body) -> ApiError | None:
    given = body.get("input")
    if given is None and not any(body.get(key) for key in ("previous_response_id", "conversation", "prompt")):
        return invalid("Missing required parameter: 'input'.", "missing_required_parameter", "input")
    return empty_array("input") if given == [] else None


def _items_are_known(body: Body) -> ApiError | None:
    for place, kind, item in items_of(body):
        path = f"input[{place}]"
        if kind not in ITEMS:
            known = ", ".join(f"'{name}'" for name in ITEMS)
            return invalid(f"Invalid value: '{kind}'. Supported values are: {known}.", "invalid_value", path)
        for field in ITEMS[kind]:
            if item.get(field) is None:
                name = f"{path}.{field}"
                return invalid(f"Missing required parameter: '{name}'.", "missing_required_parameter", name)
        if kind == "message" and item["role"] not in ROLES:
            roles = ", ".join(f"'{role}'" for role in ROLES)
            text = f"Invalid value: '{item['role']}'. Supported values are: {roles}."
            return invalid(text, "invalid_value", f"{path}.role")
    return None


def _texts_are_of_the_role(body: Body) -> ApiError | None:
    """What the model wrote is output_text or a refusal; what anybody else wrote is input."""
    for place, kind, item in items_of(body):
        if kind != "message" or not isinstance(item["content"], list):
            continue
        allowed = (
            ("output_text", "refusal") if item["role"] == "assistant" else ("input_text", "input_image", "input_file")
        )
        for i, part in enumerate(item["content"]):
            if part.get("type") not in allowed:
                supported = " and ".join(f"'{name}'" for name in allowed)
                path = f"input[{place}].content[{i}]"
                return invalid(
                    f"Invalid value: '{part.get('type')}'. Supported values are: {supported}.", "invalid_value", path
                )
    return None


def _ids_are_valid(body: Body) -> ApiError | None:
    seen: set[str] = set()
    for place, kind, item in items_of(body):
        ident = item.get("id")
        if not isinstance(ident, str):
            continue
        prefix = PREFIXES.get(kind, "")
        if not ident.startswith(prefix):
            path = f"input[{place}].id"
            text = f"Invalid '{path}': '{ident}'. Expected an ID that begins with '{prefix}'."
            return invalid(text, "invalid_value", path)
        if ident in seen and not kind.endswith("_output"):
            text = f"Duplicate item found with id {ident}. Remove duplicate items from your input and try again."
            return _in_input(text)
        seen.add(ident)
    return None


def _call_ids_are_short(body: Body) -> ApiError | None:
    for place, _, item in items_of(body):
        ident = item.get("call_id")
        if isinstance(ident, str) and not 0 < len(ident) <= MAX_CALL_ID:
            path = f"input[{place}].call_id"
            return invalid(
                f"Invalid '{path}': string too long. Expected a string with maximum length {MAX_CALL_ID}, but got a "
                f"string with length {len(ident)} instead.",
                "string_above_max_length",
                path,
            )
    return None


def _calls_are_answered(body: Body) -> ApiError | None:
    """Outputs follow their calls, and every call has one. What a stored response called may be answered, too."""
    items = resolved(body)
    stored = bool(body.get("previous_response_id") or body.get("conversation")) or any(
        kind == "item_reference" for _, kind, _ in items
    )
    called: dict[tuple[str, str], None] = {}
    answered: set[tuple[str, str]] = set()
    for _, kind, item in items:
        if kind in PAIRS:
            called[kind, str(item.get("call_id"))] = None
        elif kind in OUTPUTS:
            call, name = OUTPUTS[kind]
            key = call, str(item.get("call_id") or item.get("id"))
            if key not in called and not stored:
                return _in_input(f"No tool call found for {name} output with call_id {key[1]}.")
            answered.add(key)
    for kind, ident in called:
        if (kind, ident) not in answered:
            return _in_input(f"No tool output found for {PAIRS[kind][1]} {ident}.")
    return None


def _reasoning_is_complete(body: Body) -> ApiError | None:
    """Of stored responses: reasoning and what it led to come together."""
    if body.get("store") is False:
        return None
    items = resolved(body)
    reasoned = {stem: str(item["id"]) for _, kind, item in items if kind == "reasoning" and (stem := _stem(item))}
    for place, kind, item in items:
        if kind == "reasoning" and item.get("id"):
            after = next((other for _, _, other in items[place + 1 :] if type_of(other) != "reasoning"), None)
            if after is None or type_of(after) in OUTPUTS or after.get("role") not in (None, "assistant"):
                text = f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
                return _in_input(text)
        elif (stem := _stem(item)) and stem not in reasoned:
            return _in_input(
                f"Item '{item['id']}' of type '{kind}' was provided without its required 'reasoning' item: "
                f"'rs_{stem}_0'."
            )
    return None


def _references_are_stored(body: Body) -> ApiError | None:
    if body.get("store") is not False:
        return None
    for _, kind, item in items_of(body):
        if kind == "item_reference":
            return ApiError(
                404,
                f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false. Try "
                "again with `store` set to true, or remove this item from your input.",
                param="input",
            )
    return None


def _thresholds_are_large(body: Body) -> ApiError | None:
    for i, edit in enumerate(body.get("context_management") or ()):
        least, path = edit.get("compact_threshold"), f"context_management[{i}].compact_threshold"
        if least is not None and least < MIN_COMPACT_THRESHOLD:
            text = f"Invalid '{path}': integer below minimum value. Expected a value >= {MIN_COMPACT_THRESHOLD}, but "
            return invalid(text + f"got {least} instead.", "integer_below_min_value", path)
    return None


def _secrets_are_its_own(body: Body) -> ApiError | None:
    for _, _, item in items_of(body):
        secret = item.get("encrypted_content")
        if isinstance(secret, str) and not secret.startswith(SEALED):
            return ApiError(
                400,
                f"The encrypted content {secret[:8]}... could not be verified. Reason: Encrypted content could not be "
                "decrypted or parsed.",
                code="invalid_encrypted_content",
            )
    return None


def _trigger_is_last(body: Body) -> ApiError | None:
    items = items_of(body)
    if any(kind == "compaction_trigger" for _, kind, _ in items[:-1]):
        return _in_input("The 'compaction_trigger' item must be the last item of the input.")
    return None


def _limits_are_valid(body: Body) -> ApiError | None:
    value = body.get("max_output_tokens")
    if value is None or value >= MIN_OUTPUT_TOKENS:
        return None
    return invalid(
        f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {MIN_OUTPUT_TOKENS}, but got "
        f"{value} instead.",
        "integer_below_min_value",
        "max_output_tokens",
    )


def _options_are_consistent(body: Body) -> ApiError | None:
    if body.get("previous_response_id") and body.get("conversation"):
        both = "'previous_response_id' and 'conversation'"
        text = f"Mutually exclusive parameters: {both}. Ensure you are only providing one."
        return invalid(text, "mutually_exclusive_parameters", "previous_response_id")
    if "messages" in body:
        text = "Unsupported parameter: 'messages'. In the Responses API, this parameter has moved to 'input'."
        return invalid(text, "unsupported_parameter", "messages")
    return None


def _stem(item: Mapping[str, Any]) -> str:
    """The stem of an item's id if the response that it comes from reasoned; empty otherwise."""
    found = STEM.fullmatch(str(item.get("id") or ""))
    return found[1] if found and item.get("type") != "item_reference" else ""


def _in_input(text: str) -> ApiError:
    return invalid(text, "", "input")


def listed(value: Json) -> Iterator[Mapping[str, Any]]:
    """The objects of a list; none where it is no list."""
    return (one for one in (value if isinstance(value, list) else ()) if isinstance(one, dict))


CHECKS: tuple[Check, ...] = (
    _has_model,
    _types_are_right,
    _options_are_consistent,
    _has_input,
    _items_are_known,
    _texts_are_of_the_role,
    _call_ids_are_short,
    _ids_are_valid,
    _trigger_is_last,
    _references_are_stored,
    _thresholds_are_large,
    _secrets_are_its_own,
    _calls_are_answered,
    _reasoning_is_complete,
    _limits_are_valid,
)
