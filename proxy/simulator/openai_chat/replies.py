"""Replies of the Chat Completions API: text, JSON or tool calls, as one response or as a stream of chunks."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from proxy.simulator.json import Json
from proxy.simulator.replies import CREATED, TOKEN, TOOL_MODEL, called, event, goes_on, json_text, sample


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a reply; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply, sent as `n` equal choices. `prompt` is in tokens, `cached` of them were. `tokens` are the words of the
    text."""

    id: str
    model: str
    prompt: int
    n: int = 1
    tokens: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    finish: str = "stop"
    cached: int = 0

    @property
    def usage(self) -> dict[str, Json]:
        """The `usage` object, in OpenAI's shape."""
        completion = self.n * (len(self.tokens) + sum(1 + len(TOKEN.findall(c.arguments)) for c in self.calls))
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": completion,
            "total_tokens": self.prompt + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        }


def reply_to(body: Mapping[str, Any], prompt: int, text: str = "", finish: str = "") -> Reply:
    """The reply to a valid request with a prompt of `prompt` tokens: tool calls or JSON where the request requires
    them, else `text`. With `finish` the reply is empty and has that finish reason.
    """
    seed = zlib.crc32(msgspec.json.encode(body))
    reply = Reply(f"chatcmpl-sim{seed:08x}", body["model"], prompt, body.get("n") or 1)
    if finish:
        return replace(reply, finish=finish)
    functions = _functions_to_call(body)
    if functions:
        calls = tuple(
            Call(f"call_{seed:08x}{i}", tool["name"], _json(sample(tool.get("parameters") or {})))
            for i, tool in enumerate(functions)
        )
        return replace(reply, calls=calls, finish="tool_calls")
    content = _json_content(body) or text or f"The simulator read {len(body['messages'])} messages, {prompt} tokens."
    tokens = tuple(TOKEN.findall(content))
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or len(tokens)
    return replace(reply, tokens=tokens[:limit], finish="stop" if limit >= len(tokens) else "length")


def completion(reply: Reply) -> bytes:
    """The reply as the JSON of a response that is not streamed."""
    calls = [_call(call) for call in reply.calls]
    message: dict[str, Json] = {"role": "assistant", "content": "".join(reply.tokens) or (None if calls else "")}
    message |= {"refusal": None, "annotations": []} | ({"tool_calls": calls} if calls else {})
    choices = [
        {"index": i, "message": message, "logprobs": None, "finish_reason": reply.finish} for i in range(reply.n)
    ]
    return msgspec.json.encode({**_envelope(reply, "chat.completion"), "choices": choices, "usage": reply.usage})


def chunks(reply: Reply, include_usage: bool = False) -> Iterator[bytes]:
    """The reply as server-sent events: role, content, finish reason, usage if requested, [DONE]."""
    envelope = _envelope(reply, "chat.completion.chunk") | ({"usage": None} if include_usage else {})
    for i in range(reply.n):
        for delta in _deltas(reply):
            yield event({**envelope, "choices": [_choice(i, delta, None)]})
        yield event({**envelope, "choices": [_choice(i, {}, reply.finish)]})
    if include_usage:
        yield event({**envelope, "choices": [], "usage": reply.usage})
    yield b"data: [DONE]\n\n"


def _functions_to_call(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The functions that the reply calls: a required or named one, or those that the model's name selects."""
    tools = [
        t["function"]
        for t in body.get("tools") or ()
        if isinstance(t.get("function"), dict) and "name" in t["function"]
    ]
    choice, model = body.get("tool_choice"), body["model"]
    if isinstance(choice, dict):
        named = (choice.get("function") or {}).get("name")
        return [tool for tool in tools if tool["name"] == named]
    last = body["messages"][-1]
    wants_call = TOOL_MODEL in model and (last["role"] != "tool" or goes_on(model, last))
    if not tools or choice == "none" or not (wants_call or choice == "required"):
        return []
    return called(tools, model, body.get("parallel_tool_calls") is not False)


def _json_content(body: Mapping[str, Any]) -> str:
    """JSON where the request's `response_format` requires it, else an empty text."""
    form = body.get("response_format")
    if not isinstance(form, dict):
        return ""
    return json_text(form.get("type"), (form.get("json_schema") or {}).get("schema"))


def _envelope(reply: Reply, kind: str) -> dict[str, Json]:
    return {
        "id": reply.id,
        "object": kind,
        "created": CREATED,
        "model": reply.model,
        "service_tier": "default",
        "system_fingerprint": "fp_simulator",
    }


def _deltas(reply: Reply) -> Iterator[dict[str, Json]]:
    """The deltas of one choice. A call's first delta has its name, the following ones have parts of its arguments."""
    yield {"role": "assistant", "content": None if reply.calls else "", "refusal": None}
    for token in reply.tokens:
        yield {"content": token}
    for i, call in enumerate(reply.calls):
        yield {"tool_calls": [{"index": i, **_call(replace(call, arguments=""))}]}
        for part in TOKEN.findall(call.arguments):
            yield {"tool_calls": [{"index": i, "function": {"arguments": part}}]}


def _call(call: Call) -> dict[str, Json]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _choice(index: int, delta: Json, finish: str | None) -> dict[str, Json]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()
