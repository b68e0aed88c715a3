"""The simulated Chat Completions API: it checks, counts, refuses as its provider does, or replies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from proxy.simulator.api import Held
from proxy.simulator.asgi import EVENT_HEADERS, Response, whole
from proxy.simulator.check import validate
from proxy.simulator.counting import counted
from proxy.simulator.openai_chat import tokenizing
from proxy.simulator.openai_chat.counting import count_prompt
from proxy.simulator.openai_chat.replies import chunks, completion, reply_to
from proxy.simulator.openai_chat.validation import checks_for
from proxy.simulator.openai_server import posted
from proxy.simulator.refusals import chat_format, read_of
from proxy.simulator.replies import event, wants_usage
from proxy.simulator.settings import RecordedRequest, SimulatorConfig

PATHS = re.compile(r"(?:/openai)?/v1/chat/completions|" + "|".join(tokenizing.PATHS))


async def answer(request: RecordedRequest, config: SimulatorConfig, held: Held) -> Response:
    """The response to a request. Raises `ApiError`."""
    raw, body = posted(request)
    if request.path in tokenizing.PATHS:
        return await tokenizing.respond_to(request.path, raw, body, config)
    error = validate(body, checks_for(config.provider, config.system, config.max_output))
    if error is not None:
        raise error
    prompt = await counted(raw, partial(config.count or count_prompt, raw))
    return _complete(body, prompt, config)


def _complete(body: Mapping[str, Any], prompt: int, config: SimulatorConfig) -> Response:
    """The response to a valid request with a prompt of `prompt` tokens."""
    provider = chat_format(config.provider)
    window = config.window_of(body["model"])
    if config.truncates:
        prompt = read_of(prompt, window)
    requested = body.get("max_completion_tokens") or body.get("max_tokens") or 0
    refusal = provider.refusal(window, prompt, requested)
    streams = bool(body.get("stream"))
    if refusal is not None and not provider.finish:
        status, text = config.refusal_status or refusal[0], refusal[1]
        in_stream = streams and config.in_stream
        return Response(200, EVENT_HEADERS, _refusal_stream(text)) if in_stream else whole(status, text)
    reply = reply_to(body, prompt, config.text, provider.finish if refusal else "")
    reply = replace(reply, cached=min(config.cached, prompt))
    if not streams:
        return whole(200, completion(reply))
    return Response(200, EVENT_HEADERS, chunks(reply, wants_usage(body)))


def _refusal_stream(refusal: bytes) -> list[bytes]:
    """A refusal as an event inside a stream, as SGLang sends it."""
    error = msgspec.json.decode(refusal or b"{}")
    return [event(error if "error" in error else {"error": error}), b"data: [DONE]\n\n"]
