"""The simulator's /api/generate of Ollama: texts, context, images; it discards what is too long without a word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
)
from proxy.simulator.settings import RecordedRequest, SimulatorConfig
from proxy.simulator.shapes import BOOLEAN, INTEGER, TEXT
from proxy.tokens.meter import prompt_tokens

PATHS = re.compile("/api/generate")
RECIPE = "generate"  # its name in `proxy.tokens`
READ = ("system", "context", "prompt", "suffix")  # what the model reads, in its order
REQUEST = {
    **COMMON,
    **dict.fromkeys(("model", "prompt", "suffix", "system", "template"), TEXT),
    "context": [INTEGER],
    "images": [TEXT],
    "raw": BOOLEAN,
}
NO_INSERT = "plain"  # models with this in their names cannot continue a text before a suffix


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: the words of its text, its thinking, why it ended. `prompt` is in tokens; `context` None in raw
    mode."""

    model: str
    tokens: tuple[str, ...]
    thinking: str
    reason: str
    prompt: int
    context: tuple[int, ...] | None


async def answer(request: RecordedRequest, config: SimulatorConfig, held: Held) -> Response:
    """The response to a request. Raises `ApiError`."""
    raw, body = posted(request)
    check(body)
    window = load(body, config, held)
    if not body.get("prompt"):
        reason = "unload" if body.get("keep_alive") == 0 else "load"
        return json_response(200, {**_part(body["model"], ""), "done": True, "done_reason": reason})
    prompt = await counted(raw, partial(config.count or count_prompt, raw))
    if prompt > window:
        if body.get("truncate") is False:
            raise OllamaError(400, refusal(prompt, window))
        if body.get("shift") is False:
            raise OllamaError(400, TOO_LONG_TO_SHIFT)
        prompt = window // 2
    reply = reply_to(body, prompt, config.text)
    if body.get("stream") is False:
        return json_response(200, {**_part(reply.model, "".join(reply.tokens), reply.thinking), **_last(reply)})
    return Response(200, LINES, failing(lines(reply), config.fail_after, BROKEN))


def check(body: Mapping[str, Any]) -> None:
    """Raises `OllamaError` for a request that Ollama refuses."""
    check_types(body, REQUEST, "GenerateRequest")
    if body.get("raw") and any(body.get(key) for key in ("template", "system", "context")):
        raise OllamaError(400, "raw mode does not support template, system, or context")
    if body.get("suffix") and NO_INSERT in body["model"]:
        raise OllamaError(400, f"registry.ollama.ai/library/{body['model']} does not support insert")
    for image in body.get("images") or ():
        check_image(image)


def count_prompt(body: bytes) -> int:
    """Prompt tokens of a request's JSON."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    texts = [[(name, msgspec.json.encode(fields[name]))] for name in READ if fields.get(name)]
    others = {key: msgspec.json.encode(value) for key, value in fields.items() if key not in ("model", "prompt")}
    return prompt_tokens(fields["model"], others, texts, RECIPE)


def reply_to(body: Mapping[str, Any], prompt: int, text: str = "") -> Reply:
    """The reply to a valid request: JSON where the request requires it, else `text`."""
    words, reason = written(body, text or f"The simulator read {prompt} tokens.")
    context = None if body.get("raw") else (*(body.get("context") or ()), *range(1, 1 + len(body["prompt"].split())))
    thinking = "The simulator thinks." if body.get("think") else ""
    return Reply(body["model"], words, thinking, reason, prompt, context)


def lines(reply: Reply) -> Iterator[bytes]:
    """The reply as lines of JSON."""
    if reply.thinking:
        yield line({**_part(reply.model, "", reply.thinking), "done": False})
    for token in reply.tokens:
        yield line({**_part(reply.model, token), "done": False})
    yield line({**_part(reply.model, ""), **_last(reply)})


def _part(model: str, text: str, thinking: str = "") -> dict[str, Json]:
    part: dict[str, Json] = {"model": model, "created_at": CREATED, "response": text}
    return {**part, "thinking": thinking} if thinking else part


def _last(reply: Reply) -> dict[str, Json]:
    """What ends a reply: the context for the next request, and the figures."""
    context = {} if reply.context is None else {"context": list(reply.context)}
    counts = figures(reply.reason, reply.prompt, len(reply.tokens))
    return {"done": True, "done_reason": counts.pop("done_reason"), **context, **counts}
