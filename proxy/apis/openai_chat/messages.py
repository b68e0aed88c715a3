"""The parts of a chat message: finds them in its JSON and writes other texts into it (a `MessageFormat`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from proxy.model import conversation
from proxy.model.conversation import Attachment, Edits, Kind, Message, Part, PartKind
from proxy.model.lenient_json import FIELDS, RAWS, Json, mapping, raw_value, string
from proxy.wire import media as wire_media

# What we write speaks as the user: many providers take a system message in first place only.
USER = "user"
KINDS = {
    "system": Kind.INSTRUCTION,
    "developer": Kind.INSTRUCTION,
    USER: Kind.USER,
    "assistant": Kind.ASSISTANT,
    "tool": Kind.RESULT,
    "function": Kind.RESULT,
}
CONTENT, TEXT, CALLS, FUNCTION, ARGUMENTS = "content", "text", "tool_calls", "function", "arguments"
IMAGE, FILE = "image_url", "file"
ATTACHED = (IMAGE, FILE)
SOURCES = ("url", "file_data", "file_id")  # fields of an image or a file that name its content
TYPES = {
    IMAGE: PartKind.MEDIA,
    "input_audio": PartKind.MEDIA,
    FILE: PartKind.MEDIA,
    "thinking": PartKind.REASONING,
}
PLAIN = (None, TEXT)  # types of a content part that is plain text
# Reasoning beside the content: as DeepSeek and Qwen, as OpenRouter and vLLM, and as OpenRouter signs it.
REASONING = ("reasoning_content", "reasoning", "reasoning_details")
MARKS = (b"reasoning", b'"thinking"')
SAID = (CONTENT, CALLS, "function_call", "refusal", "audio")  # what a message may consist of beside its reasoning
NOTHING = msgspec.Raw(b"null")
BREAK = "\n\n"  # between the texts of messages that are joined

Raws = dict[str, msgspec.Raw]
_CALLS = msgspec.json.Decoder(list[Raws])

runs = conversation.runs
misplaced = conversation.nowhere_misplaced
detached = conversation.never_detached


def parts(message: Message) -> tuple[Part, ...]:
    """The parts of a message: its content, then its calls. Of JSON that cannot be decoded (text that is no UTF-8) one
    opaque part, with its words. Never raises."""
    try:
        fields = FIELDS.decode(message.raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return (Part(PartKind.OPAQUE, message.raw.decode("utf-8", "replace"), editable=False),)
    return (*_content_parts(message, fields.get(CONTENT)), *_calls(fields))


def edit(message: Message, edits: Edits) -> bytes:
    """The message's JSON with other texts in some of its parts; all other keys keep their bytes."""
    fields = RAWS.decode(message.raw)
    texts = {part.place: text for part, text in edits if part.kind is not PartKind.CALL}
    if texts:
        content = texts.get((CONTENT,))
        fields[CONTENT] = _raw(_with_texts(fields[CONTENT], texts) if content is None else content)
    arguments = {part.place: text for part, text in edits if part.kind is PartKind.CALL}
    if arguments:
        calls = _CALLS.decode(fields[CALLS])
        fields[CALLS] = _raw(
            [_with_arguments(c, arguments[CALLS, i]) if (CALLS, i) in arguments else c for i, c in enumerate(calls)]
        )
    return msgspec.json.encode(fields)


def attachments(message: Message) -> tuple[Attachment, ...]:
    """The images and files of a message, in order."""
    media = [part for part in parts(message) if part.removable and part.name in ATTACHED]
    content = _content(message) if media else None
    return (
        tuple([_attachment(part, content[int(part.place[1])]) for part in media]) if isinstance(content, list) else ()
    )


def without_media(message: Message, edits: Edits) -> bytes:
    """The message's JSON with a text in place of content parts; without those whose text is empty. Raises `NotEditable`
    if none would be left."""
    fields = RAWS.decode(message.raw)
    texts = {int(part.place[1]): text for part, text in edits}
    return msgspec.json.encode({**fields, CONTENT: wire_media.without_media(fields[CONTENT], texts, TEXT)})


def with_results(message: Message, calls: Collection[str], text: str) -> bytes:
    """The JSON of a result's message with a text in place of its content."""
    return _with_content(message, text)


def join(message: Message, messages: Sequence[Message]) -> bytes | None:
    """The message's JSON with the contents of all these messages: texts with a blank line between them; content parts
    one after another where there are any. None where one of them has neither."""
    contents = [_content(m) for m in messages]
    if all(isinstance(content, str) for content in contents):
        return _with_content(message, BREAK.join(filter(None, contents)))
    if not all(isinstance(content, str | list) for content in contents):
        return None
    return _with_content(message, [part for content in contents for part in _as_list(content)])


