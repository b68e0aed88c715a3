"""The simulator's Ollama: it loads a window, drops without a word what is too long for it, and replies by a fixed
script.

Its parser is its own: a message that the proxy loses or groups wrongly has to show up in the count.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from proxy.simulator.api import Held
from proxy.simulator.asgi import Response, failing
from proxy.simulator.counting import counted
from proxy.simulator.json import Json
from proxy.simulator.ollama_server import (
    BROKEN,
    COMMON,
    CREATED,
    LINES,
    LOADED,
    TOO_LONG_TO_SHIFT,
    OllamaError,
    check_image,
    check_types,
    figures,
    json_response,
    line,
    load,
    posted,
    refusal,
    written,
    wrong_field,
)
from proxy.simulator.replies import TOOL_MODEL, called, sample
from proxy.simulator.settings import RecordedRequest, SimulatorConfig
from proxy.simulator.shapes import OBJECT, TEXT
from proxy.tokens.meter import prompt_tokens

PATH, LOADED_PATH = "/api/chat", "/api/ps"
PATHS = re.compile(f"{PATH}|{LOADED_PATH}")
RECIPE = "ollama"  # its name in `proxy.tokens`
CALL = {"function": {"name": TEXT, "arguments": OBJECT}}
MESSAGE = {
    **dict.fromkeys(("role", "content", "thinking", "tool_name"), TEXT),
    "images": [TEXT],
    "tool_calls": [CALL],
}
FUNCTION = {"name": TEXT, "description": TEXT, "parameters": OBJECT}
REQUEST = {**COMMON, "messages": [MESSAGE], "tools": [{"type": TEXT, "function": FUNCTION}]}


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. `tokens` are the words of its text; `prompt` is in tokens."""

    model: str
    tokens: tuple[str, ...]
    calls: tuple[dict[str, Any], ...]
    thinking: str
    reason: str
    prompt: int


async def answer(request: RecordedRequest, config: SimulatorConfig, held: Held) -> Response:
    """The response to a request. Raises `ApiError`."""
    if request.path == LOADED_PATH:
        return json_response(200, {"models": [_running(model, window) for model, window in held[LOADED].items()]})
    raw, body = posted(request)
    check(body)
    window = load(body, config, held)
    prompt = await counted(raw, partial(config.count or count_prompt, raw))
    if prompt > window:
        if body.get("truncate") is False:
            raise OllamaError(400, refusal(prompt, window))
        prompt = _count(truncated(body, window))
        if prompt > window and body.get("shift") is False:
            raise OllamaError(400, TOO_LONG_TO_SHIFT)
        prompt = prompt if prompt <= window else window // 2
    reply = reply_to(body, prompt, config.text)
    if body.get("stream") is False:
        return json_response(200, response(reply))
    return Response(200, LINES, failing(lines(reply), config.fail_after, BROKEN))


def _running(model: str, window: int) -> dict[str, Json]:
    return {"name": model, "model": model, "size": 1, "size_vram": 1, "context_length": window}


def check(body: Mapping[str, Any]) -> None:
    """Raises `OllamaError` for a body of which Ollama's decoder would say that a value has the wrong type."""
    if not isinstance(body.get("messages"), list):
        raise wrong_field("ChatRequest.messages", "[]api.Message")
    check_types(body, REQUEST, "ChatRequest")
    for message in body["messages"]:
        if message.get("role") not in ("system", "user", "assistant", "tool"):
            raise OllamaError(400, 'role must be one of ["system", "user", "assistant", "tool"]')
        for image in message.get("images") or ():
            check_image(image)


def count_prompt(body: bytes) -> int:
    """Prompt tokens of a request's JSON."""
    return _count(msgspec.json.decode(body))


def _count(body: Mapping[str, Any]) -> int:
    messages = [[(RECIPE, msgspec.json.encode(message))] for message in body["messages"]]
    fields = {key: msgspec.json.encode(value) for key, value in body.items() if key not in ("model", "messages")}
    return prompt_tokens(body["model"], fields, messages, RECIPE)


def truncated(body: Mapping[str, Any], window: int) -> dict[str, Any]:
    """The request that the model reads of one that is too long: whole messages go from the front, whether or not they
    answer each other; system messages and the last message stay."""
    told: Sequence[Any] = body["messages"]

    def shorter(start: int) -> dict[str, Any]:
        return {**body, "messages": [m for i, m in enumerate(told) if i >= start or m["role"] == "system"]}

    starts = range(len(told) - 1)  # the later the start, the fewer tokens
    return shorter(bisect_left(starts, True, key=lambda start: _count(shorter(start)) <= window))


def reply_to(body: Mapping[str, Any], prompt: int, text: str = "") -> Reply:
    """The reply to a valid request: tool calls or JSON where the request requires them, else `text`."""
    thinking = "The simulator thinks." if body.get("think") else ""
    calls = tuple(_calls(body))
    if calls:
        return Reply(body["model"], (), calls, thinking, "stop", prompt)
    words, reason = written(body, text or f"The simulator read {len(body['messages'])} messages, {prompt} tokens.")
    return Reply(body["model"], words, (), thinking, reason, prompt)


def _calls(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The calls of a reply, which the model's name selects; after a result it replies with text."""
    functions = [tool["function"] for tool in body.get("tools") or () if (tool.get("function") or {}).get("name")]
    if not functions or TOOL_MODEL not in body["model"] or body["messages"][-1]["role"] == "tool":
        return
    for function in called(functions, body["model"]):
        yield {"function": {"name": function["name"], "arguments": sample(function.get("parameters") or {}) or {}}}


def response(reply: Reply) -> dict[str, Json]:
    """The reply as a response of one piece."""
    message: dict[str, Json] = {"role": "assistant", "content": "".join(reply.tokens)}
    if reply.thinking:
        message["thinking"] = reply.thinking
    if reply.calls:
        message["tool_calls"] = list(reply.calls)
    return {**_part(reply, message, done=True), **_counts(reply)}


def lines(reply: Reply) -> Iterator[bytes]:
    """The reply as lines of JSON."""
    if reply.thinking:
        yield line(_part(reply, {"role": "assistant", "content": "", "thinking": reply.thinking}))
    for token in reply.tokens:
        yield line(_part(reply, {"role": "assistant", "content": token}))
    if reply.calls:
        yield line(_part(reply, {"role": "assistant", "content": "", "tool_calls": list(reply.calls)}))
    yield line({**_part(reply, {"role": "assistant", "content": ""}, done=True), **_counts(reply)})


def _part(reply: Reply, message: Mapping[str, Json], *, done: bool = False) -> dict[str, Json]:
    return {"model": reply.model, "created_at": CREATED, "message": message, "done": done}


def _counts(reply: Reply) -> dict[str, Json]:
    return figures(reply.reason, reply.prompt, len(reply.tokens) + len(reply.calls))
