"""The simulator's Ollama: it loads a window, drops without a word what is too long for it, and replies by a fixed
script.

Its parser is its own: a message that the proxy loses or groups wrongly has to show up in the count.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import msgspec

from proxy.simulator.asgi import Response
from proxy.simulator.check import ApiError
from proxy.simulator.json import Json, decode_object
from proxy.simulator.replies import PARALLEL, TOKEN, TOOL_MODEL, sample
from proxy.simulator.settings import RecordedRequest, SimulatorConfig
from proxy.simulator.shapes import BOOLEAN, INTEGER, NUMBER, OBJECT, TEXT, Shape, wrong_type
from proxy.tokens.meter import prompt_tokens

PATH, LOADED_PATH = "/api/chat", "/api/ps"
PATHS = (PATH, LOADED_PATH)
API = "ollama"  # the name of its recipe in `proxy.tokens`
THREAD_MIN_BYTES = 65_536  # smaller bodies are counted in less time than a thread takes to start
LINES = ((b"content-type", b"application/x-ndjson"),)
JSON_HEADERS = ((b"content-type", b"application/json; charset=utf-8"),)
CREATED = "2026-01-01T00:00:00Z"  # constant, so that responses are reproducible
DURATIONS = {"total_duration": 3_000, "load_duration": 1_000, "prompt_eval_duration": 1_000, "eval_duration": 1_000}
TOO_LONG_TO_SHIFT = (
    "the prompt is longer than the context length currently available to the model; shorten the prompt, adjust the "
    "context length in settings, or use a model with a longer context length"
)
# The words of Go's decoder, in which Ollama refuses a value of another type: the field's path and its type.
ARGUMENTS = "api.ToolCallFunctionArguments"

GO = {TEXT: "string", INTEGER: "int", NUMBER: "float64", BOOLEAN: "bool"}
GO_TYPES = {
    "arguments": ARGUMENTS,
    "messages": "api.Message",
    "tools": "api.Tools",
    "images": "[]api.ImageData",
    "context": "[]int",
}
STRUCTS = {("messages",): "Message", ("messages", "tool_calls", "function"): "ToolCallFunction"}
CALL = {"function": {"name": TEXT, "arguments": OBJECT}}
MESSAGE = {
    **dict.fromkeys(("role", "content", "thinking", "tool_name"), TEXT),
    "images": [TEXT],
    "tool_calls": [CALL],
}
FUNCTION = {"name": TEXT, "description": TEXT, "parameters": OBJECT}
COMMON = {
    "options": {"num_ctx": INTEGER, "num_predict": INTEGER, "num_keep": INTEGER},
    "format": (TEXT, OBJECT),
    "think": (BOOLEAN, TEXT),
    "keep_alive": (TEXT, NUMBER),
    **dict.fromkeys(("stream", "truncate", "shift"), BOOLEAN),
}
REQUEST = {**COMMON, "messages": [MESSAGE], "tools": [{"type": TEXT, "function": FUNCTION}]}

Loaded = dict[str, int]  # the window that each model was loaded with


class OllamaError(ApiError):
    """An error in Ollama's shape."""

    def body(self) -> bytes:
        """Its JSON."""
        return msgspec.json.encode({"error": self.message})


def failure(error: ApiError) -> OllamaError:
    """An error of the simulator's in Ollama's shape."""
    return OllamaError(error.status, error.message)


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. `tokens` are the words of its text; `prompt` is in tokens."""

    model: str
    tokens: tuple[str, ...]
    calls: tuple[dict[str, Any], ...]
    thinking: str
    reason: str
    prompt: int


async def answer(request: RecordedRequest, config: SimulatorConfig, loaded: Loaded) -> Response:
    """The response to a request of one of `PATHS`. Raises `ApiError`."""
    if request.path == LOADED_PATH:
        return json_response(200, {"models": [_running(model, window) for model, window in loaded.items()]})
    if request.method != "POST":
        raise OllamaError(405, "405 method not allowed")
    raw = request.decompressed()
    body = decoded(raw)
    check(body)
    window = load(body, config, loaded)
    count = config.count or count_prompt
    prompt = await asyncio.to_thread(count, raw) if len(raw) > THREAD_MIN_BYTES else count(raw)
    if prompt > window:
        if body.get("truncate") is False:
            raise OllamaError(400, refusal(prompt, window))
        prompt = _count(truncated(body, window))
        if prompt > window and body.get("shift") is False:
            raise OllamaError(400, TOO_LONG_TO_SHIFT)
        prompt = prompt if prompt <= window else window // 2
    reply = reply_to(body, prompt, config.text)
    if body.get("stream") is False:
        return json_response(200, whole(reply))
    return Response(200, LINES, failing(lines(reply), config.fail_after))


def decoded(raw: bytes) -> dict[str, Any]:
    """The fields of a request's JSON. Raises `OllamaError`."""
    body = decode_object(raw)
    if body is None:
        raise OllamaError(400, "invalid character in the request's body")
    return body


def load(body: Mapping[str, Any], config: SimulatorConfig, loaded: Loaded) -> int:
    """Loads the model as the request says, which replaces what was loaded; returns its window."""
    model = body["model"]
    options = body.get("options") or {}
    window = options.get("num_ctx") or config.windows.get(model, config.window)
    loaded[model if ":" in model else f"{model}:latest"] = window
    return int(window)


