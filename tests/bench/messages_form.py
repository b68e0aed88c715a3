"""Chat conversations in the form of the Messages API, and back: recorded runs of agents are measured on both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]


def request(messages: Sequence[Message], model: str, max_tokens: int, tools: Sequence[Message] = ()) -> dict[str, Any]:
    """The body of POST /v1/messages for a chat conversation; leading system messages become the `system` field."""
    lead = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
    system = "\n\n".join(_text(m["content"]) for m in messages[:lead])
    written: list[dict[str, Any]] = []
    for m in messages[lead:]:
        _add(written, m)
    body: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "messages": written}
    if system:
        body["system"] = system
    if tools:
        body["tools"] = [_tool(tool["function"]) for tool in tools]
    return body


def conversation(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a body of POST /v1/messages as messages of chat."""
    system = _text(body.get("system", ""))
    told = [{"role": "system", "content": system}] if system else []
    return [*told, *(chat for m in body["messages"] for chat in _unfolded(m))]


def _add(written: list[dict[str, Any]], m: Message) -> None:
    """Adds a message; results of one turn are blocks of one user message."""
    if m["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": m["tool_call_id"], "content": _text(m["content"])}
        if written and _is_result(written[-1]):
            written[-1]["content"].append(result)
        else:
            written.append({"role": "user", "content": [result]})
    elif m.get("tool_calls"):
        said = [{"type": "text", "text": _text(m["content"])}] if _text(m.get("content")) else []
        written.append({"role": "assistant", "content": [*said, *map(_use, m["tool_calls"])]})
    else:
        role = "assistant" if m["role"] == "assistant" else "user"
        written.append({"role": role, "content": _text(m["content"]) or "..."})  # the API refuses an empty text


def _is_result(message: Message) -> bool:
    content = message["content"]
    return isinstance(content, list) and content[-1]["type"] == "tool_result"


def _use(call: Message) -> dict[str, Any]:
    function = call["function"]
    return {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments(function["arguments"])}


def arguments(text: str) -> dict[str, Any]:
    """The arguments as the object that the API asks for."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = text
    return found if isinstance(found, dict) else {"arguments": found}


def _tool(function: Message) -> dict[str, Any]:
    found = {"name": function["name"], "input_schema": function.get("parameters") or {"type": "object"}}
    return {**found, "description": function["description"]} if function.get("description") else found


def _unfolded(m: Message) -> list[dict[str, Any]]:
    """A message as messages of chat: each result for itself, then what is said beside them."""
    content = m["content"] if isinstance(m["content"], list) else [{"type": "text", "text": m["content"]}]
    results = [
        {"role": "tool", "tool_call_id": b["tool_use_id"], "content": _text(b["content"])}
        for b in content
        if b["type"] == "tool_result"
    ]
    calls = [
        {"id": b["id"], "type": "function", "function": {"name": b["name"], "arguments": json.dumps(b["input"])}}
        for b in content
        if b["type"] == "tool_use"
    ]
    said = "".join(b.get("text", "") for b in content)
    if len(results) == len(content):
        return results
    return [*results, {"role": m["role"], "content": said, **({"tool_calls": calls} if calls else {})}]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""
