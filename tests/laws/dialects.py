"""The APIs that the laws run on, and how a law reads their JSON: as messages of chat, whatever the API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.apis.anthropic_messages import request as anthropic_request
from proxy.apis.ollama import request as ollama_request
from proxy.apis.openai_chat import request
from proxy.apis.openai_responses import request as responses
from proxy.model.conversation import Kind, Message, Prompt
from proxy.model.plan import Draft, Plan
from tests.apis import invented
from tests.laws import anthropic, ollama

Talk = Sequence[Mapping[str, Any]]
ORDERS = 1 << 30  # the uid of instructions that are a field of the request
MIXED = 3  # every so many user messages directly behind results are entries of the same message


@dataclass(frozen=True, slots=True)
class Dialect:
    """`body`: a request from chat messages, the reply limits by name, and the fields before and behind. `unfold`: a
    message as messages of chat. `frame`: all of a message that no step may change. `changing`: the fields that a plan
    may change. `gathered`: calls that are messages of their own, put together as chat has them. `added`: fields that
    are written where a plan changes something.
    """

    name: str
    parse: Callable[..., Prompt]
    render: Callable[[Prompt, Plan], bytes]
    body: Callable[[Talk, Mapping[str, int], Mapping[str, Any], Mapping[str, Any]], bytes]
    unfold: Callable[[Message], list[dict[str, Any]]]
    frame: Callable[[Message], object]
    changing: tuple[str, ...]
    gathered: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = list
    added: tuple[str, ...] = ()

    def parsed(self, draft: Draft) -> list[dict[str, Any]]:
        """What a draft would send, as messages of chat."""
        return self.gathered([unfolded for message in draft.messages for unfolded in self.unfold(message)])


def chat_body(told: Talk, limits: Mapping[str, int], head: Mapping[str, Any], tail: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({**head, "messages": told, **limits, **tail})


def chat_frame(message: Message) -> object:
    """Every field but content and calls with its bytes; parts that are no text; calls without their arguments."""
    raws = msgspec.json.decode(message.raw, type=dict[str, msgspec.Raw])
    fields = json.loads(message.raw)
    parts = fields["content"] if isinstance(fields["content"], list) else []
    calls = [
        {**c, "function": {**c["function"], "arguments": type(c["function"]["arguments"])}}
        for c in fields.get("tool_calls") or []
    ]
    others = {key: bytes(raw) for key, raw in raws.items() if key not in ("content", "tool_calls")}
    return list(raws), others, [part for part in parts if part["type"] != "text"], calls


def invented_body(told: Talk, limits: Mapping[str, int], head: Mapping[str, Any], tail: Mapping[str, Any]) -> bytes:
    """The same conversation in the invented API. Instructions that do not come first are the crew's words."""
    orders = {"orders": told[0]["content"]} if told[0]["role"] == "system" else {}
    cap = {"cap": max(limits.values())} if limits else {}
    log: list[dict[str, Any]] = []
    for m in told[len(orders) :]:
        _add(log, m)
    return msgspec.json.encode({"x-first": 1.50, "engine": head["model"], **orders, "log": log, **cap, "x-last": "é"})


def _add(log: list[dict[str, Any]], m: Mapping[str, Any]) -> None:
    uid = {"x-uid": m["x-uid"]}
    behind = bool(log) and log[-1]["entries"][-1]["kind"] == invented.OUTCOME
    if m["role"] in ("tool", "function"):
        entry = {"kind": invented.OUTCOME, "ref": m.get("tool_call_id", "f"), "says": _entries_or_text(m["content"])}
        if behind:
            log[-1]["entries"].append({**entry, **uid})
        else:
            log.append({"by": "crew", "entries": [{**entry, **uid}]})
    elif m["role"] == "assistant":
        calls = [_use(c["id"], c["function"]) for c in m.get("tool_calls") or []]
        calls += [_use("f", m["function_call"])] if "function_call" in m else []
        log.append({"by": "ship", **uid, "entries": [*_entries(m["content"]), *calls]})
    elif behind and m["x-uid"] % MIXED == 0:
        log[-1] = {**log[-1], "entries": [*log[-1]["entries"], *_entries(m["content"])], **uid}
    else:
        log.append({**uid, "by": "crew", "entries": _entries(m["content"])})


