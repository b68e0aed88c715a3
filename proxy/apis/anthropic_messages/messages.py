"""The parts of a message of the Messages API: finds them in its JSON, writes other texts into it (a `MessageFormat`).

The top-level `system` is a message whose JSON is the field's value, a text or a list of blocks. Every other message is
an object with a text or a list of blocks as its content.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.model import conversation
from proxy.model.conversation import TEXTS, Attachment, Edits, Kind, Message, Part, PartKind
from proxy.model.lenient_json import BROKEN, RAWS, Json, compact, mapping, string
from proxy.wire import media as wire_media

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
CONTENT, TEXT, INPUT, SOURCE, DATA = "content", "text", "input", "source", "data"
TOOL_USE, TOOL_RESULT = "tool_use", "tool_result"
DOCUMENT, SEARCH_RESULT = "document", "search_result"
REASONING = ("thinking", "redacted_thinking")
IMAGE = "image"
MEDIA = (IMAGE, "container_upload")
ATTACHED = (IMAGE, DOCUMENT)  # an upload for the tools of the provider is not read by the model
TEXT_SOURCES = {"text": DATA, "content": CONTENT}  # kinds of a document's source that are text, and where it is
BREAK = "\n\n"  # between the texts of messages that are joined
DEEPEST = 8  # levels of blocks inside blocks that are read; real ones have three

Place = tuple[str | int, ...]
Raws = dict[str, msgspec.Raw]
_BLOCKS = msgspec.json.Decoder(list[msgspec.Raw])

detached = conversation.never_detached


def runs(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """The messages in runs: calls with their results; a system message inside the conversation with what it follows."""
    found: list[list[Message]] = []
    for run in conversation.runs(messages):
        if found and _is_inside(run[0]):
            found[-1] += run
        else:
            found.append([*run])
    return [tuple(run) for run in found]


def misplaced(messages: Sequence[Message]) -> Collection[int]:
    """The places of system messages that are no longer between a user's and an assistant's message.

    "role 'system' must precede an 'assistant' message or end the array", and "must follow a 'user' message or an
    'assistant' message ending in a server tool result". Several in a row count as one.
    """
    found: list[int] = []
    start, before = 0, Kind.INSTRUCTION  # of a run of system messages, and what stands before it
    for place, message in enumerate(messages):
        if _is_inside(message):
            continue
        if message.role != ASSISTANT or before is Kind.INSTRUCTION:
            found += range(start, place)
        start, before = place + 1, message.kind
    return [*found, *range(start, len(messages))] if before is Kind.INSTRUCTION else found


def _is_inside(message: Message) -> bool:
    """Whether it is a system message inside the conversation."""
    return message.role == SYSTEM and message.kind is Kind.OTHER


def parts(message: Message) -> tuple[Part, ...]:
    """The parts of a message in order. Of JSON that cannot be decoded one opaque part, with its words. Never raises."""
    try:
        value = msgspec.json.decode(message.raw)
    except BROKEN:
        return (Part(PartKind.OPAQUE, message.raw.decode("utf-8", "replace"), editable=False),)
    found = tuple(_parts(value.get(CONTENT), (CONTENT,)) if isinstance(value, dict) else _parts(value, ()))
    return (replace(found[0], whole=True),) if len(found) == 1 and found[0].kind in TEXTS else found


def edit(message: Message, edits: Edits) -> bytes:
    """The message's JSON with other texts in some of its parts; all other keys keep their bytes."""
    values = [
        (part.place, msgspec.Raw(text.encode()) if part.kind is PartKind.CALL else _raw(text)) for part, text in edits
    ]
    return bytes(_put(msgspec.Raw(message.raw), values))


def attachments(message: Message) -> tuple[Attachment, ...]:
    """The images and documents of a message, in order, those of its results and documents included."""
    media = [part for part in parts(message) if part.removable and part.name in ATTACHED]
    value = msgspec.json.decode(message.raw) if media else None
    return tuple([_attachment(part, value) for part in media])


def without_media(message: Message, edits: Edits) -> bytes:
    """The message's JSON with a text in place of blocks; without those whose text is empty. Raises `NotEditable` if
    none would be left beside one of them."""
    inside: dict[Place, dict[int, str]] = {}
    for part, text in edits:
        place = part.place[:-1] if part.place[-1] == SOURCE else part.place  # of a document its block
        inside.setdefault(place[:-1], {})[int(place[-1])] = text
    raw = msgspec.Raw(message.raw)
    for around, texts in sorted(inside.items(), key=lambda one: -len(one[0])):  # the inner first: it moves no other
        raw = _put(raw, [(around, wire_media.without_media(_at(raw, around), texts, TEXT))])
    return bytes(raw)


def with_results(message: Message, calls: Collection[str], text: str) -> bytes:
    """The message's JSON with a text in place of the content of these calls' results."""
    found = [block.get("type") == TOOL_RESULT and block.get("tool_use_id") in calls for block in _blocks(message)]
    places = [(CONTENT, place, CONTENT) for place, one in enumerate(found) if one]
    return bytes(_put(msgspec.Raw(message.raw), [(place, _raw(text)) for place in places]))