def without_reasoning(message: Message) -> bytes | None:
    """The message's JSON without its reasoning, in whichever field a server writes it, empty if it says and calls
    nothing; None if it has none."""
    if not any(mark in message.raw for mark in MARKS):
        return None
    fields = RAWS.decode(message.raw)
    content = raw_value(fields.get(CONTENT, NOTHING))
    parts = content if isinstance(content, list) else []
    left = [part for part in parts if TYPES.get(str(mapping(part).get("type"))) is not PartKind.REASONING]
    if len(left) == len(parts) and not any(fields.get(key, NOTHING) != NOTHING for key in REASONING):
        return None
    if len(left) < len(parts):
        fields[CONTENT] = _raw(left)
    if not any(raw_value(fields.get(key, NOTHING)) for key in SAID):
        return b""
    return msgspec.json.encode({key: raw for key, raw in fields.items() if key not in REASONING})


def write(text: str) -> bytes:
    """The JSON of a user message of our own."""
    return msgspec.json.encode({"role": USER, CONTENT: text})


def _content_parts(message: Message, content: Json) -> list[Part]:
    kind, call = (PartKind.RESULT, message.answers[0]) if message.answers else (PartKind.TEXT, "")
    if isinstance(content, str):
        return [Part(kind, content, call, place=(CONTENT,), whole=True)]
    if not isinstance(content, list):
        return []
    return [_content_part(part, (CONTENT, i), kind, call) for i, part in enumerate(content) if isinstance(part, dict)]


def _content_part(part: Mapping[str, Json], place: tuple[str | int, ...], kind: PartKind, call: str) -> Part:
    """One of a list of content parts. Whatever has a text is text, for there are servers that know other types."""
    named, text = part.get("type"), part.get(TEXT)
    name = "" if named in PLAIN else str(named)
    if isinstance(text, str):
        return Part(kind, text, call, name, place)
    other = TYPES.get(name, PartKind.OPAQUE)
    return Part(other, "", call, name, place, editable=False, removable=other is PartKind.MEDIA)


def _attachment(part: Part, media: Mapping[str, Json]) -> Attachment:
    """An image, whose URL is a field of its own or in an object, or a file."""
    said = media.get(part.name)
    found = mapping(said)
    source = said if isinstance(said, str) else next((text for key in SOURCES if (text := string(found.get(key)))), "")
    return Attachment(part, source, part.name != IMAGE, string(found.get("filename")))


def _calls(fields: Mapping[str, Json]) -> list[Part]:
    """Calls of tools. The grammar of a custom tool's input is unknown, and a `function_call` (before tools) has no id:
    neither is edited."""
    calls, old = fields.get(CALLS), fields.get("function_call")
    found = [_call(mapping(call), (CALLS, i)) for i, call in enumerate(calls if isinstance(calls, list) else ())]
    if isinstance(old, dict):
        found.append(_called(old, ARGUMENTS, "", (), editable=False))
    return [part for part in found if part is not None]


def _call(call: Mapping[str, Json], place: tuple[str | int, ...]) -> Part | None:
    function, custom = call.get(FUNCTION), call.get("custom")
    if isinstance(function, dict) and function:
        return _called(function, ARGUMENTS, string(call.get("id")), place)
    if isinstance(custom, dict):
        return _called(custom, "input", string(call.get("id")), place, editable=False)
    return None


def _called(
    target: Mapping[str, Json], key: str, ident: str, place: tuple[str | int, ...], *, editable: bool = True
) -> Part:
    said = target.get(key)
    text = said if isinstance(said, str) else "" if said is None else str(said)
    return Part(PartKind.CALL, text, ident, string(target.get("name")), place, editable=editable)


def _with_texts(raw: msgspec.Raw, texts: Mapping[tuple[str | int, ...], str]) -> list[Json]:
    content = msgspec.json.decode(raw)
    return [{**p, TEXT: texts[CONTENT, i]} if (CONTENT, i) in texts else p for i, p in enumerate(content)]


def _with_arguments(call: Raws, arguments: str) -> Raws:
    function = RAWS.decode(call[FUNCTION])
    return {**call, FUNCTION: _raw({**function, ARGUMENTS: _raw(arguments)})}


def _with_content(message: Message, content: Json) -> bytes:
    return msgspec.json.encode({**RAWS.decode(message.raw), CONTENT: _raw(content)})


def _content(message: Message) -> Json:
    """A message's content; None where it cannot be decoded."""
    try:
        return FIELDS.decode(message.raw).get(CONTENT)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _as_list(content: Json) -> list[Json]:
    if isinstance(content, list):
        return content
    return [{"type": TEXT, TEXT: content}] if content else []


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
