"""A request as a neutral prompt, and a planned prompt as JSON again. What no step changed keeps its bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from proxy.apis.openai_responses import items as items_format
from proxy.apis.openai_responses.items import (
    APPROVALS,
    CALLS,
    COMPACTION,
    HOSTED,
    INSTRUCTIONS,
    MESSAGE,
    OUTPUTS,
    REASONING,
    REFERENCE,
    REQUIRED,
    ROLES,
    type_of,
)
from proxy.apis.openai_responses.scan import (
    BOUNDED,
    INPUT,
    UNPROVABLE_PARTS,
    hidden_tokens,
    is_text,
    items_of,
    keeps_reasoning,
)
from proxy.apis.openai_responses.scan import known_prefix as known_prefix
from proxy.apis.openai_responses.scan import scan as scan
from proxy.model import oversized_json
from proxy.model.conversation import Call, Costs, Kind, Message, Prompt, ReplyLimit, Stored
from proxy.model.lenient_json import UNREADABLE, RawFields, object_of, raw_value
from proxy.model.names import name_of
from proxy.model.plan import Plan
from proxy.model.scan import KnownPrefix
from proxy.wire import crowded
from proxy.wire.body import (
    Fields,
    Whole,
    copied,
    decoded,
    itself,
    view_of,
    without_fields,
    without_message_key,
)
from proxy.wire.openai.breakpoints import with_breakpoints
from proxy.wire.scan import NULL, NotUnderstood, reason, token_limit
from proxy.wire.tool_definitions import declared

PATH = "/v1/responses"
BARE_PATH = PATH.removeprefix("/v1")  # of clients whose base URL has no /v1: most upstreams accept it, too
AZURE_PATHS = ("/openai/v1/responses", "/openai/responses")
COMPACT_PATHS = tuple(f"{path}/compact" for path in (PATH, BARE_PATH, *AZURE_PATHS))
NAME = "responses"

LIMIT = "max_output_tokens"
LEAST_REPLY = 16  # the least limit that OpenAI accepts, in tokens
CONVERSATION = "conversation"
STORED = ("previous_response_id", CONVERSATION)  # what the provider has stored precedes the input
NEEDS = (("vision", b'"input_image"'),)
STREAM = "stream"
STREAMING = (STREAM, "stream_options")
SEALED = frozenset({REASONING, COMPACTION})
UNSPOKEN = frozenset({"additional_tools", "compaction_trigger", "configuration_update"})
KNOWN = frozenset({*CALLS, *OUTPUTS, *HOSTED, *UNSPOKEN, *REQUIRED, REFERENCE})
OUTPUT_SUFFIX = "_output"  # of the types of items that answer a call
NOTHING = (b"null", b"[]", b'""')


class _Item(msgspec.Struct, gc=False):
    type: str | None = None
    role: str | None = None
    call_id: str | None = None
    approval_request_id: str | None = None
    id: str | None = None
    name: str | None = None
    encrypted_content: msgspec.Raw = NULL
    content: msgspec.Raw = NULL


_ITEM = msgspec.json.Decoder(_Item)
_NUMBER: msgspec.json.Decoder[int | float | None] = msgspec.json.Decoder(int | float | None)


def recognises(fields: RawFields) -> bool:
    """Whether a body with these fields is one of this API."""
    return INPUT in fields and "messages" not in fields


def parse(
    body: bytes, pins: Collection[int] = (), start: int = 0, plain: bool = False, known: KnownPrefix | None = None
) -> Prompt:
    """The request as a prompt; see `proxy.model.api.RequestFormat.parse`. Its instructions are message 0. Raises
    `NotUnderstood`."""
    try:
        head, whole = decoded(body)
        if INPUT not in head or "model" not in head:
            raise NotUnderstood("it has no model or no input")
        model = name_of(msgspec.json.decode(head["model"], type=str))
        found = _messages(head, start, known, whole)
    except UNREADABLE as error:
        raise NotUnderstood(reason(error)) from None
    if not found:
        raise NotUnderstood("input is empty")
    continued = _continued(head)
    stored = bool(continued)
    keeps = keeps_reasoning(model, bytes(head.get("reasoning", b"")))
    messages = _in_context(found, keeps=keeps, stored=stored)
    opaque = not plain and _is_opaque(head[INPUT], messages)
    sealed = not plain and any(m.hidden for m in messages)
    fields = copied(head, whole, view_of(INPUT, body))
    return Prompt(
        model=model,
        messages=messages,
        head=fields,
        reply=ReplyLimit(_limit(fields.get(LIMIT)), LIMIT, LEAST_REPLY),
        needs=_needs(fields, b"" if plain else body),
        stream=fields.get(STREAM) == b"true",
        pins=frozenset(pins),
        managed=_is_managed(fields),
        stored=Stored(
            bound=stored or any(m.role in SEALED or m.role == REFERENCE for m in messages),
            continues=continued,
            appends=stored and head.get(CONVERSATION, NULL) != NULL,
        ),
        costs=Costs.of(opaque, sealed),
        api=NAME,
        definitions=declared(fields, ("tools",), "parameters", types=("function", "custom"), choices=("tool_choice",)),
    )


def without_extension(body: bytes) -> tuple[bytes, frozenset[int]]:
    """See `proxy.wire.body.without_message_key`. Raises `NotUnderstood`."""
    return without_message_key(body, INPUT, _listed, _first)


def without_middle(body: bytes, most: tuple[int, int]) -> tuple[bytes, int] | None:
    """See `proxy.model.api.Api.without_middle`. What follows reasoning may refer to it: where there is any, a gap ends
    with reasoning or with the user."""
    head, whole = decoded(body)
    fields: dict[str, bytes] = {key: bytes(head[key]) for key in ("context_management", "truncation") if key in head}
    if _continued(head) or _is_managed(fields) or is_text(head[INPUT]):
        return None
    reasons = oversized_json.holds(head[INPUT], (b'"%b"' % REASONING.encode(),))

    def begins(message: Message) -> bool:
        speaks = message.kind is Kind.USER or message.role == REASONING
        return speaks or (not reasons and message.kind is Kind.ASSISTANT)

    return crowded.without_middle(head, whole, INPUT, items_of(head[INPUT]), _message, most, begins)


def without_stream(body: bytes) -> bytes:
    """The same request for a response in one piece. Raises `NotUnderstood`."""
    return without_fields(body, STREAMING)


def render(prompt: Prompt, plan: Plan) -> bytes:
    """The JSON to send: the client's fields in the client's order, each with its own bytes unless a step changed it."""
    draft = plan.draft
    changed: dict[str, bytes] = {}
    if draft.model != prompt.model:
        changed["model"] = msgspec.json.encode(draft.model)
    if draft.reply != prompt.reply.limit and draft.reply is not None:
        changed[LIMIT] = b"%d" % draft.reply
    if draft.blocks is not plan.before.blocks:
        sent = with_breakpoints(plan.before.messages, list(draft.messages), ("content", "output"))
        changed |= {m.role: m.raw for m in sent if m.role == INSTRUCTIONS}
        changed[INPUT] = b"[" + b",".join(m.raw for m in sent if m.role != INSTRUCTIONS) + b"]"
    if draft.definitions.changed:
        changed |= draft.definitions.fields
    return object_of((key, changed.get(key, raw)) for key, raw in prompt.head.items())


def _messages(head: Mapping[str, msgspec.Raw], start: int, known: KnownPrefix | None, whole: Whole) -> list[Message]:
    """The instructions, and the items from message `start` on, or those that follow the known ones."""
    said, given = head.get(INSTRUCTIONS, NULL), head[INPUT]
    items, all_of = items_of(given), whole
    if is_text(given):  # the item is not in the body as it stands here: its text is taken from there first
        items, all_of = items_of(msgspec.Raw(whole(given))), itself
    if known is not None:
        return [_message(raw, i, all_of) for i, raw in enumerate(items, known.seen.count)]
    lead = [] if said == NULL else [_instructions(said, whole)]
    return [*lead, *(_message(raw, i, all_of) for i, raw in enumerate(items, len(lead)) if i >= start)]


def _listed(given: msgspec.Raw) -> list[msgspec.Raw]:
    """The items of an input; none of none."""
    return [] if given == NULL else items_of(given)


def _first(head: Fields) -> int:
    """The index of the first item: the instructions are message 0."""
    return 0 if head.get(INSTRUCTIONS, NULL) == NULL else 1


def _instructions(said: msgspec.Raw, whole: Whole) -> Message:
    msgspec.json.decode(said, type=str)
    return Message(oversized_json.copy(whole(said)), INSTRUCTIONS, Kind.INSTRUCTION, items_format, 0)


def _message(said: msgspec.Raw, index: int, whole: Whole) -> Message:
    item = _ITEM.decode(said)
    kind = type_of(item.type, item.role)
    raw = oversized_json.copy(whole(said))
    if kind == MESSAGE:
        role = item.role or ""
        return Message(raw, role, ROLES.get(role, Kind.OTHER), items_format, index)
    if kind in SEALED:
        compacts = kind == COMPACTION
        speaks = Kind.OTHER if compacts else Kind.ASSISTANT
        return Message(raw, kind, speaks, items_format, index, hidden=_hidden(item), compacts=compacts)
    calls, answers = _pairing(item, kind)
    speaks = Kind.RESULT if answers else Kind.OTHER if kind in UNSPOKEN else Kind.ASSISTANT
    return Message(raw, kind, speaks, items_format, index, calls, answers, pinned=kind in REQUIRED)


def _pairing(item: _Item, kind: str) -> tuple[tuple[Call, ...], tuple[str, ...]]:
    """The call that an item is, or the id of the call that it answers. An item of an unknown type is one of them if it
    has the id of a call."""
    if kind == APPROVALS[0]:
        return (Call(item.id or "", item.name or kind),), ()
    ident = item.call_id or item.approval_request_id or item.id or ""
    if kind in OUTPUTS or (kind not in KNOWN and item.call_id and kind.endswith(OUTPUT_SUFFIX)):
        return (), (ident,)
    if kind in CALLS or (kind not in KNOWN and item.call_id):
        return (Call(ident, item.name or kind),), ()
    return (), ()


def _hidden(item: _Item) -> int:
    """Tokens of what is encrypted in an item, or stored under its id; none where it says all of its reasoning."""
    if bytes(item.content) not in NOTHING:
        return 0
    size = memoryview(item.encrypted_content).nbytes
    return hidden_tokens(size - len('""') if item.encrypted_content != NULL else 0)


def _in_context(messages: Sequence[Message], *, keeps: bool, stored: bool) -> tuple[Message, ...]:
    """The messages with what follows from their places: the provider drops the reasoning before the last words of the
    user; and what the provider has stored may refer to any of the items, so that all must stay."""
    last = max((i for i, m in enumerate(messages) if m.kind is Kind.USER), default=-1)
    read = -1 if keeps else last
    found = [replace(m, hidden=0) if m.hidden and i < read and not m.compacts else m for i, m in enumerate(messages)]
    return tuple([replace(m, pinned=True) for m in found] if stored else found)


def _continued(head: Mapping[str, msgspec.Raw]) -> str:
    """The id of the stored response or conversation that a request goes on from; empty if there is none."""
    found = [raw_value(head[key]) for key in STORED if key in head]
    ids = (one.get("id") if isinstance(one, dict) else one for one in found)
    return next((ident for ident in ids if isinstance(ident, str) and ident), "")


def _is_managed(head: Mapping[str, bytes]) -> bool:
    """Whether the provider itself shortens what is too long: it compacts, or drops the first items."""
    return head.get("context_management", b"null") not in NOTHING or head.get("truncation") == b'"auto"'


def _is_opaque(said: msgspec.Raw, messages: Sequence[Message]) -> bool:
    if oversized_json.holds(said, UNPROVABLE_PARTS):
        return True
    return any(m.role not in BOUNDED and m.role not in ROLES and m.role != INSTRUCTIONS for m in messages)


def _limit(raw: bytes | None) -> int | None:
    """A reply limit in raw JSON, in tokens (see `token_limit`). Raises `NotUnderstood` for what is not a number."""
    if raw is None:
        return None
    try:
        return token_limit(_NUMBER.decode(raw))
    except msgspec.MsgspecError:
        raise NotUnderstood("a limit is not a number") from None


def _needs(head: Mapping[str, bytes], body: bytes) -> frozenset[str]:
    """The capabilities that a model needs for this request."""
    needs = {name for name, mark in NEEDS if oversized_json.find(body, mark) >= 0}
    if head.get("tools", b"null") not in (b"null", b"[]"):
        needs.add("tools")
    if b'"json_schema"' in head.get("text", b""):
        needs.add("schema")
    return frozenset(needs)
