"""The parts of a message of Ollama's API: finds them in its JSON, writes other texts into it (a `MessageFormat`).

The content is a text; images and thinking stand beside it, and a call's arguments are an object. Calls have no ids: the
ids here are those that `proxy.apis.ollama.request` gave them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from proxy.model import conversation
from proxy.model.conversation import Attachment, Edits, Kind, Message, NotEditable, Part, PartKind
from proxy.model.lenient_json import BROKEN, FIELDS, RAWS, Json, compact, mapping, raw_value, string
from proxy.wire.media import NOTHING_LEFT

USER = "user"
KINDS = {"system": Kind.INSTRUCTION, USER: Kind.USER, "assistant": Kind.ASSISTANT, "tool": Kind.RESULT}
CONTENT, CALLS, FUNCTION, ARGUMENTS = "content", "tool_calls", "function", "arguments"
IMAGES, THINKING = "images", "thinking"
IMAGE_URL = "data:image;base64,"  # an image is written as its data alone
SAID = (CONTENT, IMAGES, CALLS)  # what a message may consist of beside its thinking
NOTHING = msgspec.Raw(b"null")
BREAK = "\n\n"  # between the texts of messages that are joined

_CALLS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_IMAGES = msgspec.json.Decoder(list[msgspec.Raw])

runs = conversation.runs
misplaced = conversation.nowhere_misplaced
detached = conversation.never_detached


def parts(message: Message) -> tuple[Part, ...]:
    """The parts of a message: thinking, content, images, calls. Of JSON that cannot be decoded one opaque part, with
    its words. Never raises."""
    try:
        fields = FIELDS.decode(message.raw)
    except BROKEN:
        return (Part(PartKind.OPAQUE, message.raw.decode("utf-8", "replace"), editable=False),)
    thought = [Part(PartKind.REASONING, place=(THINKING,), editable=False)] if fields.get(THINKING) else []
    images = [
        Part(PartKind.MEDIA, name=IMAGES, place=(IMAGES, i), editable=False, removable=True)
        for i in range(_images(fields))
    ]
    calls = _calls(message, fields)
    return (*thought, *_content(message, fields, alone=not (thought or images or calls)), *images, *calls)


def edit(message: Message, edits: Edits) -> bytes:
    """The message's JSON with other texts in some of its parts; all other keys keep their bytes."""
    fields = RAWS.decode(message.raw)
    for part, text in edits:
        if part.kind is PartKind.CALL:
            fields[CALLS] = _with_arguments(fields[CALLS], int(part.place[1]), text)
        else:
            fields[CONTENT] = _raw(text)
    return msgspec.json.encode(fields)


def attachments(message: Message) -> tuple[Attachment, ...]:
    """The images of a message, in order."""
    media = [part for part in parts(message) if part.removable]
    images: list[Json] = _fields(message)[IMAGES] if media else []
    return tuple([Attachment(part, IMAGE_URL + string(images[int(part.place[1])])) for part in media])


def without_media(message: Message, edits: Edits) -> bytes:
    """The message's JSON without images, and with a text behind its content for each whose text is not empty. Raises
    `NotEditable` if nothing would be left."""
    fields = RAWS.decode(message.raw)
    places = {part.place[1] for part, _ in edits}
    images = [image for place, image in enumerate(_IMAGES.decode(fields.pop(IMAGES))) if place not in places]
    content = string(raw_value(fields.get(CONTENT, msgspec.Raw(b'""'))))
    texts = [text for _, text in edits if text]
    if not (content or texts or images or CALLS in fields):
        raise NotEditable(NOTHING_LEFT)
    said = {CONTENT: _raw(BREAK.join(filter(None, (content, *texts))))} if texts else {}
    return msgspec.json.encode({**fields, **said, **({IMAGES: images} if images else {})})


def with_results(message: Message, calls: Collection[str], text: str) -> bytes:
    """The JSON of a result's message with a text in place of its content and its images."""
    fields = {**RAWS.decode(message.raw), CONTENT: _raw(text)}
    fields.pop(IMAGES, None)
    return msgspec.json.encode(fields)


def join(message: Message, messages: Sequence[Message]) -> bytes | None:
    """The message's JSON with the contents of all these messages, a blank line between them, and with their images.
    None where one of them has no text."""
    fields = [_fields(m) for m in messages]
    texts = [f.get(CONTENT) for f in fields]
    if not all(isinstance(text, str) for text in texts):
        return None
    images = [image for f in fields for image in f.get(IMAGES) or ()]
    joined = {**RAWS.decode(message.raw), CONTENT: _raw(BREAK.join(filter(None, texts)))}
    return msgspec.json.encode({**joined, IMAGES: images} if images else joined)


def without_reasoning(message: Message) -> bytes | None:
    """The message's JSON without its thinking, empty if it says and calls nothing; None if it has none."""
    if THINKING.encode() not in message.raw:
        return None
    fields = RAWS.decode(message.raw)
    if not raw_value(fields.pop(THINKING, NOTHING)):
        return None
    return msgspec.json.encode(fields) if any(raw_value(fields.get(key, NOTHING)) for key in SAID) else b""


def write(text: str) -> bytes:
    """The JSON of a user message of our own."""
    return msgspec.json.encode({"role": USER, CONTENT: text})


def _content(message: Message, fields: Mapping[str, Json], *, alone: bool) -> list[Part]:
    text = fields.get(CONTENT)
    if not isinstance(text, str) or not (text or alone):
        return []
    kind, call = (PartKind.RESULT, message.answers[0]) if message.answers else (PartKind.TEXT, "")
    return [Part(kind, text, call, place=(CONTENT,), whole=alone)]


def _calls(message: Message, fields: Mapping[str, Json]) -> list[Part]:
    said = fields.get(CALLS)
    found = []
    for i, call in enumerate(said if isinstance(said, list) else ()):
        function = mapping(mapping(call).get(FUNCTION))
        ident = message.calls[i].id if i < len(message.calls) else ""
        text = compact(function.get(ARGUMENTS, {}))
        found.append(Part(PartKind.CALL, text, ident, string(function.get("name")), (CALLS, i)))
    return found


def _images(fields: Mapping[str, Json]) -> int:
    images = fields.get(IMAGES)
    return len(images) if isinstance(images, list) else 0


def _with_arguments(calls: msgspec.Raw, place: int, arguments: str) -> msgspec.Raw:
    written = _CALLS.decode(calls)
    function = {**RAWS.decode(written[place][FUNCTION]), ARGUMENTS: msgspec.Raw(arguments.encode())}
    written[place] = {**written[place], FUNCTION: _raw(function)}
    return _raw(written)


def _fields(message: Message) -> Mapping[str, Json]:
    """A message's fields; none where it cannot be decoded."""
    try:
        return FIELDS.decode(message.raw)
    except BROKEN:
        return {}


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