def _use(ref: str, function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = msgspec.Raw(function["arguments"].encode())  # as the client wrote them
    return {"kind": invented.USE, "ref": ref, "tool": function["name"], "with": arguments}


def _entries(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, list):
        return [{"kind": invented.WORDS, invented.WORDS: content or ""}]
    return [
        {"kind": invented.WORDS, invented.WORDS: part["text"]}
        if part["type"] == "text"
        else {"kind": "picture", "x": 1}
        for part in content
    ]


def _entries_or_text(content: Any) -> Any:
    return _entries(content) if isinstance(content, list) else content


def invented_unfold(message: Message) -> list[dict[str, Any]]:
    """A message as messages of chat: each result for itself, then what is said beside them."""
    value = json.loads(message.raw)
    if message.kind is Kind.INSTRUCTION:
        return [{"role": "system", "content": value, "x-uid": ORDERS}]
    uid = {"x-uid": value["x-uid"]} if "x-uid" in value else {}
    entries = value["entries"]
    said = {"role": "assistant" if value["by"] == "ship" else "user", "content": _words(entries), **uid}
    calls = [{"id": e["ref"], "function": {"name": e["tool"]}} for e in entries if e["kind"] == invented.USE]
    results = [
        {"role": "tool", "tool_call_id": e["ref"], "content": e["says"], "x-uid": e["x-uid"]}
        for e in entries
        if e["kind"] == invented.OUTCOME
    ]
    spoken = len(results) < len(entries) or not entries
    return [*results, *([said | ({"tool_calls": calls} if calls else {})] if spoken else [])]


def _words(entries: Iterable[Mapping[str, Any]]) -> str:
    return "".join(e.get(invented.WORDS, "") for e in entries)


def invented_frame(message: Message) -> object:
    """Every field but the entries with its bytes; the entries without texts and arguments."""
    if message.kind is Kind.INSTRUCTION:
        return None
    raws = msgspec.json.decode(message.raw, type=dict[str, msgspec.Raw])
    entries = json.loads(message.raw)["entries"]
    texts = (invented.WORDS, "says", "with")
    others = {key: bytes(raw) for key, raw in raws.items() if key != "entries"}
    return list(raws), others, [{k: v for k, v in e.items() if k not in texts} for e in entries]


def responses_body(told: Talk, limits: Mapping[str, int], head: Mapping[str, Any], tail: Mapping[str, Any]) -> bytes:
    """The same conversation in the Responses API: calls and results are items. The first item of a message has its
    uid."""
    orders = {"instructions": told[0]["content"]} if told[0]["role"] == "system" else {}
    cap = {"max_output_tokens": max(limits.values())} if limits else {}
    items: list[dict[str, Any]] = []
    for m in told[len(orders) :]:
        found = _items(m, items)
        items += [{"x-uid": m["x-uid"], **found[0]}, *({**item, "x-more": 1} for item in found[1:])]
    rest = {"tools": [{"type": "function", "name": "search", "parameters": None}], "stream": tail.get("stream", False)}
    return msgspec.json.encode({"x-first": 1.50, **head, **orders, "input": items, **cap, **rest, "x-last": "é"})


def _items(m: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if m["role"] in ("tool", "function"):
        ident = m.get("tool_call_id") or (before[-1].get("call_id", "f") if before else "f")
        return [{"type": "function_call_output", "call_id": ident, "output": _listed(m["content"], "input_text")}]
    calls = m.get("tool_calls") or []
    found = [{"type": "function_call", "call_id": c["id"], **c["function"]} for c in calls]
    if "function_call" in m:
        found = [{"type": "function_call", "call_id": f"f{m['x-uid']}", **m["function_call"]}]
    if found and not m["content"]:
        return found
    kind = "output_text" if m["role"] == "assistant" else "input_text"
    return [{"role": m["role"], "content": _listed(m["content"], kind)}, *found]


def _listed(content: Any, kind: str) -> Any:
    if not isinstance(content, list):
        return content
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "x-part": 1}
    return [{**part, "type": kind} if part["type"] == "text" else image for part in content]


def responses_unfold(message: Message) -> list[dict[str, Any]]:
    """An item as a message of chat."""
    value = json.loads(message.raw)
    if isinstance(value, str):
        return [{"role": "system", "content": value, "x-uid": ORDERS}]
    uid = {"x-uid": value["x-uid"]} if "x-uid" in value else {}
    if value.get("type") == "function_call":
        return [{"role": "assistant", "content": None, "tool_calls": [{"id": value["call_id"]}], **uid}]
    if value.get("type") == "function_call_output":
        return [{"role": "tool", "tool_call_id": value["call_id"], "content": value["output"], **uid}]
    return [{"role": value["role"], "content": value["content"], **uid}]


def responses_gathered(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls next to each other as one message: those without a uid are of the message before them."""
    found: list[dict[str, Any]] = []
    for m in told:
        if m.get("tool_calls") and "x-uid" not in m:
            found[-1] = {**found[-1], "tool_calls": [*found[-1].get("tool_calls", []), *m["tool_calls"]]}
        else:
            found.append(m)
    return found


def responses_frame(message: Message) -> object:
    """Every field but content, output and arguments with its bytes; parts that are no text."""
    value = json.loads(message.raw)
    if isinstance(value, str):
        return None
    raws = msgspec.json.decode(message.raw, type=dict[str, msgspec.Raw])
    texts = ("content", "output", "arguments")
    parts = [part for key in texts if isinstance(value.get(key), list) for part in value[key] if "text" not in part]
    return list(raws), {key: bytes(raw) for key, raw in raws.items() if key not in texts}, parts


CHAT = Dialect(
    "chat",
    request.parse,
    request.render,
    chat_body,
    lambda message: [json.loads(message.raw)],
    chat_frame,
    ("model", "messages", "max_tokens", "max_completion_tokens"),
)
INVENTED = Dialect(
    "invented",
    invented.parse,
    invented.render,
    invented_body,
    invented_unfold,
    invented_frame,
    ("engine", "orders", "log", "cap"),
)
MESSAGES = Dialect(
    "messages",
    anthropic_request.parse,
    anthropic_request.render,
    anthropic.body,
    anthropic.unfold,
    anthropic.frame,
    ("model", "messages", "system", "max_tokens"),
)
RESPONSES = Dialect(
    "responses",
    responses.parse,
    responses.render,
    responses_body,
    responses_unfold,
    responses_frame,
    ("model", "instructions", "input", "max_output_tokens"),
    responses_gathered,
)
OLLAMA = Dialect(
    "ollama",
    ollama_request.parse,
    ollama_request.render,
    ollama.body,
    ollama.unfold,
    ollama.frame,
    ("model", "messages", "options"),
    added=("truncate",),
)
DIALECTS = (CHAT, INVENTED, MESSAGES, OLLAMA, RESPONSES)
