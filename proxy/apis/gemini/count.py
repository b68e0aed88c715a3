"""The proxy's own calls of Gemini's countTokens: a chat request as the prompt that Gemini's own API counts.

Instructions and tools are counted only as parts of a whole request (`generateContentRequest`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from proxy.model.lenient_json import UNREADABLE, Json, mapping, read_text, string
from proxy.wire.counters import NotCountable

INSTRUCTIONS, RESULTS = ("system", "developer"), ("tool", "function")
DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,", re.ASCII)
Parts = list[dict[str, Any]]


def body(model: str, head: Mapping[str, bytes]) -> bytes:
    """The body of a count for a chat request with these top-level fields. Raises `NotCountable`."""
    try:
        messages = msgspec.json.decode(head.get("messages", b""), type=list[dict[str, Any]])
        tools = msgspec.json.decode(head.get("tools", b"null"), type=list[dict[str, Any]] | None)
    except UNREADABLE:
        raise NotCountable("it cannot be decoded") from None
    request: dict[str, Any] = {"model": "models/" + model.rpartition("/")[2], "contents": _contents(messages)}
    if instructions := [part for m in messages if m.get("role") in INSTRUCTIONS for part in _parts(m.get("content"))]:
        request["systemInstruction"] = {"parts": instructions}
    if tools:
        request["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in tools]}]
    return msgspec.json.encode({"generateContentRequest": request})


def _contents(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The turns: results are a user's."""
    names: dict[str, str] = {}
    found: list[dict[str, Any]] = []
    for message in messages:
        role = message.get("role")
        if role in INSTRUCTIONS:
            continue
        if role in RESULTS:
            name = string(message.get("name")) or names.get(string(message.get("tool_call_id")), "unknown")
            answer = {"result": "".join(part.get("text", "") for part in _parts(message.get("content")))}
            parts: Parts = [{"functionResponse": {"name": name, "response": answer}}]
        else:
            parts = [*_parts(message.get("content")), *_calls(message.get("tool_calls"), names)]
        found.append({"role": "model" if role == "assistant" else "user", "parts": parts or [{"text": ""}]})
    return found


def _parts(content: Json) -> Parts:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"text": content}]
    if not isinstance(content, list):
        raise NotCountable("a message has no text")
    return [_part(mapping(part)) for part in content]


def _part(part: Mapping[str, Json]) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"text": string(part.get("text"))}
    url = string(mapping(part.get("image_url")).get("url"))
    if part.get("type") == "image_url" and (found := DATA.match(url)):
        return {"inlineData": {"mimeType": found[1], "data": url[found.end() :]}}
    raise NotCountable("a part is neither a text nor an image with its data")


def _calls(calls: Json, names: dict[str, str]) -> Parts:
    """The calls of a message; `names` gets the name of each."""
    found: Parts = []
    for call in calls if isinstance(calls, list) else ():
        called = mapping(mapping(call).get("function"))
        name, given = string(called.get("name")), read_text(string(called.get("arguments")))
        names[string(mapping(call).get("id"))] = name
        found.append({"functionCall": {"name": name, "args": given if isinstance(given, dict) else {"text": given}}})
    return found


def _declaration(tool: Mapping[str, Json]) -> dict[str, Any]:
    described = mapping(tool.get("function"))
    if tool.get("type") != "function" or not described:
        raise NotCountable("a tool is no function")
    keys = (("name", "name"), ("description", "description"), ("parameters", "parametersJsonSchema"))
    return {new: described[old] for old, new in keys if described.get(old) is not None}
