"""Requests of the Messages API from messages of chat, and its messages as messages of chat again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proxy.model.conversation import Kind, Message

Talk = Sequence[Mapping[str, Any]]
Block = dict[str, Any]
SYSTEM_UID = 1 << 30  # the uid of the top-level system prompt
MIXED = 3  # every so many user messages directly behind results are blocks of the same message


def body(told: Talk, limits: Mapping[str, int], head: Mapping[str, Any], tail: Mapping[str, Any]) -> bytes:
    """The same conversation as a request of the Messages API."""
    system = {"system": told[0]["content"]} if told[0]["role"] == "system" else {}
    limit = {"max_tokens": max(limits.values())} if limits else {}
    messages: list[dict[str, Any]] = []
    for m in told[len(system) :]:
        _add(messages, m)
    messages = messages or [{"role": "user", "content": "hello", "x-uid": len(told)}]  # the API asks for one
    fields = {key: value for key, value in tail.items() if key != "tools"}
    return msgspec.json.encode({**head, **limit, "messages": messages, **system, **fields})


def _add(messages: list[dict[str, Any]], m: Mapping[str, Any]) -> None:
    uid = {"x-uid": m["x-uid"]}
    behind = bool(messages) and messages[-1]["role"] == "user" and _type_of_last(messages[-1]) == "tool_result"
    if m["role"] in ("tool", "function"):
        result = {"type": "tool_result", "tool_use_id": m.get("tool_call_id", "f"), "content": _blocks(m["content"])}
        if behind:
            messages[-1]["content"].append({**result, **uid})
        else:
            messages.append({"role": "user", "content": [{**result, **uid}]})
    elif m["role"] == "assistant":
        calls = [_use(c["id"], c["function"]) for c in m.get("tool_calls") or []]
        calls += [_use("f", m["function_call"])] if "function_call" in m else []
        said = [{"type": "text", "text": m["content"]}] if m["content"] else []
        messages.append({"role": "assistant", **uid, "content": [*said, *calls] if calls else m["content"]})
    elif m["role"] == "system":
        messages.append({"role": "system", **uid, "content": m["content"]})
    elif behind and m["x-uid"] % MIXED == 0:
        messages[-1] = {**messages[-1], "content": [*messages[-1]["content"], *_as_list(m["content"])], **uid}
    else:
        messages.append({**uid, "role": "user", "content": _blocks(m["content"])})


def _type_of_last(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content[-1]["type"] if isinstance(content, list) and content else ""


def _use(ident: str, function: Mapping[str, Any]) -> Block:
    arguments = msgspec.Raw(function["arguments"].encode())  # as the client wrote them
    return {"type": "tool_use", "id": ident, "name": function["name"], "input": arguments}


def _blocks(content: Any) -> Any:
    return _as_list(content) if isinstance(content, list) else content


def _as_list(content: Any) -> list[Block]:
    if not isinstance(content, list):
        return [{"type": "text", "text": content or ""}]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}, "x": 1}
    return [dict(part) if part["type"] == "text" else image for part in content]


def unfold(message: Message) -> list[dict[str, Any]]:
    """A message as messages of chat: each result for itself, then what is said beside them."""
    value = json.loads(message.raw)
    if message.kind is Kind.INSTRUCTION:
        return [{"role": "system", "content": value, "x-uid": SYSTEM_UID}]
    uid = {"x-uid": value["x-uid"]} if "x-uid" in value else {}
    blocks = _as_list(value["content"]) if not isinstance(value["content"], list) else value["content"]
    said = {"role": value["role"], "content": _words(blocks), **uid}
    calls = [{"id": b["id"], "function": {"name": b["name"]}} for b in blocks if b["type"] == "tool_use"]
    results = [
        {"role": "tool", "tool_call_id": b["tool_use_id"], "content": b["content"], "x-uid": b["x-uid"]}
        for b in blocks
        if b["type"] == "tool_result"
    ]
    spoken = len(results) < len(blocks) or not blocks
    return [*results, *([said | ({"tool_calls": calls} if calls else {})] if spoken else [])]


def _words(blocks: Iterable[Mapping[str, Any]]) -> str:
    return "".join(block.get("text", "") for block in blocks)


def frame(message: Message) -> object:
    """Every field but the content with its bytes; the blocks without their texts and inputs."""
    if message.kind is Kind.INSTRUCTION:
        return None
    raws = msgspec.json.decode(message.raw, type=dict[str, msgspec.Raw])
    others = {key: bytes(raw) for key, raw in raws.items() if key != "content"}
    content = json.loads(message.raw)["content"]
    blocks = content if isinstance(content, list) else []
    return list(raws), others, [_bare(block) for block in blocks]


def _bare(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block without texts and input; of a result's blocks those that are no text, as a result may be replaced."""
    inner = block.get("content")
    others = [b for b in inner if b["type"] != "text"] if isinstance(inner, list) else []
    return {**{key: value for key, value in block.items() if key not in ("text", "input", "content")}, "others": others}