def _running(model: str, window: int) -> dict[str, Json]:
    return {"name": model, "model": model, "size": 1, "size_vram": 1, "context_length": window}


def refusal(prompt: int, window: int) -> str:
    """The text of the error for a prompt that is too long: its runner's own error, as text."""
    said = f"request ({prompt} tokens) exceeds the available context size ({window} tokens), try increasing it"
    error = {"code": 400, "message": said, "type": "exceed_context_size_error", "n_prompt_tokens": prompt}
    return msgspec.json.encode({"error": {**error, "n_ctx": window}}).decode()


def check(body: Mapping[str, Any]) -> None:
    """Raises `OllamaError` for a body of which Ollama's decoder would say that a value has the wrong type."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise OllamaError(400, "model is required")
    if not isinstance(body.get("messages"), list):
        raise _wrong("ChatRequest.messages", "[]api.Message")
    check_types(body, REQUEST, "ChatRequest")
    for message in body["messages"]:
        if message.get("role") not in ("system", "user", "assistant", "tool"):
            raise OllamaError(400, 'role must be one of ["system", "user", "assistant", "tool"]')
        for image in message.get("images") or ():
            check_image(image)


def check_types(body: Mapping[str, Any], shape: Shape, request: str) -> None:
    """Raises `OllamaError` for the first value of a wrong type, in the words of Go's decoder; `request` is the name of
    the type of the request."""
    wrong = wrong_type(body, shape)
    if wrong is None:
        return
    names = [str(key) for key in wrong.place if isinstance(key, str)]
    expected = wrong.shape[0] if isinstance(wrong.shape, tuple) else wrong.shape
    kind = "[]string" if isinstance(expected, list) else GO.get(str(expected), "map[string]interface {}")
    struct = STRUCTS.get(tuple(names[:-1]), request)
    raise _wrong(".".join((struct, *names)), GO_TYPES.get(names[-1] if names else "", kind))


def check_image(image: Json) -> None:
    """Raises `OllamaError` for an image that is no base64."""
    try:
        base64.b64decode(image, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise OllamaError(400, "illegal base64 data at input byte 0") from None


def _wrong(field: str, kind: str) -> OllamaError:
    return OllamaError(400, f"json: cannot unmarshal value into Go struct field {field} of type {kind}")


def count_prompt(body: bytes) -> int:
    """Prompt tokens of a request's JSON."""
    return _count(msgspec.json.decode(body))


def _count(body: Mapping[str, Any]) -> int:
    messages = [[(API, msgspec.json.encode(message))] for message in body["messages"]]
    fields = {key: msgspec.json.encode(value) for key, value in body.items() if key not in ("model", "messages")}
    return prompt_tokens(body["model"], fields, messages, API)


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
    form = body.get("format")
    content = msgspec.json.encode(sample(form)).decode() if isinstance(form, dict) else "{}" if form else text
    words = TOKEN.findall(content or f"The simulator read {len(body['messages'])} messages, {prompt} tokens.")
    limit = (body.get("options") or {}).get("num_predict")
    size = len(words) if limit is None or limit < 0 else min(limit, len(words))
    reason = "stop" if size == len(words) else "length"
    return Reply(body["model"], tuple(words[:size]), (), thinking, reason, prompt)


def _calls(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The calls of a reply, which the model's name selects; after a result it replies with text."""
    functions = [tool["function"] for tool in body.get("tools") or () if (tool.get("function") or {}).get("name")]
    if not functions or TOOL_MODEL not in body["model"] or body["messages"][-1]["role"] == "tool":
        return
    for function in islice(cycle(functions), 2 if PARALLEL in body["model"] else 1):
        yield {"function": {"name": function["name"], "arguments": sample(function.get("parameters") or {}) or {}}}


def whole(reply: Reply) -> dict[str, Json]:
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


def failing(told: Iterator[bytes], after: int | None) -> Iterator[bytes]:
    """The lines of a stream that may break off: after so many, an error is its last one."""
    yield from islice(told, after)
    if after is not None:
        yield line({"error": "an error was encountered while running the model"})


def _part(reply: Reply, message: Mapping[str, Json], *, done: bool = False) -> dict[str, Json]:
    return {"model": reply.model, "created_at": CREATED, "message": message, "done": done}


def _counts(reply: Reply) -> dict[str, Json]:
    return figures(reply.reason, reply.prompt, len(reply.tokens) + len(reply.calls))


def figures(reason: str, prompt: int, size: int) -> dict[str, Json]:
    """The figures at the end of a reply of `size` tokens."""
    counts = {"prompt_eval_count": prompt, "eval_count": size}
    first, second, third, last = DURATIONS.items()
    ordered = (first, second, ("prompt_eval_count", counts["prompt_eval_count"]), third)
    return {"done_reason": reason, **dict(ordered), "eval_count": size, last[0]: last[1]}


def line(value: Json) -> bytes:
    """A line of a stream."""
    return msgspec.json.encode(value) + b"\n"


def json_response(status: int, value: Json) -> Response:
    """A response of one piece."""
    body = msgspec.json.encode(value)
    middle = len(body) // 2  # two chunks, so that `abort_after=1` aborts in the middle
    return Response(status, (*JSON_HEADERS, (b"content-length", b"%d" % len(body))), (body[:middle], body[middle:]))
