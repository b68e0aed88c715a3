"""The simulated Responses API: /v1/responses, and its endpoints that count and compact."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from proxy.simulator import responses_replies as replies
from proxy.simulator.asgi import Headers, Response
from proxy.simulator.check import ApiError
from proxy.simulator.refusals import chat_format, read_of
from proxy.simulator.responses_context import COMPACTED_TOKENS, compaction, compacts, truncated
from proxy.simulator.responses_items import items_of
from proxy.simulator.responses_validation import checks
from proxy.simulator.settings import SimulatorConfig
from proxy.simulator.validation import validate
from proxy.tokens.meter import prompt_tokens

API = "responses"
PATHS = ("/v1/responses", "/openai/v1/responses", "/openai/responses")
COUNT, COMPACT = "/input_tokens", "/compact"
THREAD_MIN_BYTES = 65_536  # smaller bodies are counted in less time than a thread takes to start
JSON: Headers = ((b"content-type", b"application/json"),)
EVENTS: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))
IN_STREAM = ("openai", "openai-old")  # they refuse a stream after its first events, and count the prompt alone
TOO_LONG = "context_length_exceeded"
# What encrypted content costs, by its length, as the usage of recorded requests shows.
FREE, RATE, LEAST, STORED = 880, 0.144, 10, 200
REREADS = ("gpt-5.6", "gpt-5.7", "gpt-5.8", "gpt-5.9", "gpt-6")  # models that read all reasoning, not only the newest
MAX_STORED = 1_000

Stored = dict[str, int]  # tokens of stored responses, with all that they followed, by id


def serves(path: str) -> bool:
    """Whether a path is one of this API."""
    return any(path in (base, base + COUNT, base + COMPACT) for base in PATHS)


async def respond_to(
    path: str, raw: bytes, body: Mapping[str, Any], config: SimulatorConfig, stored: Stored
) -> Response:
    """The response to a request. Raises `ApiError`."""
    counting = path.endswith(COUNT)
    error = validate(body, checks(config.provider, config.owner, counting))
    if error is not None:
        raise error
    prompt = await _counted(raw, body, config) + (0 if config.forgets else _before(body, stored))
    if counting:
        return _json(200, {"object": "response.input_tokens", "input_tokens": prompt})
    shorter = compacts(body, prompt)
    prompt = COMPACTED_TOKENS if shorter else _as_read(body, prompt, config)
    refusal = _refusal(body, prompt, config)
    if refusal is not None:
        return refusal
    if path.endswith(COMPACT):
        return _json(200, _compacted(body, prompt, config.owner))
    reply = replies.reply_to(body, prompt, config.text, config.owner)
    if shorter:
        reply = replace(reply, items=(compaction(config.owner), *reply.items))
    if body.get("store") is not False:
        if len(stored) >= MAX_STORED:
            stored.clear()
        stored[reply.id] = prompt + int(reply.usage["output_tokens"])
    if not body.get("stream"):
        return _json(200, replies.response(reply))
    return Response(200, EVENTS, replies.events(reply))


def _as_read(body: Mapping[str, Any], prompt: int, config: SimulatorConfig) -> int:
    """Tokens of a prompt that the model reads, where the server cuts what is too long."""
    window = config.windows.get(body["model"], config.window)
    if config.truncates:
        return read_of(prompt, window)
    if body.get("truncation") == "auto" and prompt > window and config.count is None:
        return truncated(body, window, count_prompt)
    return prompt


async def _counted(raw: bytes, body: Mapping[str, Any], config: SimulatorConfig) -> int:
    if config.count is not None:
        return config.count(raw)
    if len(raw) > THREAD_MIN_BYTES:
        return await asyncio.to_thread(count_prompt, body)
    return count_prompt(body)


def count_prompt(body: Mapping[str, Any]) -> int:
    """Prompt tokens of a request, without what it refers to."""
    model = body["model"]
    items = [item for _, _, item in items_of(body)]
    newest = max((i for i, item in enumerate(items) if item.get("type") == "compaction"), default=0)
    items = items[newest:]
    asked = max((i for i, item in enumerate(items) if item.get("role") == "user"), default=-1)
    read = -1 if model.startswith(REREADS) else asked
    hidden = sum(_hidden(item) for i, item in enumerate(items) if i > read or item.get("type") == "compaction")
    given = [body["instructions"]] if body.get("instructions") else []
    raws = [("", msgspec.json.encode(item)) for item in (*given, *items)]
    fields = {key: msgspec.json.encode(value) for key, value in body.items() if key not in ("input", "instructions")}
    return hidden + prompt_tokens(model, fields, [raws] if raws else [], API)


def _hidden(item: Mapping[str, Any]) -> int:
    """Tokens of encrypted content."""
    if item.get("type") not in ("reasoning", "compaction") or item.get("content"):
        return 0
    size = len(item.get("encrypted_content") or "")
    return max(LEAST, round(RATE * (size - FREE))) if size else STORED


def _before(body: Mapping[str, Any], stored: Stored) -> int:
    """Tokens of the stored response that a request goes on from. Raises `ApiError` for one that is not stored."""
    ident = body.get("previous_response_id")
    if not ident:
        return 0
    if ident not in stored:
        text = f"Previous response with id '{ident}' not found."
        raise ApiError(400, text, code="previous_response_not_found", param="previous_response_id")
    return stored[ident]


def _refusal(body: Mapping[str, Any], prompt: int, config: SimulatorConfig) -> Response | None:
    """The refusal of a prompt that is too long, in a stream where the provider refuses there."""
    ours = config.provider in IN_STREAM
    window = config.windows.get(body["model"], config.window)
    found = chat_format("openai" if ours else config.provider).refusal(
        window, prompt, 0 if ours else body.get("max_output_tokens") or 0
    )
    if found is None:
        return None
    status, text = config.refusal_status or found[0], found[1]
    if not ours:
        return _json(status, None, text)
    message = msgspec.json.decode(text)["error"]["message"]
    if body.get("stream"):
        ident = f"resp_sim{zlib.crc32(msgspec.json.encode(body)):08x}"
        return Response(200, EVENTS, replies.refusal_events(ident, body, TOO_LONG, message, config.refusal_event))
    error = {"message": message, "type": "invalid_request_error", "param": "input", "code": TOO_LONG}
    return _json(status, {"error": error})


def _compacted(body: Mapping[str, Any], prompt: int, owner: str) -> Mapping[str, Any]:
    """The user's messages, and one item that stands for all."""
    kept = [item for _, kind, item in items_of(body) if kind == "message" and item["role"] == "user"]
    usage = {"input_tokens": prompt, "output_tokens": COMPACTED_TOKENS, "total_tokens": prompt + COMPACTED_TOKENS}
    output = [*kept, compaction(owner)]
    return {"id": "resp_sim_compact", "object": "response.compaction", "output": output, "usage": usage}


def _json(status: int, value: Any, raw: bytes = b"") -> Response:
    encoded = raw if value is None else msgspec.json.encode(value)
    middle = len(encoded) // 2  # two chunks, so that a response can be aborted in the middle
    chunks: Iterable[bytes] = (encoded[:middle], encoded[middle:])
    return Response(status, (*JSON, (b"content-length", b"%d" % len(encoded))), chunks)
