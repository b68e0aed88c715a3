"""What the simulator replies: text, JSON or tool calls by a fixed script, as one answer or as a stream's chunks."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

import msgspec

from proxy.model.lenient_json import Json

TOOL_MODEL = "sim-tools"  # a model whose name holds this calls a tool; with PARALLEL in it, two at once
PARALLEL = "parallel"
PIECE = re.compile(r"\s*\S+")  # a word with the blank before it is a token: near enough, and anybody can count it
DEPTH = 8  # levels of a schema that are filled in
CREATED = 1_700_000_000  # seconds since 1970; the same request gets the same bytes


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a reply; `arguments` are JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply, given `n` times over. `prompt` is in tokens; of the reply, each piece is one."""

    id: str
    model: str
    prompt: int
    n: int = 1
    pieces: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    finish: str = "stop"

    @property
    def usage(self) -> dict[str, Json]:
        """Counts in OpenAI's shape."""
        completion = self.n * (len(self.pieces) + sum(1 + len(PIECE.findall(c.arguments)) for c in self.calls))
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": completion,
            "total_tokens": self.prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        }


def reply_to(body: Mapping[str, Any], prompt: int, text: str = "", finish: str = "") -> Reply:
    """The reply to a lawful request whose prompt has so many tokens: `text` where no tool and no JSON is asked for.

    With `finish` it is empty and ends for that reason.
    """
    seed = zlib.crc32(msgspec.json.encode(body))
    reply = Reply(f"chatcmpl-sim{seed:08x}", body["model"], prompt, body.get("n") or 1)
    if finish:
        return replace(reply, finish=finish)
    called = _called(body)
    if called:
        calls = tuple(
            Call(f"call_{seed:08x}{i}", tool["name"], _json(sample(tool.get("parameters") or {})))
            for i, tool in enumerate(called)
        )
        return replace(reply, calls=calls, finish="tool_calls")
    said = _formatted(body) or text or f"The simulator read {len(body['messages'])} messages, {prompt} tokens."
    pieces = tuple(PIECE.findall(said))
    most = body.get("max_completion_tokens") or body.get("max_tokens") or len(pieces)
    return replace(reply, pieces=pieces[:most], finish="stop" if most >= len(pieces) else "length")


def answer(reply: Reply) -> bytes:
    """The reply as the JSON of one answer."""
    calls = [_call(call) for call in reply.calls]
    message: dict[str, Json] = {"role": "assistant", "content": "".join(reply.pieces) or (None if calls else "")}
    message |= {"refusal": None, "annotations": []} | ({"tool_calls": calls} if calls else {})
    choices = [
        {"index": i, "message": message, "logprobs": None, "finish_reason": reply.finish} for i in range(reply.n)
    ]
    return msgspec.json.encode({**_frame(reply, "chat.completion"), "choices": choices, "usage": reply.usage})


def chunks(reply: Reply, include_usage: bool = False) -> Iterator[bytes]:
    """The reply as server-sent events: role, content, finish reason, usage where it is asked for, [DONE]."""
    frame = _frame(reply, "chat.completion.chunk") | ({"usage": None} if include_usage else {})
    for i in range(reply.n):
        for delta in _deltas(reply):
            yield event({**frame, "choices": [_choice(i, delta, None)]})
        yield event({**frame, "choices": [_choice(i, {}, reply.finish)]})
    if include_usage:
        yield event({**frame, "choices": [], "usage": reply.usage})
    yield b"data: [DONE]\n\n"


def event(data: Json) -> bytes:
    """One server-sent event with JSON as its data."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def sample(schema: Json, root: Json = None, depth: int = DEPTH) -> Json:
    """A value that a JSON schema allows: what it requires and no more."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or not depth:
        return None
    if "$ref" in schema:
        return sample(_found(root, str(schema["$ref"])), root, depth - 1)
    for key in ("enum", "anyOf", "oneOf", "allOf"):
        if schema.get(key):
            first = schema[key][0]
            return first if key == "enum" else sample(first, root, depth - 1)
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type", "object")
    return _of_kind(kind[0] if isinstance(kind, list) and kind else kind, schema, root, depth)


def _of_kind(kind: Json, schema: Mapping[str, Any], root: Json, depth: int) -> Json:
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: sample(properties.get(name), root, depth - 1) for name in schema.get("required") or ()}
    if kind == "array":
        return [sample(schema.get("items"), root, depth - 1)] * min(int(schema.get("minItems") or 0), DEPTH)
    return {
        "string": "sim",
        "integer": schema.get("minimum", 1),
        "number": schema.get("minimum", 1.5),
        "boolean": True,
    }.get(str(kind))


def _found(root: Json, ref: str) -> Json:
    """What "#/$defs/X" points at."""
    for key in ref.removeprefix("#/").split("/"):
        root = root.get(key) if isinstance(root, dict) else None
    return root


def _called(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The functions that the reply calls: a required or named one, or those that the model's name asks for."""
    tools = [
        t["function"]
        for t in body.get("tools") or ()
        if isinstance(t.get("function"), dict) and "name" in t["function"]
    ]
    choice, model = body.get("tool_choice"), body["model"]
    if isinstance(choice, dict):
        named = (choice.get("function") or {}).get("name")
        return [tool for tool in tools if tool["name"] == named]
    asked = TOOL_MODEL in model and body["messages"][-1]["role"] != "tool"  # then it has what it asked for
    if not tools or choice == "none" or not (asked or choice == "required"):
        return []
    many = 2 if PARALLEL in model and body.get("parallel_tool_calls") is not False else 1
    return list(islice(cycle(tools), many))


def _formatted(body: Mapping[str, Any]) -> str:
    """JSON where the request wants nothing else."""
    wanted = body.get("response_format")
    if not isinstance(wanted, dict) or wanted.get("type") not in ("json_object", "json_schema"):
        return ""
    schema = (wanted.get("json_schema") or {}).get("schema")
    return _json(sample(schema) if schema else {})


def _frame(reply: Reply, kind: str) -> dict[str, Json]:
    return {
        "id": reply.id,
        "object": kind,
        "created": CREATED,
        "model": reply.model,
        "service_tier": "default",
        "system_fingerprint": "fp_simulator",
    }


def _deltas(reply: Reply) -> Iterator[dict[str, Json]]:
    """What one choice's chunks bring: a call comes with its name first, then its arguments in parts."""
    yield {"role": "assistant", "content": None if reply.calls else "", "refusal": None}
    for piece in reply.pieces:
        yield {"content": piece}
    for i, call in enumerate(reply.calls):
        yield {"tool_calls": [{"index": i, **_call(replace(call, arguments=""))}]}
        for part in PIECE.findall(call.arguments):
            yield {"tool_calls": [{"index": i, "function": {"arguments": part}}]}


def _call(call: Call) -> dict[str, Json]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _choice(index: int, delta: Json, finish: str | None) -> dict[str, Json]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()
