"""The items of a request's input: their types, which of them belong together, and the parts that a step may change
(a `MessageFormat`). A message is an item, or the request's `instructions`, whose JSON is a string."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from proxy.model import conversation
from proxy.model.conversation import Attachment, Edits, Kind, Message, Part, PartKind
from proxy.model.lenient_json import BROKEN, FIELDS, RAWS, Json, compact, mapping, object_of, string
from proxy.wire import media as wire_media

INSTRUCTIONS = "instructions"
USER = "user"
MESSAGE, REFERENCE, REASONING, COMPACTION = "message", "item_reference", "reasoning", "compaction"
ROLES = {
    "system": Kind.INSTRUCTION,
    "developer": Kind.INSTRUCTION,
    USER: Kind.USER,
    "assistant": Kind.ASSISTANT,
}
# Items that a response may begin or go on with, besides messages of the assistant: reasoning, calls, and hosted tools,
# whose calls contain their results.
HOSTED = ("file_search_call", "web_search_call", "code_interpreter_call", "image_generation_call", "mcp_call")
# Types of calls that require an id; all others may be sent without one.
IDENTIFIED = frozenset({*HOSTED, "local_shell_call", "computer_call", "program", "mcp_approval_request"})
# Calls that an item of another type answers: the key of what is called, and whether a step may change it. The grammar
# of a custom tool's input is unknown; the others are no texts.
CALLS = {
    "function_call": ("arguments", True),
    "custom_tool_call": ("input", False),
    "local_shell_call": ("action", False),
    "shell_call": ("action", False),
    "apply_patch_call": ("operation", False),
    "computer_call": ("action", False),
    "tool_search_call": ("arguments", False),
    "program": ("code", False),
    "mcp_approval_request": ("arguments", False),
}
# Answers to calls, with the key of what they bring.
OUTPUTS = {
    "function_call_output": "output",
    "custom_tool_call_output": "output",
    "local_shell_call_output": "output",
    "shell_call_output": "output",
    "apply_patch_call_output": "output",
    "computer_call_output": "output",
    "tool_search_output": "tools",
    "program_output": "result",
    "mcp_approval_response": "approve",
}
APPROVALS = ("mcp_approval_request", "mcp_approval_response")
TOOLS = "mcp_list_tools"
# What makes tools known to the model, or stands for what was removed: without it, later items mean nothing.
REQUIRED = frozenset({"additional_tools", "tool_search_output", TOOLS, "compaction_trigger"})
GENERATED = frozenset({*CALLS, *HOSTED, REASONING, REFERENCE})
LISTED = "shell_call_output"  # its output is a list of what commands wrote
WRITTEN = ("stdout", "stderr")

CONTENT, TEXT, OUTPUT = "content", "text", "output"
INPUT_TEXT = "input_text"
TEXT_TYPES = (INPUT_TEXT, "output_text", TEXT)
IMAGE, FILE = "input_image", "input_file"
MEDIA_TYPES = (IMAGE, FILE, "input_audio")
ATTACHED = (IMAGE, FILE)
SOURCES = ("image_url", "file_data", "file_url", "file_id")  # fields of an image or a file that name its content
BREAK = "\n\n"  # between the texts of messages that are joined

misplaced = conversation.nowhere_misplaced


def type_of(kind: str | None, role: str | None) -> str:
    """An item's type. It may be missing in messages and in references."""
    return kind or (MESSAGE if role else REFERENCE)


