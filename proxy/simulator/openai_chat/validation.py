"""Validation of chats as strict upstreams do it: one check per function, with OpenAI's wording where OpenAI has one.

It does not check the length of a prompt.
"""

from __future__ import annotations

import re
from itertools import pairwise

from proxy.simulator.check import ApiError, Body, Check, empty_array, invalid, invalid_type
from proxy.simulator.json import Json, text_of
from proxy.simulator.openai_chat.tool_calls import calls_have_results, functions_follow_their_call, ids_are_unique
from proxy.simulator.shapes import BOOLEAN, OBJECT, TEXT, wrong_type

ROLES = ("system", "assistant", "user", "function", "tool", "developer")
INSTRUCTIONS = ("system", "developer")
RESULT_ROLES = ("tool", "function")
LIMITS = ("max_completion_tokens", "max_tokens")
REASONING_MODEL = re.compile(r"(?:^|/)(?:o\d|gpt-5)")  # they accept max_completion_tokens only
MAX_CHOICES = 128  # the API reference of OpenAI: `n` is between 1 and 128
TEMPLATE_SERVERS = ("vllm", "vllm-2026", "sglang")  # they apply the model's own chat template, which may raise
# Models whose chat templates raise unless user and assistant alternate.
ALTERNATING_MODEL = re.compile(r"mi(?:ni)?stral|mixtral|gemma|llama-?2", re.IGNORECASE)


def checks_for(provider: str, system: str = "", max_output: int | None = None) -> tuple[Check, ...]:
    """The checks of every provider, then those of this one. Where versions of a provider differ, the strictest.

    `system` is a text that a system message must contain. `max_output` is the model's largest reply limit, in tokens.
    """
    own: dict[str, tuple[Check, ...]] = {
        "openai": (_limit_is_supported,),
        "azure": (_limit_is_supported,),
        "mistral": (_ends_with_user_turn, _no_user_after_tool),
        **dict.fromkeys(TEMPLATE_SERVERS, (_roles_alternate,)),
    }
    configured: tuple[Check, ...] = (
        lambda body: _has_system_text(body, system),
        lambda body: _limit_is_below(body, max_output),
    )
    return (*CHECKS, *own.get(provider, ()), *configured)


def _has_model(body: Body) -> ApiError | None:
    return None if isinstance(body.get("model"), str) else ApiError(400, "you must provide a model parameter")


