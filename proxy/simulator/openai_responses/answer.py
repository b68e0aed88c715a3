"""The simulated Responses API: /v1/responses, and its endpoints that count and compact."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from proxy.simulator.api import Held
from proxy.simulator.asgi import EVENT_HEADERS, Response, whole
from proxy.simulator.check import ApiError, validate
from proxy.simulator.counting import counted
from proxy.simulator.openai_responses import replies
from proxy.simulator.openai_responses.context import COMPACTED_TOKENS, compaction, compacts, truncated
from proxy.simulator.openai_responses.counting import count_prompt
from proxy.simulator.openai_responses.items import items_of
from proxy.simulator.openai_responses.validation import checks
from proxy.simulator.openai_server import posted
from proxy.simulator.refusals import chat_format, read_of
from proxy.simulator.settings import RecordedRequest, SimulatorConfig

COUNT, COMPACT = "/input_tokens", "/compact"
PATHS = re.compile(rf"/(?:v1|openai|openai/v1)/responses(?:{COUNT}|{COMPACT})?")
IN_STREAM = ("openai", "openai-old")  # they refuse a stream after its first events, and count the prompt alone
TOO_LONG = "context_length_exceeded"
MAX_STORED = 1_000
STORED = "responses"  # what is held: tokens of stored responses, with all that they followed, by id


async def answer(request: RecordedRequest, config: SimulatorConfig, held: Held) -> Response:
    """The response to a request. Raises `ApiError`."""
    raw, body = posted(request)
    stored = held[STORED]
    counting = request.path.endswith(COUNT)
    error = validate(body, checks(config.provider, config.owner, counting))
    if error is not None:
        raise error
    prompt = await _counted(raw, body, config) + (0 if config.forgets else _before(body, stored))
    if counting:
        return _whole(200, {"object": "response.input_tokens", "input_tokens": prompt})
    shorter = compacts(body, prompt)
    prompt = COMPACTED_TOKENS if shorter else _as_read(body, prompt, config)
    refusal = _refusal(body, prompt, config)
    if refusal is not None:
        return refusal
    if request.path.endswith(COMPACT):
        return _whole(200, _compacted(body, prompt, config.owner))
    reply = replies.reply_to(body, prompt, config.text, config.owner)
    if shorter:
        reply = replace(reply, items=(compaction(config.owner), *reply.items))
    if body.get("store") is not False:
        if len(stored) >= MAX_STORED:
            stored.clear()
        stored[reply.id] = prompt + int(reply.usage["output_tokens"])
    if not body.get("stream"):
        return _whole(200, replies.response(reply))
    return Response(200, EVENT_HEADERS, replies.events(reply))


def _as_read(body: Mapping[str, Any], prompt: int, config: SimulatorConfig) -> int:
    """Tokens of a prompt that the model reads, where the server cuts what is too long."""
    window = config.window_of(body["model"])
    if config.truncates:
        return read_of(prompt, window)
    if body.get("truncation") == "auto" and prompt > window and config.count is None:
        return truncated(body, window, count_prompt)
    return prompt


async def _counted(raw: bytes, body: Mapping[str, Any], config: SimulatorConfig) -> int:
    if config.count is not None:
        return config.count(raw)
    return await counted(raw, partial(count_prompt, body))


def _before(body: Mapping[str, Any], stored: Mapping[str, int]) -> int:
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
    window = config.window_of(body["model"])
    found = chat_format("openai" if ours else config.provider).refusal(
        window, prompt, 0 if ours else body.get("max_output_tokens") or 0
    )
    if found is None:
        return None
    status, text = config.refusal_status or found[0], found[1]
    if not ours:
        return whole(status, text)
    message = msgspec.json.decode(text)["error"]["message"]
    if body.get("stream"):
        events = replies.refusal_events(body, TOO_LONG, message, config.refusal_event)
        return Response(200, EVENT_HEADERS, events)
    error = {"message": message, "type": "invalid_request_error", "param": "input", "code": TOO_LONG}
    return _whole(status, {"error": error})


def _compacted(body: Mapping[str, Any], prompt: int, owner: str) -> Mapping[str, Any]:
    """The user's messages, and one item that stands for all."""
    kept = [item for _, kind, item in items_of(body) if kind == "message" and item["role"] == "user"]
    usage = {"input_tokens": prompt, "output_tokens": COMPACTED_TOKENS, "total_tokens": prompt + COMPACTED_TOKENS}
    output = [*kept, compaction(owner)]
    return {"id": "resp_sim_compact", "object": "response.compaction", "output": output, "usage": usage}


def _whole(status: int, value: Mapping[str, Any]) -> Response:
    return whole(status, msgspec.json.encode(value))
