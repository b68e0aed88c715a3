"""Validation of requests of the Responses API: one check per function, with OpenAI's wording.

What concerns stored or encrypted items is in `proxy.simulator.openai_responses.stored`. It does not check the length
of a prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from proxy.simulator.check import ApiError, Body, Check, empty_array, invalid, invalid_type
from proxy.simulator.json import Json
from proxy.simulator.openai_responses.items import ITEMS, OUTPUTS, PAIRS, items_of, resolved
from proxy.simulator.openai_responses.stored import (
    reasoning_is_complete,
    references_are_stored,
    secrets_are_its_own,
    takes_no_reasoning,
)
from proxy.simulator.shapes import BOOLEAN, INTEGER, NUMBER, OBJECT, TEXT, wrong_type

ROLES = ("assistant", "system", "developer", "user")
WRITTEN = ("output_text", "refusal")  # content parts of the assistant's messages
GIVEN = ("input_text", "input_image", "input_file")  # of all others
DETAILS = ("low", "high", "auto", "original")  # of an image
BODY_CODED = ("azure", "xai")  # providers whose errors of calls have a code
MAX_CALL_ID = 64
MAX_TEXT = 10 << 20  # characters of one string
MAX_ENCRYPTED = 20 << 20  # of what is encrypted
MIN_OUTPUT_TOKENS = 16
MIN_COMPACT_THRESHOLD = 1_000  # tokens
PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
TRUNCATIONS = ("auto", "disabled")
NOT_COUNTED = ("max_output_tokens", "store", "include", "stream")  # fields that the endpoint which counts does not know
OLLAMA_ITEMS = ("message", "function_call", "function_call_output", "reasoning")  # all that Ollama knows


def checks(provider: str = "openai", owner: str = "simulator", counting: bool = False) -> tuple[Check, ...]:
    """The checks of a provider, in the order in which OpenAI makes them. `owner`: the organisation whose encrypted
    content it can read. `counting`: the request is only counted."""
    known: tuple[Check, ...] = (_items_are_ollamas,) if provider == "ollama" else (_items_are_known,)
    own: tuple[Check, ...] = (takes_no_reasoning,) if provider == "copilot" else ()
    sent: tuple[Check, ...] = (_fields_are_counted,) if counting else ()
    stored = (
        references_are_stored,
        partial(secrets_are_its_own, owner=owner),
        partial(_calls_are_answered, provider=provider),
        _approvals_answer_requests,
        _safety_checks_are_acknowledged,
        partial(reasoning_is_complete, provider=provider),
    )
    return (*FIRST, *sent, *known, *own, *CHECKS, *stored)


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
    "pending_safety_checks": [OBJECT],
    "acknowledged_safety_checks": [OBJECT],
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


def _items_are_ollamas(body: Body) -> ApiError | None:
    """Ollama knows few types of items, and takes no files."""
    for _, kind, item in items_of(body):
        if kind not in OLLAMA_ITEMS:
            return invalid(f'unknown input item type: "{kind}"', "", "")
        content = item.get("content")
        if any(part.get("type") == "input_file" for part in (content if isinstance(content, list) else ())):
            return invalid("input_file is not supported", "", "")
    return None


def _texts_are_of_the_role(body: Body) -> ApiError | None:
    """What the model wrote is output_text or a refusal; what anybody else wrote is input."""
    for place, kind, item in items_of(body):
        if kind != "message" or not isinstance(item["content"], list):
            continue
        allowed = WRITTEN if item["role"] == "assistant" else GIVEN
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


def _calls_are_answered(body: Body, provider: str) -> ApiError | None:
    """Outputs follow their calls, and every call has one. What a stored response called may be answered, too."""
    code = "invalid_request_body" if provider in BODY_CODED else ""
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
                text = f"No tool call found for {name} output with call_id {key[1]}."
                return invalid(text, code, "input")
            answered.add(key)
    for kind, ident in called:
        if (kind, ident) not in answered:
            return invalid(f"No tool output found for {PAIRS[kind][1]} {ident}.", code, "input")
    return None


def _thresholds_are_large(body: Body) -> ApiError | None:
    for i, edit in enumerate(body.get("context_management") or ()):
        least, path = edit.get("compact_threshold"), f"context_management[{i}].compact_threshold"
        if least is not None and least < MIN_COMPACT_THRESHOLD:
            text = f"Invalid '{path}': integer below minimum value. Expected a value >= {MIN_COMPACT_THRESHOLD}, but "
            return invalid(text + f"got {least} instead.", "integer_below_min_value", path)
    return None


def _trigger_is_last(body: Body) -> ApiError | None:
    items = items_of(body)
    if any(kind == "compaction_trigger" for _, kind, _ in items[:-1]):
        return _in_input("The 'compaction_trigger' item must be the last item of the input.")
    return None


def _texts_are_short(body: Body) -> ApiError | None:
    for path, text in _strings([body.get("input"), body.get("instructions")]):
        most = MAX_ENCRYPTED if path.endswith(".encrypted_content") else MAX_TEXT
        if len(text) > most:
            name = path.replace("[0]", "input", 1) if path.startswith("[0]") else "instructions"
            return invalid(
                f"Invalid '{name}': string too long. Expected a string with maximum length {most}, but got a string "
                f"with length {len(text)} instead.",
                "string_above_max_length",
                name,
            )
    return None


def _strings(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """The texts in a value, each with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _strings(item, f"{path}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, f"{path}.{key}")


def _values_are_known(body: Body) -> ApiError | None:
    """The values of `truncation` and of an image's `detail`."""
    found: list[tuple[str, Json, tuple[str, ...]]] = [("truncation", body.get("truncation"), TRUNCATIONS)]
    for place, _, item in items_of(body):
        content = item.get("content")
        for i, part in enumerate(content if isinstance(content, list) else ()):
            found.append((f"input[{place}].content[{i}].detail", part.get("detail"), DETAILS))
    for path, value, known in found:
        if value is not None and value not in known:
            named = " and ".join(f"'{name}'" for name in known)
            return invalid(f"Invalid value: '{value}'. Supported values are: {named}.", "invalid_value", path)
    return None


def _fields_are_counted(body: Body) -> ApiError | None:
    name = next((name for name in NOT_COUNTED if name in body), None)
    return None if name is None else invalid(f"Unknown parameter: '{name}'.", "unknown_parameter", name)


def _approvals_answer_requests(body: Body) -> ApiError | None:
    if body.get("previous_response_id") or body.get("conversation"):
        return None
    asked = {item.get("id") for _, kind, item in resolved(body) if kind in ("mcp_approval_request", "item_reference")}
    for _, kind, item in items_of(body):
        ident = item.get("approval_request_id")
        if kind == "mcp_approval_response" and ident not in asked:
            return _in_input(f"No approval request found for approval response with approval_request_id {ident}.")
    return None


def _safety_checks_are_acknowledged(body: Body) -> ApiError | None:
    """What a computer call warns of, its output acknowledges."""
    pending: dict[object, set[str]] = {}
    for _, kind, item in items_of(body):
        if kind == "computer_call":
            pending[item["call_id"]] = {str(check.get("id")) for check in item["pending_safety_checks"]}
        if kind == "computer_call_output":
            known = {str(check.get("id")) for check in item.get("acknowledged_safety_checks") or ()}
            missing = sorted(pending.get(item["call_id"], set()) - known)
            if missing:
                return _in_input(f"The following safety checks have not been acknowledged: {', '.join(missing)}.")
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


def _in_input(text: str) -> ApiError:
    return invalid(text, "", "input")


FIRST: tuple[Check, ...] = (_has_model, _types_are_right, _options_are_consistent, _has_input)
CHECKS: tuple[Check, ...] = (
    _texts_are_of_the_role,
    _values_are_known,
    _texts_are_short,
    _call_ids_are_short,
    _ids_are_valid,
    _trigger_is_last,
    _thresholds_are_large,
    _limits_are_valid,
)
