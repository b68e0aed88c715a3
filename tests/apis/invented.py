"""An API that does not exist, to show that nothing depends on chat's JSON: results are entries of the crew's messages,
a call's arguments are an object, and the instructions are a field of the request.

    {"engine": "m", "orders": "...", "cap": 100, "log": [
        {"by": "crew", "entries": [{"kind": "words", "words": "..."}]},
        {"by": "ship", "entries": [{"kind": "use", "ref": "a", "tool": "search", "with": {}}]},
        {"by": "crew", "entries": [{"kind": "outcome", "ref": "a", "says": "..."}, {"kind": "words", "words": "..."}]}]}
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from proxy.model import conversation
from proxy.model.conversation import Attachment, Call, Costs, Edits, Kind, Message, Part, PartKind, Prompt, ReplyLimit
from proxy.model.plan import Plan
from proxy.model.scan import Scan
from proxy.wire.scan import NULL
from tests.apis import invented

WORDS, USE, OUTCOME = "words", "use", "outcome"
PICTURE = b'"picture"'  # an entry whose cost its bytes do not bound
REWRITTEN = 2  # tokens per byte of a call's arguments, at most: they are parsed and written again
Raws = dict[str, msgspec.Raw]
runs = conversation.runs
misplaced = conversation.nowhere_misplaced
without_reasoning = conversation.never_reasoning
detached = conversation.never_detached


class _Entry(msgspec.Struct):
    arguments: msgspec.Raw = msgspec.field(default=NULL, name="with")


class _Logged(msgspec.Struct):
    entries: list[_Entry]


class _Request(msgspec.Struct):
    engine: str
    log: list[_Logged]
    cap: int | None = None


def scan(body: bytes) -> Scan:
    """The model, the reply limit and the byte bound of a request."""
    request = msgspec.json.decode(body, type=_Request)
    written = (memoryview(entry.arguments).nbytes for logged in request.log for entry in logged.entries)
    most = None if PICTURE in body else len(body) + (REWRITTEN - 1) * sum(written)
    return Scan(request.engine, request.cap, False, most, text=body)


def parse(body: bytes, pins: Collection[int] = ()) -> Prompt:
    """The request as a neutral prompt; its orders, if any, are message 0."""
    head = msgspec.json.decode(body, type=Raws)
    orders = [Message(bytes(head["orders"]), "orders", Kind.INSTRUCTION, invented, 0)] if "orders" in head else []
    log = msgspec.json.decode(head["log"], type=list[msgspec.Raw])
    messages = [*orders, *(_message(bytes(raw), i) for i, raw in enumerate(log, len(orders)))]
    ask = json.loads(bytes(head["cap"])) if "cap" in head else None
    fields = {key: bytes(raw) for key, raw in head.items()}
    return Prompt(
        json.loads(fields["engine"]),
        tuple(messages),
        fields,
        ReplyLimit(ask, "cap"),
        pins=frozenset(pins),
        costs=Costs.of(PICTURE in body),
    )


def render(prompt: Prompt, plan: Plan) -> bytes:
    """The JSON of what is to be sent; what no step changed keeps its bytes."""
    draft, fields = plan.draft, dict(prompt.head)
    if draft.model != prompt.model:
        fields["engine"] = json.dumps(draft.model).encode()
    if draft.reply != prompt.reply.limit:
        fields["cap"] = b"%d" % (draft.reply or 0)
    if draft.blocks is not plan.before.blocks:
        sent = list(draft.messages)
        if sent[0].kind is Kind.INSTRUCTION:
            fields["orders"] = sent[0].raw
        fields["log"] = b"[" + b",".join(m.raw for m in sent if m.kind is not Kind.INSTRUCTION) + b"]"
    return b"{" + b",".join(b"%b:%b" % (json.dumps(key).encode(), raw) for key, raw in fields.items()) + b"}"


def parts(message: Message) -> tuple[Part, ...]:
    """The parts of a message, in order."""
    value = json.loads(message.raw)
    if message.kind is Kind.INSTRUCTION:
        return (Part(PartKind.TEXT, value, whole=True),)
    return tuple(part for i, entry in enumerate(value["entries"]) for part in _parts(entry, i))


def edit(message: Message, edits: Edits) -> bytes:
    """The message's JSON with other texts in some of its parts."""
    texts = {part.place: text for part, text in edits}
    if message.kind is Kind.INSTRUCTION:
        return msgspec.json.encode(texts[()])
    fields = msgspec.json.decode(message.raw, type=Raws)
    entries = msgspec.json.decode(fields["entries"])
    for place, text in texts.items():
        _put(entries, place, text)
    return msgspec.json.encode({**fields, "entries": entries})


