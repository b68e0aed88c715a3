"""The simulated Messages API: it checks, counts, refuses as Anthropic does, or replies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from proxy.simulator.anthropic_messages.context import COMPACTED, Read, as_read, compaction
from proxy.simulator.anthropic_messages.counting import count_prompt
from proxy.simulator.anthropic_messages.replies import SUMMARY_TOKENS, Reply, event, events, ident_of, message, reply_to
from proxy.simulator.anthropic_messages.request import AnthropicError, Request
from proxy.simulator.anthropic_messages.thinking import transformations
from proxy.simulator.anthropic_messages.threads import THREADS, Threads, continued, hold
from proxy.simulator.anthropic_messages.validation import validate
from proxy.simulator.api import Held
from proxy.simulator.asgi import EVENT_HEADERS, JSON_HEADERS, Response, failing, whole
from proxy.simulator.counting import counted
from proxy.simulator.json import decode_object
from proxy.simulator.refusals import chat_format, read_of
from proxy.simulator.settings import RecordedRequest, SimulatorConfig

PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"
MAX_BYTES = 32 << 20  # of a request
PATHS = re.compile(f"{PATH}|{COUNT_PATH}")
REQUEST_ID = (b"request-id", b"req_simulator")
OVERLOADED = {"type": "overloaded_error", "message": "Overloaded"}
COMPATIBLE = ("bedrock", "vllm", "vllm-2026", "llamacpp", "sglang")  # servers with errors of their own
LONG_BETA = "context-1m-"  # makes the windows of these models longer, ...
LONG_MODEL = re.compile(r"sonnet-4(?:-5|-2\d{7}|-0)?(?!-?\d)")
LONGER = 5  # ... so many times


async def answer(request: RecordedRequest, config: SimulatorConfig, held: Held) -> Response:
    """The response to a request. Raises `ApiError`."""
    threads = held[THREADS]
    if request.method != "POST":
        raise AnthropicError(405, "Method Not Allowed")
    if config.api_key and config.api_key.encode() not in _keys(request):
        raise AnthropicError(401, "invalid x-api-key")
    if request.header(b"anthropic-version") is None:
        raise AnthropicError(400, "anthropic-version: header is required")
    raw = request.decompressed()
    if len(raw) > MAX_BYTES:
        raise AnthropicError(413, "Request exceeds the maximum size")
    body = decode_object(raw)
    if body is None:
        raise AnthropicError(400, "The request body is not valid JSON")
    if body.get("thread"):
        body = continued(body, threads)
        raw = msgspec.json.encode(body)
    counting = request.path == COUNT_PATH
    betas = tuple((request.header(b"anthropic-beta") or b"").decode("latin-1").replace(" ", "").split(","))
    version = (request.header(b"anthropic-version") or b"").decode("latin-1")
    asked = Request(body, betas, config.max_output, counting, version)
    error = validate(asked)
    if error is not None:
        raise error
    read = await _read(raw, body, config)
    if counting:
        managed = {"context_management": {"original_input_tokens": read.original}} if read.managed else {}
        return _json(msgspec.json.encode({"input_tokens": read.prompt, **managed}))
    return _complete(asked, read, config, threads)


async def _read(raw: bytes, body: Mapping[str, Any], config: SimulatorConfig) -> Read:
    """What the model reads of a request."""
    if config.count is not None:
        tokens = config.count(raw)
        return Read(body, tokens, tokens)

    def count(shown: Mapping[str, Any]) -> int:
        return count_prompt(raw if shown is body else msgspec.json.encode(shown))

    return await counted(raw, partial(as_read, body, count))


def _keys(request: RecordedRequest) -> tuple[bytes, ...]:
    """The keys that a client sent, in either header."""
    bearer = (request.header(b"authorization") or b"").removeprefix(b"Bearer ")
    return request.header(b"x-api-key") or b"", bearer


def _complete(asked: Request, read: Read, config: SimulatorConfig, threads: Threads) -> Response:
    """The response to a valid request."""
    body, model, separate = asked.body, asked.model, asked.separate
    window = config.window_of(model)
    if LONG_MODEL.search(model) and asked.may(LONG_BETA):
        window = LONGER * window
    prompt = SUMMARY_TOKENS if read.compacts and not read.ends else read.prompt
    if config.truncates:
        prompt = read_of(prompt, window)
    refusal = _refusal(body, prompt, window, separate, config)
    if refusal is not None:
        return refusal
    if read.ends:
        reply = Reply(ident_of(body), model, (compaction(),), COMPACTED, prompt, SUMMARY_TOKENS, False)
    else:
        reply = reply_to(body, prompt, config.text, window - prompt if separate else None)
    if read.compacts and not read.ends:
        reply = replace(reply, blocks=(compaction(), *reply.blocks), summarised=read.prompt)
    edits = {"context_management": {"applied_edits": list(read.edits)}} if read.managed else {}
    dropped = transformations(body)
    reply = replace(reply, more={**edits, **({"input_transformations": dropped} if dropped else {})})
    hold(body, reply.id, reply.blocks, threads)
    if body.get("stream"):
        return _stream(failing(events(reply), config.fail_after, event("error", error=OVERLOADED)))
    return _json(message(reply))


def _refusal(
    body: Mapping[str, Any], prompt: int, window: int, separate: bool, config: SimulatorConfig
) -> Response | None:
    """The refusal of a prompt that is too long. Raises `AnthropicError`; servers with an envelope of their own
    answer."""
    own = config.provider in COMPATIBLE
    reply = 0 if separate and not own else body["max_tokens"]
    refusal = chat_format(config.provider if own else "anthropic").refusal(window, prompt, reply)
    if refusal is None:
        return None
    status, text = refusal
    if own:
        return _json(text, status)
    error = AnthropicError(status, msgspec.json.decode(text)["error"]["message"])
    if not (config.in_stream and body.get("stream")):
        raise error
    return _stream([event("error", error=msgspec.json.decode(error.body())["error"])])


def _json(body: bytes, status: int = 200) -> Response:
    return whole(status, body, (*JSON_HEADERS, REQUEST_ID))


def _stream(chunks: Iterable[bytes]) -> Response:
    return Response(200, (*EVENT_HEADERS, REQUEST_ID), chunks)