def runs(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """The items in runs that must stay together.

    A run is what one response consists of, in order: reasoning, texts, calls, and then the answers to the calls, up to
    the last of them. Reasoning is required by what follows it, and an answer requires its call. A text of the assistant
    that stands alone, and any other message, is a run of its own.
    """
    answered = {ident: place for place, message in enumerate(messages) for ident in message.answers}
    found: list[tuple[Message, ...]] = []
    start = reach = 0
    for place, message in enumerate(messages):
        if place and place > reach and not _continues(messages[place - 1], message):
            found.append(tuple(messages[start:place]))
            start = place
        reach = max(reach, place, *[answered.get(call.id, 0) for call in message.calls])
    return [*found, tuple(messages[start:])] if messages else found


def _continues(before: Message, message: Message) -> bool:
    """Whether an item belongs to the response of the item before it."""
    if message.answers:
        return before.kind is Kind.ASSISTANT or before.kind is Kind.RESULT
    if message.kind is not Kind.ASSISTANT or before.kind is not Kind.ASSISTANT:
        return False
    return before.role in GENERATED or message.role in GENERATED


def detached(before: Sequence[Message], after: Sequence[Message]) -> dict[int, bytes]:
    """The JSON of items that followed reasoning which is gone, without their ids, by place in `after`; empty for items
    that must go, too.

    An id names the stored form of an item. For it the provider requires the reasoning, too. Nothing tells where a
    response ends, so that all items up to the next message of the user count as its own. An item of a type that
    requires an id goes, with its answers.
    """
    kept = {m.index for m in after if m.role == REASONING}
    bound = set[int]()
    lost = False
    for m in before:
        lost = m.index not in kept if m.role == REASONING else lost and m.role != USER
        if lost:
            bound.add(m.index)
    gone = _not_detachable([m for m in after if m.index in bound])
    found = {place: b"" if m.index in gone else _without_id(m) for place, m in enumerate(after) if m.index in bound}
    return {place: raw for place, raw in found.items() if raw is not None}


def _not_detachable(messages: Sequence[Message]) -> set[int]:
    """The indices of items whose types require an id, and of the answers to them."""
    found = {m.index for m in messages if m.role in IDENTIFIED and b'"id"' in m.raw}
    calls = {call.id for m in messages if m.index in found for call in m.calls}
    return found | {m.index for m in messages if not calls.isdisjoint(m.answers)}


def _without_id(message: Message) -> bytes | None:
    """The JSON of what the model said without its id; None where it has none, or cannot be without it."""
    if message.kind is not Kind.ASSISTANT or message.role in (REFERENCE, TOOLS) or b'"id"' not in message.raw:
        return None
    fields = RAWS.decode(message.raw)
    return object_of((key, bytes(raw)) for key, raw in fields.items() if key != "id") if "id" in fields else None


def parts(message: Message) -> tuple[Part, ...]:
    """The parts of an item. Of JSON that cannot be decoded (text that is no UTF-8) one opaque part, with its words.
    Never raises."""
    try:
        if message.role == INSTRUCTIONS:
            return (Part(PartKind.TEXT, msgspec.json.decode(message.raw, type=str), whole=True),)
        return _parts(FIELDS.decode(message.raw))
    except BROKEN:
        return (Part(PartKind.OPAQUE, message.raw.decode("utf-8", "replace"), editable=False),)


def edit(message: Message, edits: Edits) -> bytes:
    """The item's JSON with other texts in some of its parts; all other keys keep their bytes."""
    texts = {part.place: text for part, text in edits}
    if message.role == INSTRUCTIONS:
        return msgspec.json.encode(texts[()])
    fields = RAWS.decode(message.raw)
    for key in {str(place[0]) for place in texts}:
        whole = texts.get((key,))
        fields[key] = _raw(_with_texts(msgspec.json.decode(fields[key]), key, texts) if whole is None else whole)
    return msgspec.json.encode(fields)


def attachments(message: Message) -> tuple[Attachment, ...]:
    """The images and files of an item, in order. A screenshot that answers a `computer_call` is none: the API requires
    it."""
    media = [part for part in parts(message) if part.removable and part.name in ATTACHED]
    fields = FIELDS.decode(message.raw) if media else {}
    return tuple([_attachment(part, fields) for part in media])


def without_media(message: Message, edits: Edits) -> bytes:
    """The item's JSON with a text in place of content parts; without those whose text is empty. Raises `NotEditable` if
    none would be left."""
    fields = RAWS.decode(message.raw)
    for key in {str(part.place[0]) for part, _ in edits}:
        texts = {int(part.place[1]): text for part, text in edits if part.place[0] == key}
        fields[key] = wire_media.without_media(fields[key], texts, INPUT_TEXT)
    return msgspec.json.encode(fields)


def with_results(message: Message, calls: Collection[str], text: str) -> bytes:
    """The JSON of an answer to a call with a text in place of everything that it brought. An answer without text keeps
    what it brought."""
    fields = RAWS.decode(message.raw)
    if message.role == LISTED:
        listed = msgspec.json.decode(fields.get(OUTPUT, b"[]"))
        outcome = [mapping(one).get("outcome") for one in listed] if isinstance(listed, list) else []
        exited = {"type": "exit", "exit_code": 0}
        return msgspec.json.encode(
            {**fields, OUTPUT: [{"stdout": text, "stderr": "", "outcome": next(filter(None, outcome), exited)}]}
        )
    key = OUTPUTS.get(message.role)
    if key is None or not any(part.kind is PartKind.RESULT for part in parts(message)):
        return message.raw
    return msgspec.json.encode({**fields, key: _raw(text)})


def join(message: Message, messages: Sequence[Message]) -> bytes | None:
    """The item's JSON with the contents of all these messages: texts with a blank line between them; content parts one
    after another where there are any. None where one of them is no message."""
    contents = [_content(m) for m in messages]
    if all(isinstance(content, str) for content in contents):
        return _with_content(message, BREAK.join(filter(None, contents)))
    if not all(isinstance(content, str | list) for content in contents):
        return None
    kind = "output_text" if message.kind is Kind.ASSISTANT else "input_text"
    return _with_content(message, [part for content in contents for part in _as_list(content, kind)])


def without_reasoning(message: Message) -> bytes | None:
    """Nothing of an item that is reasoning; None for any other."""
    return b"" if message.role == REASONING else None


def write(text: str) -> bytes:
    """The JSON of a user's message of our own."""
    return msgspec.json.encode({"type": MESSAGE, "role": USER, CONTENT: text})


def _parts(fields: Mapping[str, Json]) -> tuple[Part, ...]:
    kind = type_of(string(fields.get("type")), string(fields.get("role")))
    if kind == MESSAGE:
        return _texts(fields.get(CONTENT), CONTENT, PartKind.TEXT, "", editable=_is_inline(fields))
    if kind in CALLS:
        return (_call(fields, *CALLS[kind]),)
    if kind in OUTPUTS:
        return _answer(fields, kind)
    if kind == REASONING:
        return _reasoning(fields)
    return (Part(PartKind.OPAQUE, name=kind, editable=False),)


def _texts(content: Json, key: str, kind: PartKind, call: str, *, editable: bool = True) -> tuple[Part, ...]:
    """A text, or a list of content parts."""
    if isinstance(content, str):
        return (Part(kind, content, call, place=(key,), whole=True, editable=editable),)
    if not isinstance(content, list):
        return ()
    listed = [(i, part) for i, part in enumerate(content) if isinstance(part, dict)]
    return tuple(_content_part(part, (key, i), kind, call, editable) for i, part in listed)


def _content_part(
    part: Mapping[str, Json], place: tuple[str | int, ...], kind: PartKind, call: str, editable: bool
) -> Part:
    """One of a list of content parts. Whatever has a text is text, for there are servers that know other types."""
    named, text = string(part.get("type")), part.get(TEXT)
    name = "" if named in TEXT_TYPES else named
    if isinstance(text, str):
        return Part(kind, text, call, name, place, editable=editable)
    if name not in MEDIA_TYPES:
        return Part(PartKind.OPAQUE, "", call, name, place, editable=False)
    return Part(PartKind.MEDIA, "", call, name, place, editable=False, removable=editable)


def _attachment(part: Part, fields: Mapping[str, Any]) -> Attachment:
    """The image or file of a part."""
    key, place = part.place
    media: Mapping[str, Json] = fields[str(key)][place]  # where `parts` found it
    source = next((text for name in SOURCES if (text := string(media.get(name)))), "")
    return Attachment(part, source, part.name == FILE, string(media.get("filename")))


def _call(fields: Mapping[str, Json], key: str, editable: bool) -> Part:
    """A call. One that the provider has stored is taken from its store: changing it here would change nothing."""
    said = fields.get(key)
    text = said if isinstance(said, str) else "" if said is None else compact(said)
    name = string(fields.get("name")) or string(fields.get("type"))
    return Part(PartKind.CALL, text, call_id(fields), name, (key,), editable=editable and _is_inline(fields))


def _answer(fields: Mapping[str, Json], kind: str) -> tuple[Part, ...]:
    call, key = call_id(fields), OUTPUTS[kind]
    brought = fields.get(key)
    if kind == LISTED and isinstance(brought, list):
        return tuple(
            Part(PartKind.RESULT, one[stream], call, place=(key, i, stream))
            for i, one in enumerate(brought)
            if isinstance(one, dict)
            for stream in WRITTEN
            if isinstance(one.get(stream), str)
        )
    if isinstance(brought, str | list) and key != "tools":
        return _texts(brought, key, PartKind.RESULT, call)
    return (Part(PartKind.OPAQUE, "", call, kind, (key,), editable=False),)


def _reasoning(fields: Mapping[str, Json]) -> tuple[Part, ...]:
    """What can be read of reasoning; it is never changed."""
    listed = [part for key in ("summary", CONTENT) if isinstance(part := fields.get(key), list)]
    texts = [string(mapping(part).get(TEXT)) for group in listed for part in group]
    return (Part(PartKind.REASONING, BREAK.join(filter(None, texts)), name=REASONING, editable=False),)


def call_id(fields: Mapping[str, Json]) -> str:
    """The id that a call and its answer share; empty if an item has none."""
    return string(fields.get("call_id") or fields.get("approval_request_id") or fields.get("id"))


def _is_inline(fields: Mapping[str, Json]) -> bool:
    """Whether an item is only in the request, and not also stored under an id."""
    return not fields.get("id")


def _with_texts(value: Any, key: str, texts: Mapping[tuple[str | int, ...], str]) -> Json:
    """A list of parts, with other texts at their places."""
    for place, text in texts.items():
        if place[0] == key and len(place) == 2:
            value[place[1]] = {**value[place[1]], TEXT: text}
        elif place[0] == key:
            value[place[1]] = {**value[place[1]], place[2]: text}
    return value


def _with_content(message: Message, content: Json) -> bytes:
    return msgspec.json.encode({**RAWS.decode(message.raw), CONTENT: _raw(content)})


def _content(message: Message) -> Json:
    """A message's content; None where it is no message, or cannot be decoded."""
    try:
        return None if message.role not in ROLES else FIELDS.decode(message.raw).get(CONTENT)
    except BROKEN:
        return None


def _as_list(content: Json, kind: str) -> list[Json]:
    if isinstance(content, list):
        return content
    return [{"type": kind, TEXT: content}] if content else []


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