def attachments(message: Message) -> tuple[Attachment, ...]:
    """The pictures of a message, none like another in it."""
    media = [part for part in parts(message) if part.removable]
    return tuple(Attachment(part, f"picture {i}") for i, part in enumerate(media))


def without_media(message: Message, edits: Edits) -> bytes:
    """The message's JSON with words in place of pictures; without those whose text is empty."""
    fields = json.loads(message.raw)
    for part, text in sorted(edits, key=lambda edit: edit[0].place, reverse=True):
        *way, last = part.place
        entries = fields["entries"]
        for key in way:
            entries = entries[key]
        entries[int(last) : int(last) + 1] = [{"kind": WORDS, WORDS: text}] if text else []
    return msgspec.json.encode(fields)


def with_results(message: Message, calls: Collection[str], text: str) -> bytes:
    """The message's JSON with a text in place of what one call brought."""
    fields = msgspec.json.decode(message.raw, type=Raws)
    entries = msgspec.json.decode(fields["entries"])
    changed = [{**e, "says": text} if e["kind"] == OUTCOME and e["ref"] in calls else e for e in entries]
    return msgspec.json.encode({**fields, "entries": changed})


def join(message: Message, messages: Sequence[Message]) -> bytes | None:
    """The message's JSON with the entries of all these messages."""
    entries = [entry for m in messages for entry in json.loads(m.raw)["entries"]]
    return msgspec.json.encode({**msgspec.json.decode(message.raw, type=Raws), "entries": entries})


def write(text: str) -> bytes:
    """The JSON of a crew's message."""
    return msgspec.json.encode({"by": "crew", "entries": [{"kind": WORDS, WORDS: text}]})


def _message(raw: bytes, index: int) -> Message:
    value = json.loads(raw)
    entries = value["entries"]
    calls = tuple(Call(e["ref"], e["tool"]) for e in entries if e["kind"] == USE)
    answers = tuple(e["ref"] for e in entries if e["kind"] == OUTCOME)
    kind = Kind.ASSISTANT if value["by"] == "ship" else Kind.USER
    if answers and all(e["kind"] == OUTCOME for e in entries):
        kind = Kind.RESULT
    return Message(raw, value["by"], kind, invented, index, calls, answers)


def _parts(entry: Mapping[str, Any], place: int) -> list[Part]:
    match entry["kind"]:
        case "words":
            return [Part(PartKind.TEXT, entry[WORDS], place=(place, WORDS))]
        case "use":
            arguments = msgspec.json.encode(entry["with"]).decode()
            return [Part(PartKind.CALL, arguments, entry["ref"], entry["tool"], (place, "with"))]
        case "outcome" if isinstance(entry["says"], list):
            inner = [part for i, each in enumerate(entry["says"]) for part in _parts(each, i)]
            return [
                Part(
                    PartKind.RESULT if p.kind is PartKind.TEXT else p.kind,
                    p.text,
                    entry["ref"],
                    p.name,
                    (place, "says", *p.place),
                    editable=p.editable,
                    removable=p.removable,
                )
                for p in inner
            ]
        case "outcome":
            return [Part(PartKind.RESULT, entry["says"], entry["ref"], place=(place, "says"))]
    return [Part(PartKind.MEDIA, name=entry["kind"], place=(place,), editable=False, removable=True)]


def _put(entries: Any, place: tuple[str | int, ...], text: str) -> None:
    """Writes a text at its place; arguments are JSON."""
    *way, last = place
    for key in way:
        entries = entries[key]
    entries[last] = json.loads(text) if last == "with" else text
