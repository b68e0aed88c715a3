"""Replies of the Messages API: text, JSON, thinking or tool calls, as one response or as a stream of events."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proxy.simulator.anthropic_messages.context import COMPACTED
from proxy.simulator.anthropic_messages.request import blocks_of
from proxy.simulator.anthropic_messages.thinking import sign
from proxy.simulator.json import Json
from proxy.simulator.replies import TOKEN, TOOL_MODEL, called, goes_on, sample

SUMMARY_TOKENS = 20  # of what a compaction writes
CACHED, WRITTEN = 2, 4  # parts of a prompt with marks: a half of it is read from the cache, a quarter written to it
THOUGHT = "The simulator thinks."


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: its blocks, why it stopped, and the tokens of prompt and reply. `marked`: the prompt has marks of
    caching. `summarised`: tokens that were compacted first. `more`: what else the answer reports."""

    id: str
    model: str
    blocks: tuple[dict[str, Any], ...]
    stop: str
    prompt: int
    completion: int
    marked: bool
    summarised: int = 0
    more: Mapping[str, Json] = field(default_factory=dict)

    def usage(self, output: int) -> dict[str, Json]:
        """The `usage` object. What was cached is not in `input_tokens`."""
        read, written = (self.prompt // CACHED, self.prompt // WRITTEN) if self.marked else (0, 0)
        steps = (("compaction", self.summarised, SUMMARY_TOKENS), ("message", self.prompt, output))
        listed = [{"type": kind, "input_tokens": given, "output_tokens": said} for kind, given, said in steps]
        return {
            **({"iterations": listed} if self.summarised else {}),
            "input_tokens": self.prompt - read - written,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": read,
            "output_tokens": output,
        }


def ident_of(body: Mapping[str, Any]) -> str:
    """The id of the reply to a request."""
    return f"msg_sim{zlib.crc32(msgspec.json.encode(body)):08x}"


def reply_to(body: Mapping[str, Any], prompt: int, text: str = "", room: int | None = None) -> Reply:
    """The reply to a valid request: tool calls or JSON where the request requires them, else `text`. `room`: tokens
    until the window is full, where the reply may end."""
    seed = zlib.crc32(msgspec.json.encode(body))
    blocks: list[dict[str, Any]] = []
    if (body.get("thinking") or {}).get("type") in ("enabled", "adaptive"):
        signature = sign(body, len(body["messages"]), THOUGHT)
        blocks.append({"type": "thinking", "thinking": THOUGHT, "signature": signature})
    calls = _calls(body, seed)
    stop = "tool_use" if calls else "end_turn"
    size = sum(len(TOKEN.findall(str(call["input"]))) for call in calls)
    if not calls:
        words = TOKEN.findall(_json_text(body) or text or f"The simulator read {len(body['messages'])} messages.")
        size = min(len(words), body["max_tokens"], len(words) if room is None else room)
        if size < len(words):
            stop = "max_tokens" if size == body["max_tokens"] else "model_context_window_exceeded"
        blocks += [{"type": "text", "text": "".join(words[:size])}] if size else []
    marked = b'"cache_control"' in msgspec.json.encode(body)
    return Reply(ident_of(body), body["model"], (*blocks, *calls), stop, prompt, size, marked)


def _calls(body: Mapping[str, Any], seed: int) -> list[dict[str, Any]]:
    """The calls of a reply: of a required or named tool, or those that the model's name selects."""
    tools = [tool for tool in body.get("tools") or () if isinstance(tool, dict) and "input_schema" in tool]
    choice, model = body.get("tool_choice") or {}, body["model"]
    last = body["messages"][-1]
    results = any(block.get("type") == "tool_result" for block in blocks_of(last))
    answered = results and not goes_on(model, last)
    if choice.get("type") == "tool":
        tools = [tool for tool in tools if tool.get("name") == choice.get("name")]
    elif choice.get("type") == "none" or not (choice.get("type") == "any" or (TOOL_MODEL in model and not answered)):
        return []
    return [
        {"type": "tool_use", "id": f"toolu_{seed:08x}{i}", "name": tool["name"], "input": sample(tool["input_schema"])}
        for i, tool in enumerate(called(tools, model, not choice.get("disable_parallel_tool_use")))
    ]


def _json_text(body: Mapping[str, Any]) -> str:
    """JSON where the request requires it, else an empty text."""
    form = body.get("output_format") or (body.get("output_config") or {}).get("format") or {}
    return msgspec.json.encode(sample(form["schema"])).decode() if "schema" in form else ""


def message(reply: Reply) -> bytes:
    """The reply as the JSON of a response that is not streamed."""
    return msgspec.json.encode(_envelope(reply, reply.blocks, reply.stop, reply.completion))


def _envelope(reply: Reply, blocks: Json, stop: str | None, output: int) -> dict[str, Json]:
    return {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": reply.usage(output),
        **({} if stop is None else reply.more),
    }


def events(reply: Reply) -> Iterator[bytes]:
    """The reply as server-sent events."""
    yield event("message_start", message=_envelope(reply, [], None, 1))
    yield event("ping")
    for index, block in enumerate(reply.blocks):
        yield event("content_block_start", index=index, content_block=_opened(block))
        for delta in _deltas(block):
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    usage = {"output_tokens": reply.completion}
    yield event("message_delta", delta={"stop_reason": reply.stop, "stop_sequence": None}, usage=usage, **reply.more)
    yield event("message_stop")


def event(kind: str, **fields: Json) -> bytes:
    """One server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


def _opened(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block as its first event has it: without what its deltas bring."""
    empty: dict[str, Any] = {"text": "", "thinking": "", "signature": "", "input": {}, "content": None}
    return {key: empty.get(key, value) for key, value in block.items()}


def _deltas(block: Mapping[str, Any]) -> Iterator[dict[str, Json]]:
    if block["type"] == "thinking":
        yield {"type": "thinking_delta", "thinking": block["thinking"]}
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif block["type"] == "tool_use":
        for part in TOKEN.findall(msgspec.json.encode(block["input"]).decode()):
            yield {"type": "input_json_delta", "partial_json": part}
    elif block["type"] == COMPACTED:
        yield {"type": "compaction_delta", "content": block["content"], "signature": block["signature"]}
    else:
        for word in TOKEN.findall(block["text"]):
            yield {"type": "text_delta", "text": word}