def _has_messages(body: Body) -> ApiError | None:
    messages = body.get("messages")
    if messages is None:
        return invalid("Missing required parameter: 'messages'.", "missing_required_parameter", "messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        return invalid("Invalid type for 'messages': expected an array of objects.", "invalid_type", "messages")
    return None if messages else empty_array("messages")


def _roles_are_valid(body: Body) -> ApiError | None:
    for i, message in enumerate(body["messages"]):
        role = message.get("role")
        if role not in ROLES:
            supported = ", ".join(f"'{r}'" for r in ROLES)
            return invalid(
                f"Invalid value: '{role}'. Supported values are: {supported}.", "invalid_value", f"messages[{i}].role"
            )
    return None


def _content_is_present(body: Body) -> ApiError | None:
    """A tool result may be empty, and so may the text of an assistant that calls tools; nothing else may."""
    for i, message in enumerate(body["messages"]):
        content, path = message.get("content"), f"messages[{i}].content"
        if message["role"] == "assistant" and any(
            message.get(k) for k in ("tool_calls", "function_call", "refusal", "audio")
        ):
            continue
        if content is None:
            return invalid("Invalid value for 'content': expected a string, got null.", "", path)
        if not isinstance(content, str | list):
            return invalid(
                f"Invalid type for '{path}': expected one of an array of objects or a string.", "invalid_type", path
            )
        if content == []:
            return empty_array(path)
        if message["role"] not in RESULT_ROLES and not text_of(content) and not _has_other_parts(content):
            return invalid("messages: text content blocks must be non-empty", "", path)
    return None


def _has_other_parts(content: Json) -> bool:
    return isinstance(content, list) and any(isinstance(p, dict) and p.get("type") != "text" for p in content)


def _limits_are_valid(body: Body) -> ApiError | None:
    for name in (*LIMITS, "n"):
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            return invalid(
                f"Invalid type for '{name}': expected an integer, but got something else.", "invalid_type", name
            )
        if value < 1:
            return invalid(
                f"Invalid '{name}': integer below minimum value. Expected a value >= 1, but got {value} instead.",
                "integer_below_min_value",
                name,
            )
    if (body.get("n") or 1) > MAX_CHOICES:
        return invalid(
            "Invalid 'n': integer above maximum value. Expected a value <= 128.", "integer_above_max_value", "n"
        )
    if all(body.get(name) is not None for name in LIMITS):
        text = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        return invalid(text, "invalid_parameter_combination", "max_tokens")
    return None


FUNCTION = {"name": TEXT, "description": TEXT, "parameters": OBJECT}
REQUEST = {
    "tools": [{"type": TEXT, "function": FUNCTION}],
    "functions": [FUNCTION],
    "tool_choice": (TEXT, {"type": TEXT, "function": {"name": TEXT}}),
    "function_call": (TEXT, {"name": TEXT}),
    "response_format": {"type": TEXT, "json_schema": {"name": TEXT, "schema": OBJECT}},
    "stream": BOOLEAN,
    "stream_options": {"include_usage": BOOLEAN},
    "parallel_tool_calls": BOOLEAN,
}


def _types_are_right(body: Body) -> ApiError | None:
    found = wrong_type(body, REQUEST)
    return None if found is None else invalid_type(found)


def _options_are_consistent(body: Body) -> ApiError | None:
    if body.get("tools") == []:
        return empty_array("tools")
    if body.get("tool_choice") is not None and not body.get("tools"):
        text = "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."
        return invalid(text, "", "tool_choice")
    if body.get("stream_options") is not None and not body.get("stream"):
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        return invalid(text, "", "stream_options")
    return None


def _limit_is_supported(body: Body) -> ApiError | None:
    if body.get("max_tokens") is None or not REASONING_MODEL.search(body["model"]):
        return None
    return invalid(
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "unsupported_parameter",
        "max_tokens",
    )


def _ends_with_user_turn(body: Body) -> ApiError | None:
    last = body["messages"][-1]
    if last["role"] in ("user", "tool") or last.get("prefix"):
        return None
    role = last["role"]
    return ApiError(
        400,
        f"Expected last role User or Tool (or Assistant with prefix True) for serving but got {role}",
        "invalid_request_message_order",
        "3230",
    )


def _no_user_after_tool(body: Body) -> ApiError | None:
    roles = [m["role"] for m in body["messages"]]
    if not any(pair == ("tool", "user") for pair in pairwise(roles)):
        return None
    return ApiError(400, "Unexpected role 'user' after role 'tool'", "invalid_request_message_order", "3230")


def _roles_alternate(body: Body) -> ApiError | None:
    """As the chat templates check it: after a system message, user and assistant alternate. Calls and results are
    ignored."""
    if not ALTERNATING_MODEL.search(body["model"]):
        return None
    messages = body["messages"][1 if body["messages"][0]["role"] == "system" else 0 :]
    turns = [m["role"] for m in messages if m["role"] != "tool" and not m.get("tool_calls")]
    if all(role == ("user", "assistant")[i % 2] for i, role in enumerate(turns)):
        return None
    return ApiError(400, "Conversation roles must alternate user/assistant/user/assistant/...", "BadRequestError")


def _has_system_text(body: Body, system: str) -> ApiError | None:
    texts = (text_of(m.get("content")) for m in body["messages"] if m["role"] in INSTRUCTIONS)
    if not system or any(system in text for text in texts):
        return None
    return invalid("The system message is missing.", "system_message_missing", "messages")


def _limit_is_below(body: Body, max_output: int | None) -> ApiError | None:
    requested = max((body[name] for name in LIMITS if body.get(name) is not None), default=0)
    if max_output is None or requested <= max_output:
        return None
    return invalid(
        f"max_tokens is too large: {requested}. This model supports at most {max_output} completion tokens, whereas "
        f"you provided {requested}.",
        "invalid_value",
        "max_tokens",
    )


CHECKS: tuple[Check, ...] = (
    _has_model,
    _has_messages,
    _roles_are_valid,
    _content_is_present,
    calls_have_results,
    functions_follow_their_call,
    ids_are_unique,
    _limits_are_valid,
    _types_are_right,
    _options_are_consistent,
)
