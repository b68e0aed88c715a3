"""What the APIs of Ollama's server share: errors, models that it loads, the types of fields, lines of a stream.

It counts nothing. How a chat or a text is read and answered is in their packages.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.simulator.api import Held
from proxy.simulator.asgi import Response, whole
from proxy.simulator.check import ApiError
from proxy.simulator.json import Json, decode_object
from proxy.simulator.replies import TOKEN, sample
from proxy.simulator.settings import RecordedRequest, SimulatorConfig
from proxy.simulator.shapes import BOOLEAN, INTEGER, NUMBER, OBJECT, TEXT, Shape, wrong_type

LOADED = "loaded"  # what is held: the window that each model was loaded with, by the model's name
LINES = ((b"content-type", b"application/x-ndjson"),)
JSON_HEADERS = ((b"content-type", b"application/json; charset=utf-8"),)
CREATED = "2026-01-01T00:00:00Z"  # constant, so that responses are reproducible
BROKEN = b'{"error":"an error was encountered while running the model"}\n'  # the last line of a stream that fails
DURATIONS = {"total_duration": 3_000, "load_duration": 1_000, "prompt_eval_duration": 1_000, "eval_duration": 1_000}
TOO_LONG_TO_SHIFT = (
    "the prompt is longer than the context length currently available to the model; shorten the prompt, adjust the "
    "context length in settings, or use a model with a longer context length"
)
# The words of Go's decoder, in which Ollama refuses a value of another type: the field's path and its type.
GO = {TEXT: "string", INTEGER: "int", NUMBER: "float64", BOOLEAN: "bool"}
GO_TYPES = {
    "arguments": "api.ToolCallFunctionArguments",
    "messages": "api.Message",
    "tools": "api.Tools",
    "images": "[]api.ImageData",
    "context": "[]int",
}
STRUCTS = {("messages",): "Message", ("messages", "tool_calls", "function"): "ToolCallFunction"}
COMMON = {
    "options": {"num_ctx": INTEGER, "num_predict": INTEGER, "num_keep": INTEGER},
    "format": (TEXT, OBJECT),
    "think": (BOOLEAN, TEXT),
    "keep_alive": (TEXT, NUMBER),
    **dict.fromkeys(("stream", "truncate", "shift"), BOOLEAN),
}


class OllamaError(ApiError):
    """An error in Ollama's shape."""

    def body(self) -> bytes:
        """Its JSON."""
        return msgspec.json.encode({"error": self.message})


def failure(error: ApiError) -> OllamaError:
    """An error of the simulator's in Ollama's shape."""
    return OllamaError(error.status, error.message)


def posted(request: RecordedRequest) -> tuple[bytes, dict[str, Any]]:
    """The decompressed body of a POST that names a model, and its fields. Raises `OllamaError`."""
    if request.method != "POST":
        raise OllamaError(405, "405 method not allowed")
    raw = request.decompressed()
    body = decode_object(raw)
    if body is None:
        raise OllamaError(400, "invalid character in the request's body")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise OllamaError(400, "model is required")
    return raw, body


def load(body: Mapping[str, Any], config: SimulatorConfig, held: Held) -> int:
    """Loads the model as the request says, which replaces what was loaded; returns its window."""
    model = body["model"]
    options = body.get("options") or {}
    window = options.get("num_ctx") or config.window_of(model)
    held[LOADED][model if ":" in model else f"{model}:latest"] = window
    return int(window)


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
    raise wrong_field(".".join((struct, *names)), GO_TYPES.get(names[-1] if names else "", kind))


def check_image(image: Json) -> None:
    """Raises `OllamaError` for an image that is no base64."""
    try:
        base64.b64decode(image, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise OllamaError(400, "illegal base64 data at input byte 0") from None


def wrong_field(field: str, kind: str) -> OllamaError:
    """The error for a field whose value is not of Go's type `kind`."""
    return OllamaError(400, f"json: cannot unmarshal value into Go struct field {field} of type {kind}")


def refusal(prompt: int, window: int) -> str:
    """The text of the error for a prompt that is too long: its runner's own error, as text."""
    said = f"request ({prompt} tokens) exceeds the available context size ({window} tokens), try increasing it"
    error = {"code": 400, "message": said, "type": "exceed_context_size_error", "n_prompt_tokens": prompt}
    return msgspec.json.encode({"error": {**error, "n_ctx": window}}).decode()


def written(body: Mapping[str, Any], text: str) -> tuple[tuple[str, ...], str]:
    """The words of a reply, and why it ended: JSON where the request requires it, else `text`."""
    form = body.get("format")
    content = msgspec.json.encode(sample(form)).decode() if isinstance(form, dict) else "{}" if form else text
    words = TOKEN.findall(content)
    limit = (body.get("options") or {}).get("num_predict")
    size = len(words) if limit is None or limit < 0 else min(limit, len(words))
    return tuple(words[:size]), "stop" if size == len(words) else "length"


def figures(reason: str, prompt: int, size: int) -> dict[str, Json]:
    """The figures at the end of a reply of `size` tokens."""
    first, second, third, last = DURATIONS.items()
    ordered = (first, second, ("prompt_eval_count", prompt), third, ("eval_count", size), last)
    return {"done_reason": reason, **dict(ordered)}


def line(value: Json) -> bytes:
    """A line of a stream."""
    return msgspec.json.encode(value) + b"\n"


def json_response(status: int, value: Json) -> Response:
    """A response of one piece."""
    return whole(status, msgspec.json.encode(value), JSON_HEADERS)
