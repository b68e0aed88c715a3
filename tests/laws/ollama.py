"""Requests of Ollama's API from messages of chat, and its messages as messages of chat again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.model.conversation import Message

Talk = Sequence[Mapping[str, Any]]
IMAGE = "iVBORw0KGgo="


def body(told: Talk, limits: Mapping[str, int], head: Mapping[str, Any], tail: Mapping[str, Any]) -> bytes:
    """The same conversation as a request of Ollama's API. Ids stand in keys that Ollama does not know."""
    limit = {"num_predict": max(limits.values())} if limits else {}
    options = {"options": {"temperature": 0.50, **limit}} if limits else {}
    fields = {key: value for key, value in tail.items() if key not in ("tools", "response_format")}
    return msgspec.json.encode({**head, "messages": [_message(m) for m in told], **options, **fields})


def _message(m: Mapping[str, Any]) -> dict[str, Any]:
    content = m["content"]
    parts = content if isinstance(content, list) else []
    text = "".join(p["text"] for p in parts if p["type"] == "text") if parts else content or ""
    images = [IMAGE for p in parts if p["type"] != "text"]
    found: dict[str, Any] = {"x-uid": m["x-uid"], "role": m["role"], "content": text}
    if m["role"] in ("tool", "function"):
        found |= {"role": "tool", "x-ref": m.get("tool_call_id", "f")}
    calls = [_call(c["id"], c["function"]) for c in m.get("tool_calls") or []]
    calls += [_call("f", m["function_call"])] if "function_call" in m else []
    return found | ({"tool_calls": calls} if calls else {}) | ({"images": images} if images else {})


def _call(ref: str, function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = msgspec.Raw(function["arguments"].encode())  # as the client wrote them
    return {"x-ref": ref, "function": {"name": function["name"], "arguments": arguments}}


def unfold(message: Message) -> list[dict[str, Any]]:
    """A message as one of chat, with the ids of the client."""
    value = json.loads(message.raw)
    found = {"role": value["role"], "content": value["content"]}
    found |= {"x-uid": value["x-uid"]} if "x-uid" in value else {}
    calls = [{"id": c["x-ref"], "function": {"name": c["function"]["name"]}} for c in value.get("tool_calls", [])]
    found |= {"tool_call_id": value["x-ref"]} if value["role"] == "tool" else {}
    return [found | ({"tool_calls": calls} if calls else {})]


def frame(message: Message) -> object:
    """Every field but the content with its bytes; calls without their arguments."""
    raws = msgspec.json.decode(message.raw, type=dict[str, msgspec.Raw])
    calls = json.loads(message.raw).get("tool_calls", [])
    bare = [{**c, "function": {**c["function"], "arguments": None}} for c in calls]
    return list(raws), {key: bytes(raw) for key, raw in raws.items() if key not in ("content", "tool_calls")}, bare
