"""A chat request as arguments of a translating library, and what it returns as the JSON of chat completions again.

Only what is listed here goes to the library: it takes URLs, keys and callbacks as arguments, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from proxy.model.lenient_json import UNREADABLE

Fields = dict[str, Any]
ARGUMENTS = frozenset(
    {
        *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
        *("max_tokens", "max_completion_tokens", "temperature", "top_p", "n", "stop", "seed"),
        *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"),
        *("response_format", "reasoning_effort", "stream", "stream_options", "user", "modalities", "audio"),
    }
)
# Claude models that think within a budget of tokens, whoever serves them; newer ones choose it themselves. Anthropic
# refuses such a budget in a run of tools that began without thinking, as every run of another model's did, and where
# it is not less than the reply limit.
BUDGETED = re.compile(r"claude-(?:3-7\b|4\b|(?:opus|sonnet|haiku)-4(?:$|[-.@:](?:[0-5]\b|20\d{6}|latest)))")
BUDGETS = {"high": 4096, "medium": 2048, "low": 1024, "minimal": 1024}  # litellm's, in tokens; largest first
LARGER = {"max": 16384, "xhigh": 8192}
TEXT_PARTS = frozenset(("text", "refusal"))
REMOTE = re.compile(r"\s*(?!data:)[^\s,;]{0,40}://")
# The library puts the name into paths of URLs, and of some providers it takes an address instead of a name.
MODEL = re.compile(r"(?!.*(?:https?:|//|\.\.))[\w.:/@+~-]{1,256}", re.ASCII)
SEARCHED = 200  # characters at the beginning of a string in which an address begins
DONE = b"data: [DONE]\n\n"
INVALID, FAILED = "invalid_request_error", "api_error"


class NotTranslatable(Exception):
    """A request that may not be translated. Its text is the reason, without content of the request."""


def arguments(body: bytes) -> Fields:
    """The arguments for a chat request. Raises `NotTranslatable`."""
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE:
        raise NotTranslatable("the body is no valid JSON") from None
    if not isinstance(found, dict) or not isinstance(found.get("messages"), list):
        raise NotTranslatable("the body is no chat request")
    if not isinstance(model := found.get("model"), str):
        raise NotTranslatable("the body has no model")
    if MODEL.fullmatch(model) is None:
        raise NotTranslatable("its model is no name of a model")
    if any(_is_remote(part) for part in _parts(found["messages"])):
        raise NotTranslatable("it has a file or an image by an address or an id: send it in a data: URL")
    if any(not isinstance(tool, dict) or tool.get("type") != "function" for tool in found.get("tools") or ()):
        raise NotTranslatable("it has a tool that is no function")
    if BUDGETED.search(model.lower()):
        found["reasoning_effort"] = _effort(found)
    return {key: value for key, value in found.items() if key in ARGUMENTS and value is not None}


def _effort(found: Fields) -> Any:
    """The `reasoning_effort` that a model with a budget for thinking accepts: the largest one up to what is asked whose
    budget the reply limit leaves; None in a run of tools without thinking."""
    asked, budgets = found.get("reasoning_effort"), {**LARGER, **BUDGETS}
    if not isinstance(asked, str) or asked not in budgets:
        return asked
    if _acts_without_thinking(found["messages"]):
        return None
    limit = found.get("max_completion_tokens") or found.get("max_tokens")
    if not isinstance(limit, int) or budgets[asked] < limit:
        return asked
    return next((effort for effort, budget in budgets.items() if budget < min(limit, budgets[asked])), None)


def _acts_without_thinking(messages: list[Any]) -> bool:
    """Whether the newest message of the assistant calls tools, and no message has thinking of Anthropic's."""
    said = [one for one in messages if isinstance(one, dict) and one.get("role") == "assistant"]
    if any(one.get("thinking_blocks") for one in said):
        return False
    return bool(said) and bool(said[-1].get("tool_calls") or said[-1].get("function_call"))


def _parts(messages: list[Any]) -> Iterator[Fields]:
    """The parts of messages that are no text."""
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") not in TEXT_PARTS:
                yield part


def _is_remote(value: Any) -> bool:
    """Whether a part names something that the library, or its provider, would fetch."""
    if isinstance(value, str):
        return REMOTE.match(value[:SEARCHED]) is not None
    if isinstance(value, dict):
        return "file_id" in value or any(map(_is_remote, value.values()))
    return isinstance(value, list) and any(map(_is_remote, value))


def answer(found: Fields) -> bytes:
    """The JSON of an answer of one piece; fields without a value are left out, but for those of OpenAI's shape."""
    for choice in found.get("choices", ()):
        choice.setdefault("finish_reason", None)
        choice.get("message", {}).setdefault("content", None)
    return _json(found)


def event(found: Fields) -> bytes:
    """The server-sent event of a piece of a stream. That of the usage has no choices, as OpenAI's has none."""
    choices = found.get("choices", [])
    for choice in choices:
        choice.setdefault("finish_reason", None)
    if "usage" in found and not any(choice["finish_reason"] or any(choice["delta"].values()) for choice in choices):
        found = {**found, "choices": []}
    return b"data: " + _json(found) + b"\n\n"


def error(status: int, message: str, code: str | None) -> bytes:
    """The body of an error."""
    kind = INVALID if status < 500 else FAILED
    return _json({"error": {"message": message, "type": kind, "param": None, "code": code}})


def provider_message(text: str) -> str:
    """What a provider said, without what a library puts around it: the message of the JSON in a text, else the text."""
    begins, ends = text.find("{"), text.rfind("}")
    if 0 <= begins < ends:
        try:
            found = msgspec.json.decode(text[begins : ends + 1].encode())
        except msgspec.MsgspecError:
            found = None
        error = found.get("error", found) if isinstance(found, dict) else None
        message = error.get("message") if isinstance(error, dict) else None
        if isinstance(message, str):
            return message
    return text


def _json(found: Fields) -> bytes:
    return msgspec.json.encode(found, enc_hook=str)
