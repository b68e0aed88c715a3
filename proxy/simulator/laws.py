"""What strict upstreams refuse besides length, as one law a function, in OpenAI's words where it has some."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from proxy.errors import ClientError
from proxy.model.conversation import text_of
from proxy.model.lenient_json import Json
from proxy.simulator.complaints import Body, Law, empty, wrong
from proxy.simulator.pairing import calls_are_answered, functions_follow_their_call, ids_are_unique

ROLES = ("system", "assistant", "user", "function", "tool", "developer")
INSTRUCTIONS = ("system", "developer")
RESULTS = ("tool", "function")
LIMITS = ("max_completion_tokens", "max_tokens")
REASONING = re.compile(r"(?:^|/)(?:o\d|gpt-5)")  # they take max_completion_tokens only
MOST_ANSWERS = 128
SERVERS = ("vllm", "vllm-2026", "sglang")  # they serve a model with its own chat template, and that template's laws
ALTERNATING = re.compile(
    r"mi(?:ni)?stral|mixtral|gemma|llama-?2", re.IGNORECASE
)  # models whose templates have this law


def complaint(body: Body, laws: Sequence[Law]) -> ClientError | None:
    """The first law that a request breaks, as the answer to it."""
    return next((broken for law in laws if (broken := law(body)) is not None), None)


def laws_for(speaks: str, system: str = "", max_output: int | None = None) -> tuple[Law, ...]:
    """What holds for every provider, and what for this one: the strictest that is known of each.

    `system` is a text that a system message must hold, `max_output` the longest reply that a model can write.
    """
    own: dict[str, tuple[Law, ...]] = {
        "openai": (_right_limit,),
        "azure": (_right_limit,),
        "mistral": (_ends_on_user, _no_user_after_tool),
        **dict.fromkeys(SERVERS, (_roles_alternate,)),
    }
    asked: tuple[Law, ...] = (
        lambda body: _system_is_there(body, system),
        lambda body: _within_cap(body, max_output),
    )
    return (*LAWS, *own.get(speaks, ()), *asked)


def _model_is_named(body: Body) -> ClientError | None:
    return None if isinstance(body.get("model"), str) else ClientError(400, "you must provide a model parameter")


def _has_messages(body: Body) -> ClientError | None:
    messages = body.get("messages")
    if messages is None:
        return wrong("Missing required parameter: 'messages'.", "missing_required_parameter", "messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        return wrong("Invalid type for 'messages': expected an array of objects.", "invalid_type", "messages")
    return None if messages else empty("messages")


def _roles_are_known(body: Body) -> ClientError | None:
    for i, message in enumerate(body["messages"]):
        role = message.get("role")
        if role not in ROLES:
            known = ", ".join(f"'{r}'" for r in ROLES)
            return wrong(
                f"Invalid value: '{role}'. Supported values are: {known}.", "invalid_value", f"messages[{i}].role"
            )
    return None


def _nothing_is_empty(body: Body) -> ClientError | None:
    """A tool may have said nothing, and an assistant may only have called; every other message says something."""
    for i, message in enumerate(body["messages"]):
        content, place = message.get("content"), f"messages[{i}].content"
        if message["role"] == "assistant" and any(
            message.get(k) for k in ("tool_calls", "function_call", "refusal", "audio")
        ):
            continue
        if content is None:
            return wrong("Invalid value for 'content': expected a string, got null.", "", place)
        if not isinstance(content, str | list):
            return wrong(
                f"Invalid type for '{place}': expected one of an array of objects or a string.", "invalid_type", place
            )
        if content == []:
            return empty(place)
        if message["role"] not in RESULTS and not text_of(content) and not _has_other_parts(content):
            return wrong("messages: text content blocks must be non-empty", "", place)
    return None


def _has_other_parts(content: Json) -> bool:
    return isinstance(content, list) and any(isinstance(p, dict) and p.get("type") != "text" for p in content)


def _limits_are_counts(body: Body) -> ClientError | None:
    for name in (*LIMITS, "n"):
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            return wrong(
                f"Invalid type for '{name}': expected an integer, but got something else.", "invalid_type", name
            )
        if value < 1:
            return wrong(
                f"Invalid '{name}': integer below minimum value. Expected a value >= 1, but got {value} instead.",
                "integer_below_min_value",
                name,
            )
    if (body.get("n") or 1) > MOST_ANSWERS:
        return wrong(
            "Invalid 'n': integer above maximum value. Expected a value <= 128.", "integer_above_max_value", "n"
        )
    if all(body.get(name) is not None for name in LIMITS):
        text = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        return wrong(text, "invalid_parameter_combination", "max_tokens")
    return None


def _tools_are_objects(body: Body) -> ClientError | None:
    for name in ("tools", "functions"):
        found = body.get(name)
        if found is not None and not (isinstance(found, list) and all(isinstance(tool, dict) for tool in found)):
            return wrong(f"Invalid type for '{name}': expected an array of objects.", "invalid_type", name)
    return None


def _options_go_together(body: Body) -> ClientError | None:
    if body.get("tools") == []:
        return empty("tools")
    if body.get("tool_choice") is not None and not body.get("tools"):
        text = "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."
        return wrong(text, "", "tool_choice")
    if body.get("stream_options") is not None and not body.get("stream"):
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        return wrong(text, "", "stream_options")
    return None


def _right_limit(body: Body) -> ClientError | None:
    if body.get("max_tokens") is None or not REASONING.search(body["model"]):
        return None
    return wrong(
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "unsupported_parameter",
        "max_tokens",
    )


def _ends_on_user(body: Body) -> ClientError | None:
    last = body["messages"][-1]
    if last["role"] in ("user", "tool") or last.get("prefix"):
        return None
    role = last["role"]
    return ClientError(
        400,
        f"Expected last role User or Tool (or Assistant with prefix True) for serving but got {role}",
        "invalid_request_message_order",
        "3230",
    )


def _no_user_after_tool(body: Body) -> ClientError | None:
    roles = [m["role"] for m in body["messages"]]
    if not any(pair == ("tool", "user") for pair in pairwise(roles)):
        return None
    return ClientError(400, "Unexpected role 'user' after role 'tool'", "invalid_request_message_order", "3230")


def _roles_alternate(body: Body) -> ClientError | None:
    """As the templates have it: behind a system message users and answers in turn; calls and results do not count."""
    if not ALTERNATING.search(body["model"]):
        return None
    messages = body["messages"][1 if body["messages"][0]["role"] == "system" else 0 :]
    turns = [m["role"] for m in messages if m["role"] != "tool" and not m.get("tool_calls")]
    if all(role == ("user", "assistant")[place % 2] for place, role in enumerate(turns)):
        return None
    return ClientError(400, "Conversation roles must alternate user/assistant/user/assistant/...", "BadRequestError")


def _system_is_there(body: Body, system: str) -> ClientError | None:
    said = (text_of(m.get("content")) for m in body["messages"] if m["role"] in INSTRUCTIONS)
    if any(system in text for text in said) or not system:
        return None
    return wrong("The system message is not there.", "system_message_missing", "messages")


def _within_cap(body: Body, cap: int | None) -> ClientError | None:
    asked = max((body[name] for name in LIMITS if body.get(name) is not None), default=0)
    if cap is None or asked <= cap:
        return None
    return wrong(
        f"max_tokens is too large: {asked}. This model supports at most {cap} completion tokens, whereas you provided "
        f"{asked}.",
        "invalid_value",
        "max_tokens",
    )


LAWS: tuple[Law, ...] = (
    _model_is_named,
    _has_messages,
    _roles_are_known,
    _nothing_is_empty,
    calls_are_answered,
    functions_follow_their_call,
    ids_are_unique,
    _limits_are_counts,
    _tools_are_objects,
    _options_go_together,
)
