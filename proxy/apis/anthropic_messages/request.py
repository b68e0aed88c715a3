"""A request of the Messages API as a neutral prompt, and a planned prompt as JSON again. What no step changed keeps its
bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from proxy.apis.anthropic_messages import caching
from proxy.apis.anthropic_messages import messages as blocks
from proxy.apis.anthropic_messages.messages import ASSISTANT, SYSTEM, TOOL_RESULT, TOOL_USE, USER
from proxy.apis.anthropic_messages.scan import API_NAME, MESSAGES, UNPROVABLE_PARTS, has_system
from proxy.apis.anthropic_messages.scan import known_prefix as known_prefix
from proxy.apis.anthropic_messages.scan import scan as scan
from proxy.model import oversized_json
from proxy.model.conversation import Call, Costs, Kind, Message, Prompt, ReplyLimit, Stored
from proxy.model.lenient_json import UNREADABLE, RawFields, mapping, object_of, read, string
from proxy.model.names import name_of
from proxy.model.plan import Plan
from proxy.model.scan import KnownPrefix
from proxy.wire import crowded
from proxy.wire.body import (
    RAW_LIST,
    Fields,
    Whole,
    copied,
    decoded,
    least_reply,
    view_of,
    without_fields,
    without_message_key,
)
from proxy.wire.scan import NULL, NotUnderstood, reason, token_limit
from proxy.wire.tool_definitions import declared

PATH = "/v1/messages"
BARE_PATH = PATH.removeprefix("/v1")  # of clients whose base URL has no /v1

LIMIT = "max_tokens"
NEEDS = (("vision", b'"image"'),)
THREAD = "thread"  # a conversation that the upstream holds
# Files, containers and hidden content that the upstream has stored, signed or encrypted.
BOUND = (b'"file_id"', b'"container"', b'"signature"', b'"encrypted_content"')
STREAMING = ("stream",)
REMINDER, REMINDER_END = "<system-reminder>", "</system-reminder>"  # what Claude Code itself adds behind results
COMPACTION = "compaction"  # a block that stands for all messages before it
# Edits that Anthropic makes before the model reads the prompt, when it is long: what is sent may be longer than the
# window.
CLEARING = (b'"clear_tool_uses', b'"compact_')
ENABLED, CLEARS_THINKING = b'"enabled"', b'"clear_thinking'  # the one in "thinking"; an edit that needs it


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    id: str = ""
    name: str = ""
    tool_use_id: str | None = None


class _Message(msgspec.Struct, gc=False):
    role: str
    content: list[_Block] | str | None = None


class _TextBlock(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""


class _Reminded(msgspec.Struct, gc=False):
    content: list[_TextBlock]


_MESSAGE = msgspec.json.Decoder(_Message)
_REMINDED = msgspec.json.Decoder(_Reminded)
_NUMBER: msgspec.json.Decoder[int | float | None] = msgspec.json.Decoder(int | float | None)


def recognises(fields: RawFields) -> bool:
    """Whether a body with these fields is one of this API."""
    messages, tools = (bytes(fields.get(key, b"")) for key in ("messages", "tools"))
    return bool(messages) and ("system" in fields or b'"tool_use"' in messages or b'"input_schema"' in tools)


def parse(
    body: bytes, pins: Collection[int] = (), start: int = 0, plain: bool = False, known: KnownPrefix | None = None
) -> Prompt:
    """The request as a prompt; see `proxy.model.api.RequestFormat.parse`. Raises `NotUnderstood`."""
    try:
        head, whole = decoded(body)
        if MESSAGES not in head or "model" not in head:
            raise NotUnderstood("it has no model or no messages")
        raws = RAW_LIST.decode(head[MESSAGES])
        first = _first(head) if known is None else known.seen.count
        messages = [_message(raw, i, whole) for i, raw in enumerate(raws, first) if i >= start]
        if has_system(head.get(SYSTEM, NULL)):
            messages.insert(0, _system(head[SYSTEM], whole))
        model = name_of(msgspec.json.decode(head["model"], type=str))
        limit = token_limit(_NUMBER.decode(head.get(LIMIT, NULL)))
    except UNREADABLE as error:
        raise NotUnderstood(reason(error)) from None
    if not raws and known is None:
        raise NotUnderstood("messages is empty")
    # The messages of a long body stay a view: bytes would be another copy of the body, besides each message's own.
    fields = copied(head, whole, view_of(MESSAGES, body))
    return Prompt(
        model=model,
        messages=tuple(messages),
        head=fields,
        reply=ReplyLimit(limit, LIMIT, least_reply(fields.get("thinking"), "budget_tokens")),
        needs=_needs(fields, b"" if plain else body),
        stream=fields.get("stream") == b"true",
        pins=frozenset(pins),
        costs=Costs.of(not plain and oversized_json.holds(head[MESSAGES], UNPROVABLE_PARTS)),
        api=API_NAME,
        stored=_stored(fields, b"" if plain else body),
        managed=_is_managed(fields),
        definitions=declared(fields, ("tools",), "input_schema", types=(None, "custom"), choices=("tool_choice",)),
    )


def _stored(fields: Mapping[str, bytes], body: bytes) -> Stored:
    """What the upstream has stored of it. `body`: where to look for references; empty: nowhere."""
    bound = bool({"container", THREAD} & fields.keys())
    return Stored(bound or any(oversized_json.find(body, mark) >= 0 for mark in BOUND), _continued(fields))


def _continued(fields: Mapping[str, bytes]) -> str:
    """The id of the answer whose thread a request continues; empty if it brings its whole conversation."""
    return string(mapping(read(fields.get(THREAD, b"null"))).get("previous_message_id"))


def _is_managed(fields: Mapping[str, bytes]) -> bool:
    """Whether Anthropic itself shortens the prompt before the model reads it."""
    return any(sign in fields.get("context_management", b"") for sign in CLEARING)


def without_extension(body: bytes) -> tuple[bytes, frozenset[int]]:
    """See `proxy.wire.body.without_message_key`. Raises `NotUnderstood`."""
    return without_message_key(body, MESSAGES, first=_first)


def without_middle(body: bytes, most: tuple[int, int]) -> tuple[bytes, int] | None:
    """See `proxy.model.api.Api.without_middle`."""
    head, whole = decoded(body)
    fields = {key: bytes(head[key]) for key in (THREAD, "context_management") if key in head}
    if _continued(fields) or _is_managed(fields):
        return None
    return crowded.without_middle(head, whole, MESSAGES, RAW_LIST.decode(head[MESSAGES]), _message, most)


def without_stream(body: bytes) -> bytes:
    """The same request for a response in one piece. Raises `NotUnderstood`."""
    return without_fields(body, STREAMING)


def _first(head: Fields) -> int:
    """The index of the first of `messages`: the system prompt is message 0."""
    return 1 if has_system(head.get(SYSTEM, NULL)) else 0


def _system(said: msgspec.Raw, whole: Whole) -> Message:
    raw = oversized_json.copy(whole(said))
    return Message(raw, SYSTEM, Kind.INSTRUCTION, blocks, 0)


def _message(said: msgspec.Raw, index: int, whole: Whole) -> Message:
    found = _MESSAGE.decode(said)
    raw = oversized_json.copy(whole(said))
    content = found.content if isinstance(found.content, list) else ()
    calls = tuple([Call(b.id, b.name) for b in content if b.type == TOOL_USE])
    answers = tuple([b.tool_use_id or "" for b in content if b.type == TOOL_RESULT])
    kind, compacts = _kind(found.role, len(answers), len(content)), any([b.type == COMPACTION for b in content])
    if answers and kind is Kind.USER and _is_reminded(said):
        kind = Kind.RESULT
    return Message(raw, found.role, kind, blocks, index, calls, answers, compacts=compacts)


def _kind(role: str, results: int, size: int) -> Kind:
    """Who speaks. A system message inside a conversation belongs to what it follows, and may go with it."""
    if role == USER:
        return Kind.RESULT if results and results == size else Kind.USER
    return Kind.ASSISTANT if role == ASSISTANT else Kind.OTHER


def _is_reminded(said: msgspec.Raw) -> bool:
    """Whether all texts beside results are a program's own: then no user speaks in the message."""
    others = [block for block in _REMINDED.decode(said).content if block.type != TOOL_RESULT]
    return all([block.text.startswith(REMINDER) and block.text.rstrip().endswith(REMINDER_END) for block in others])


