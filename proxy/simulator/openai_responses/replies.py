"""The simulator's replies in the Responses API, as one response or as a stream of events. It uses the script of
`proxy.simulator.openai_chat.replies`; the same request always gets the same bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.simulator.json import Json
from proxy.simulator.openai_responses.items import items_of, listed
from proxy.simulator.openai_responses.stored import seal
from proxy.simulator.replies import CREATED, TOKEN, TOOL_MODEL, called, goes_on, json_text, sample

# The events that a refusal may be; an error's fields stand in the event itself, or in one of its fields.
FAILED, FLAT, NESTED = "response.failed", "error", "error.nested"
REFUSAL_EVENTS = (FAILED, FLAT, NESTED)
REASONING_MODEL = "sim-reasons"  # a model whose name contains this reasons before it replies
SECRET_SIZE = 1_205  # characters of what it encrypts of its reasoning


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. `items` are its output, `tokens` the words of its text."""

    id: str
    body: Mapping[str, Any]
    prompt: int
    items: tuple[Mapping[str, Any], ...]
    tokens: tuple[str, ...] = ()
    cut: bool = False

    @property
    def usage(self) -> dict[str, Json]:
        """The `usage` object."""
        written = len(self.tokens) + sum(
            1 + len(TOKEN.findall(str(item.get("arguments", "")))) for item in self.items if "call_id" in item
        )
        return {
            "input_tokens": self.prompt,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.prompt + written,
        }


def reply_to(body: Mapping[str, Any], prompt: int, text: str = "", owner: str = "simulator") -> Reply:
    """The reply to a valid request with a prompt of `prompt` tokens: reasoning where the model's name asks for it, then
    tool calls or JSON where the request requires them, else `text`. `owner`: who encrypts."""
    seed = _seed(body)
    reasons = REASONING_MODEL in body["model"]
    stem = seed + ("r" if reasons else "")
    items: list[Mapping[str, Any]] = [_reasoning(stem, body, owner)] if reasons else []
    ident = f"resp_sim{seed}"
    tools = _tools_to_call(body)
    if tools:
        items += [_call(stem, i, tool) for i, tool in enumerate(tools, 1)]
        return Reply(ident, body, prompt, tuple(items))
    said = _json_text(body) or text or f"The simulator read {len(items_of(body))} items, {prompt} tokens."
    tokens = tuple(TOKEN.findall(said))
    limit = body.get("max_output_tokens") or len(tokens)
    return Reply(ident, body, prompt, (*items, _message(stem, tokens[:limit])), tokens[:limit], limit < len(tokens))


def response(reply: Reply) -> dict[str, Json]:
    """The reply as a response object."""
    status = "incomplete" if reply.cut else "completed"
    why = {"reason": "max_output_tokens"} if reply.cut else None
    found = {**envelope(reply.id, reply.body), "status": status, "incomplete_details": why}
    return {**found, "output": list(reply.items), "usage": reply.usage}


def events(reply: Reply) -> Iterator[bytes]:
    """The reply as server-sent events."""
    told = [*_opening(reply.id, reply.body)]
    for place, item in enumerate(reply.items):
        told += _item_events(place, item, reply.tokens)
    name = "response.incomplete" if reply.cut else "response.completed"
    return _numbered([*told, {"type": name, "response": response(reply)}])


def refusal_events(body: Mapping[str, Any], code: str, message: str, kind: str = FAILED) -> Iterator[bytes]:
    """A refusal as OpenAI sends it in a stream: after events that look like any response's. `kind`: its event, one of
    `REFUSAL_EVENTS`."""
    ident, error = f"resp_sim{_seed(body)}", {"code": code, "message": message}
    if kind == NESTED:
        told: dict[str, Json] = {"type": "error", "error": {"type": "invalid_request_error", **error, "param": "input"}}
    elif kind == FLAT:
        told = {"type": "error", **error, "param": "input"}
    else:
        told = {"type": FAILED, "response": {**envelope(ident, body), "status": "failed", "error": error}}
    return _numbered([*_opening(ident, body), told])


def _seed(body: Mapping[str, Any]) -> str:
    """What the ids of the response to a request are made of."""
    return f"{zlib.crc32(msgspec.json.encode(body)):08x}"