def join(message: Message, messages: Sequence[Message]) -> bytes | None:
    """The message's JSON with the contents of all these messages: texts with a blank line between them; blocks one
    after another where there are any. None where one of them has neither."""
    contents = [_content(m) for m in messages]
    if not all(isinstance(content, str | list) for content in contents):
        return None
    if all(isinstance(content, str) for content in contents):
        content: Json = BREAK.join(filter(None, contents))
    else:
        content = [block for content in contents for block in _as_blocks(content)]
    return bytes(_put(msgspec.Raw(message.raw), [((CONTENT,), _raw(content))]))


def without_reasoning(message: Message) -> bytes | None:
    """The message's JSON without its thinking blocks, empty if it has no other block; None if it has none."""
    types = [block.get("type") for block in _blocks(message)]
    if not any(named in REASONING for named in types):
        return None
    fields = RAWS.decode(message.raw)
    blocks = [raw for raw, named in zip(_BLOCKS.decode(fields[CONTENT]), types, strict=True) if named not in REASONING]
    return msgspec.json.encode({**fields, CONTENT: blocks}) if blocks else b""


def write(text: str) -> bytes:
    """The JSON of a user message of our own."""
    return msgspec.json.encode({"role": USER, CONTENT: text})


def _parts(content: Json, place: Place, kind: PartKind = PartKind.TEXT, call: str = "") -> Iterator[Part]:
    """The parts of a content: a text, or blocks."""
    if isinstance(content, str):
        yield Part(kind, content, call, place=place)
    elif isinstance(content, list) and len(place) < 2 * DEEPEST:
        for i, block in enumerate(content):
            if isinstance(block, dict):
                yield from _of_block(block, (*place, i), kind, call)


def _of_block(block: Mapping[str, Json], place: Place, kind: PartKind, call: str) -> Iterator[Part]:
    """The parts of a block: of a result or a document those inside it."""
    named = string(block.get("type"))
    if named == TEXT:
        yield Part(kind, string(block.get(TEXT)), call, place=(*place, TEXT))
    elif named == TOOL_USE:
        ident, name = string(block.get("id")), string(block.get("name"))
        yield Part(PartKind.CALL, compact(block.get(INPUT)), ident, name, (*place, INPUT))
    elif named == TOOL_RESULT:
        yield from _parts(block.get(CONTENT), (*place, CONTENT), PartKind.RESULT, string(block.get("tool_use_id")))
    elif named == SEARCH_RESULT:
        yield from _parts(block.get(CONTENT), (*place, CONTENT), kind, call)
    elif named == DOCUMENT:
        yield from _of_document(mapping(block.get(SOURCE)), (*place, SOURCE), kind, call)
    else:
        other = PartKind.REASONING if named in REASONING else PartKind.MEDIA if named in MEDIA else PartKind.OPAQUE
        yield Part(other, "", call, named, place, editable=False, removable=other is PartKind.MEDIA)


def _of_document(source: Mapping[str, Json], place: Place, kind: PartKind, call: str) -> Iterator[Part]:
    key = TEXT_SOURCES.get(string(source.get("type")))
    if key is None:
        yield Part(PartKind.MEDIA, "", call, DOCUMENT, place, editable=False, removable=True)
    elif isinstance(text := source.get(key), str):
        yield Part(kind, text, call, DOCUMENT, (*place, key))
    else:
        yield from _parts(text, (*place, key), kind, call)


def _attachment(part: Part, value: Json) -> Attachment:
    """The image or document at a place in a decoded message."""
    for key in part.place if part.name == IMAGE else part.place[:-1]:
        value = value[key]  # where `parts` found it
    block = mapping(value)
    source = mapping(block.get(SOURCE))
    data = string(source.get(DATA))
    content = f"data:{string(source.get('media_type'))};base64,{data}" if data else ""
    named = content or string(source.get("url")) or string(source.get("file_id"))
    return Attachment(part, named, part.name == DOCUMENT, string(block.get("title")))


def _at(raw: msgspec.Raw, place: Place) -> msgspec.Raw:
    """The JSON at a place in other JSON."""
    for key in place:
        raw = _BLOCKS.decode(raw)[key] if isinstance(key, int) else RAWS.decode(raw)[key]
    return raw


def _put(raw: msgspec.Raw, values: Sequence[tuple[Place, msgspec.Raw]]) -> msgspec.Raw:
    """JSON with other values at places in it, in one pass. Every value beside them keeps its bytes."""
    inner: dict[str | int, list[tuple[Place, msgspec.Raw]]] = {}
    for place, value in values:
        if not place:
            return value
        inner.setdefault(place[0], []).append((place[1:], value))
    if not inner:
        return raw
    if any(isinstance(key, int) for key in inner):
        blocks = _BLOCKS.decode(raw)
        return _raw([_put(block, inner.get(place, ())) for place, block in enumerate(blocks)])
    fields: Raws = RAWS.decode(raw)
    for key, found in inner.items():
        fields[str(key)] = _put(fields.get(str(key), msgspec.Raw(b"null")), found)
    return _raw(fields)


def _content(message: Message) -> Json:
    """A message's content; None where it cannot be decoded."""
    try:
        return mapping(msgspec.json.decode(message.raw)).get(CONTENT)
    except BROKEN:
        return None


def _blocks(message: Message) -> list[Mapping[str, Json]]:
    content = _content(message)
    return [mapping(block) for block in content] if isinstance(content, list) else []


def _as_blocks(content: Json) -> list[Json]:
    if isinstance(content, list):
        return content
    return [{"type": TEXT, TEXT: content}] if content else []


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