def _needs(head: Mapping[str, bytes], body: bytes) -> frozenset[str]:
    """The capabilities that a model needs for this request."""
    needs = {name for name, mark in NEEDS if oversized_json.find(body, mark) >= 0}
    if head.get("tools", b"null") not in (b"null", b"[]"):
        needs.add("tools")
    if any(b'"json_schema"' in head.get(key, b"") for key in ("output_format", "output_config")):
        needs.add("schema")
    return frozenset(needs)


def render(prompt: Prompt, plan: Plan) -> bytes:
    """The JSON to send: the client's fields in the client's order, each with its own bytes unless a step changed it."""
    draft, head = plan.draft, prompt.head
    changed: dict[str, bytes] = {}
    if draft.model != prompt.model:
        changed["model"] = msgspec.json.encode(draft.model)
        head = _for_another_model(head, prompt.messages)
    if draft.reply is not None and draft.reply != prompt.reply.limit:
        changed[LIMIT] = b"%d" % draft.reply
    if draft.blocks is not plan.before.blocks:
        sent = caching.with_marks(plan.before.messages, list(draft.messages))
        if SYSTEM in prompt.head and sent[0].kind is Kind.INSTRUCTION:
            changed[SYSTEM] = sent.pop(0).raw
        changed[MESSAGES] = b"[" + b",".join([m.raw for m in sent]) + b"]"
    if draft.definitions.changed:
        changed |= draft.definitions.fields
    return object_of((key, changed.get(key, raw)) for key, raw in head.items())


def _for_another_model(head: Mapping[str, bytes], messages: Sequence[Message]) -> Mapping[str, bytes]:
    """The fields without thinking, and edits of it, where the newest run of tools began without: Anthropic refuses
    that, and other models' runs have none. (A request with signed thinking is bound to its own model.)"""
    newest = next((message for message in reversed(messages) if message.role == ASSISTANT), None)
    if newest is None or not newest.calls or ENABLED not in head.get("thinking", b""):
        return head
    edits = {"context_management"} if CLEARS_THINKING in head.get("context_management", b"") else set()
    return {key: raw for key, raw in head.items() if key not in {"thinking", *edits}}