def envelope(ident: str, body: Mapping[str, Any]) -> dict[str, Json]:
    """The fields of a response object that repeat the request."""
    return {
        "id": ident,
        "object": "response",
        "created_at": CREATED,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": body["model"],
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "store": body.get("store") is not False,
        "temperature": 1.0,
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "metadata": body.get("metadata") or {},
    }


def _opening(ident: str, body: Mapping[str, Any]) -> list[dict[str, Json]]:
    begun = envelope(ident, body)
    names = ("response.created", *(("response.queued",) if body.get("background") else ()), "response.in_progress")
    return [{"type": name, "response": begun} for name in names]


def _numbered(told: Sequence[Mapping[str, Json]]) -> Iterator[bytes]:
    for number, data in enumerate(told):
        encoded = msgspec.json.encode({**data, "sequence_number": number})
        yield b"event: %b\ndata: %b\n\n" % (str(data["type"]).encode(), encoded)


def _item_events(place: int, item: Mapping[str, Any], tokens: Sequence[str]) -> Iterator[dict[str, Json]]:
    where = {"output_index": place}
    begun = {**item, **({"content": []} if item["type"] == "message" else {}), "status": "in_progress"}
    if item["type"] == "function_call":
        begun["arguments"] = ""
    yield {"type": "response.output_item.added", **where, "item": begun}
    inside = {**where, "item_id": item["id"]}
    if item["type"] == "function_call":
        for part in TOKEN.findall(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **inside, "delta": part}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **inside, **done}
    if item["type"] == "message":
        yield from _text_events({**inside, "content_index": 0}, item["content"][0], tokens)
    yield {"type": "response.output_item.done", **where, "item": item}


def _text_events(
    where: Mapping[str, Json], part: Mapping[str, Any], tokens: Sequence[str]
) -> Iterator[dict[str, Json]]:
    yield {"type": "response.content_part.added", **where, "part": {**part, "text": ""}}
    for token in tokens:
        yield {"type": "response.output_text.delta", **where, "delta": token, "logprobs": []}
    yield {"type": "response.output_text.done", **where, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **where, "part": part}


def _reasoning(stem: str, body: Mapping[str, Any], owner: str) -> Mapping[str, Any]:
    item: dict[str, Any] = {"id": f"rs_{stem}_0", "type": "reasoning", "summary": []}
    if "reasoning.encrypted_content" in (body.get("include") or ()):
        item["encrypted_content"] = seal(item["id"], owner, SECRET_SIZE)
    return item


def _message(stem: str, tokens: Sequence[str]) -> Mapping[str, Any]:
    part = {"type": "output_text", "text": "".join(tokens), "annotations": [], "logprobs": []}
    fixed = {"type": "message", "role": "assistant", "status": "completed"}
    return {"id": f"msg_{stem}_9", **fixed, "content": [part]}


def _call(stem: str, place: int, tool: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = msgspec.json.encode(sample(tool.get("parameters") or {})).decode()
    fixed = {"type": "function_call", "status": "completed", "name": tool["name"], "arguments": arguments}
    return {"id": f"fc_{stem}_{place}", "call_id": f"call_{stem}{place}", **fixed}


def _tools_to_call(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The functions that the reply calls: a required or named one, or those that the model's name selects."""
    tools = [tool for tool in listed(body.get("tools")) if tool.get("type") == "function" and "name" in tool]
    choice, model = body.get("tool_choice"), body["model"]
    if isinstance(choice, dict):
        return [tool for tool in tools if tool["name"] == choice.get("name")]
    items = items_of(body)
    ended = bool(items) and items[-1][1].endswith("_output") and not goes_on(model, dict(items[-1][2]))
    if not tools or choice == "none" or not (choice == "required" or (TOOL_MODEL in model and not ended)):
        return []
    return called(tools, model, body.get("parallel_tool_calls") is not False)


def _json_text(body: Mapping[str, Any]) -> str:
    """JSON where the request's `text.format` requires it, else an empty text."""
    form = (body.get("text") or {}).get("format")
    if not isinstance(form, dict):
        return ""
    return json_text(form.get("type"), form.get("schema"))
