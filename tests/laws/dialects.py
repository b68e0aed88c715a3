"""The APIs that the laws run on, and how a law reads their JSON: as messages of chat, whatever the API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.apis.anthropic_messages import request as anthropic_request
from proxy.apis.openai_chat import request
from proxy.model.conversation import Kind, Message, Prompt
from proxy.model.plan import Draft, Plan
from tests.apis import invented
from tests.laws import anthropic

Talk = Sequence[Mapping[str, Any]]
ORDERS = 1 << 30  # the uid of instructions that are a field of the request
MIXED = 3  # every so many user messages directly behind results are entries of the same message


@dataclass(frozen=True, slots=True)
class Dialect:
    """`body`: a request from chat messages, the reply limits by name, and the fields before and behind. `unfold`: a
    message as messages of chat. `frame`: all of a message that no step may change. `changing`: the fields that a plan
    may change.
    """

    name: str
    parse: Callable[..., Prompt]
    render: Callable[[Prompt, Plan], bytes]
    body: Callable[[Talk, Mapping[str, int], Mapping[str, Any], Mapping[str, Any]], bytes]
    unfold: Callable[[Message], list[dict[str, Any]]]
    frame: Callable[[Message], object]
    changing: tuple[str, ...]

    def parsed(self, draft: Draft) -> list[dict[str, Any]]:
        """What a draft would send, as messages of chat."""
        return [unfolded for message in draft.messages for unfolded in self.unfold(message)]


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
DIALECTS = (CHAT, INVENTED, MESSAGES)
