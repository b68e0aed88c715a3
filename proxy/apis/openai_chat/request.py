"""A chat request as a neutral prompt, and a planned prompt as JSON again. What no step changed keeps its bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from proxy.apis.openai_chat import messages as chat_messages
from proxy.apis.openai_chat.scan import INSTRUCTIONS, MESSAGES, UNPROVABLE_PARTS
from proxy.apis.openai_chat.scan import known_prefix as known_prefix
from proxy.apis.openai_chat.scan import scan as scan
from proxy.model import oversized_json
from proxy.model.bounded import Bounded
from proxy.model.conversation import BOUND, NO_ID, NOT_STORED, Call, Costs, Kind, Message, Prompt, ReplyLimit
from proxy.model.lenient_json import UNREADABLE, RawFields, object_of
from proxy.model.names import name_of
from proxy.model.plan import Plan
from proxy.model.scan import KnownPrefix
from proxy.wire import crowded
from proxy.wire.body import (
    RAW_LIST,
    Whole,
    copied,
    decoded,
    itself,
    least_reply,
    view_of,
    without_fields,
    without_message_key,
)
from proxy.wire.openai.breakpoints import with_breakpoints
from proxy.wire.scan import NotUnderstood, check_count, reason, token_limit
from proxy.wire.tool_definitions import declared

PATH = "/v1/chat/completions"
BARE_PATH = PATH.removeprefix("/v1")  # of clients whose base URL has no /v1: most upstreams accept it, too
AZURE_PATH = "/openai" + PATH
NAME = "chat"

LIMITS = ("max_completion_tokens", "max_tokens")
NEEDS = (("vision", b'"image_url"'), ("audio", b'"input_audio"'))
BINDING = (b'"file_id"', b'"audio"')  # files and recorded speech that the upstream has stored
STREAMING = ("stream", "stream_options")
SCHEMAS = ("tools", "functions")
CHOICES = ("tool_choice", "function_call")
SEARCHED = 1024  # bytes of a message from which on it is remembered whether it may have parts of unknown cost
OPAQUE: Bounded[tuple[int, int], bool] = Bounded(20_000)  # by hash and length of a message


class _Function(msgspec.Struct, gc=False):
    name: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    id: str | None = None
    function: _Function | None = None
    custom: _Function | None = None


class _Message(msgspec.Struct, gc=False):
    role: str
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None
    tool_call_id: str | None = None
    name: str | None = None


_MESSAGE = msgspec.json.Decoder(_Message)
_INT: msgspec.json.Decoder[int | None] = msgspec.json.Decoder(int | None)
_NUMBER: msgspec.json.Decoder[int | float | None] = msgspec.json.Decoder(int | float | None)


def recognises(fields: RawFields) -> bool:
    """Whether a body with these fields is one of this API."""
    return MESSAGES in fields


def parse(
    body: bytes, pins: Collection[int] = (), start: int = 0, plain: bool = False, known: KnownPrefix | None = None
) -> Prompt:
    """The request as a prompt; see `proxy.model.api.RequestFormat.parse`. Raises `NotUnderstood`."""
    try:
        head, whole = decoded(body)
        if "messages" not in head or "model" not in head:
            raise NotUnderstood("it has no model or no messages")
        raws = RAW_LIST.decode(head["messages"])
        if known is None:
            messages = tuple(_message(raws[i], i, whole) for i in _places(raws, start))
        else:
            lead = (_message(msgspec.Raw(known.lead), 0),) if known.lead else ()
            messages = (*lead, *(_message(raw, i, whole) for i, raw in enumerate(raws, known.seen.count)))
        model = name_of(msgspec.json.decode(head["model"], type=str))
    except UNREADABLE as error:
        raise NotUnderstood(reason(error)) from None
    if not messages:
        raise NotUnderstood("messages is empty")
    # The messages of a long body stay a view: bytes would be another copy of the body, besides each message's own.
    fields = copied(head, whole, view_of(MESSAGES, body))
    _check_choices(fields.get("n"))
    limits = {key: limit for key in LIMITS if (limit := _limit(fields.get(key))) is not None}
    each = messages if whole is itself and not start and known is None else ()  # of others not all is in them
    opaque = not plain and _is_opaque(head[MESSAGES], each)
    searched = b"" if plain or (each and not opaque and not _may_be_marked(fields)) else body
    return Prompt(
        model=model,
        messages=messages,
        head=fields,
        reply=ReplyLimit(
            max(limits.values(), default=None),
            next(iter(limits), "max_tokens"),
            least_reply(fields.get("thinking"), "budget_tokens"),
        ),
        needs=_needs(fields, searched),
        stream=fields.get("stream") == b"true",
        pins=frozenset(pins),
        costs=Costs.of(opaque),
        stored=BOUND if any(oversized_json.find(searched, mark) >= 0 for mark in BINDING) else NOT_STORED,
        definitions=declared(fields, SCHEMAS, "parameters", ("function", "custom"), choices=CHOICES),
    )


def _is_opaque(raw: msgspec.Raw, messages: Sequence[Message]) -> bool:
    """Whether the messages may have parts whose cost no count can prove. Long ones are searched once, and remembered: a
    client sends them again at each turn. Without `messages`, all of them are searched in `raw`."""
    if not messages:
        return oversized_json.holds(raw, UNPROVABLE_PARTS)
    short = msgspec.Raw(b"\n".join([m.raw for m in messages if len(m.raw) < SEARCHED]))
    return oversized_json.holds(short, UNPROVABLE_PARTS) or any(
        [_is_long_opaque(m.raw) for m in messages if len(m.raw) >= SEARCHED]
    )


def _may_be_marked(fields: Mapping[str, bytes]) -> bool:
    """Whether a field besides the messages may have one of the marks of `NEEDS` and `BINDING`. Each of these has one of
    `UNPROVABLE_PARTS` in it, so that messages that are not opaque have none of them."""
    rest = b",".join(
        [b'"%b":%b' % (key.encode("utf-8", "surrogatepass"), raw) for key, raw in fields.items() if key != MESSAGES]
    )
    return any(mark in rest for mark in (*BINDING, *(mark for _, mark in NEEDS)))


def _is_long_opaque(raw: bytes) -> bool:
    key = (hash(raw), len(raw))
    found = OPAQUE.get(key)
    return OPAQUE.put(key, oversized_json.holds(msgspec.Raw(raw), UNPROVABLE_PARTS)) if found is None else found


def without_extension(body: bytes) -> tuple[bytes, frozenset[int]]:
    """See `proxy.wire.body.without_message_key`. Raises `NotUnderstood`."""
    return without_message_key(body, MESSAGES)


def without_middle(body: bytes, most: tuple[int, int]) -> tuple[bytes, int] | None:
    """See `proxy.model.api.Api.without_middle`."""
    head, whole = decoded(body)
    return crowded.without_middle(head, whole, MESSAGES, RAW_LIST.decode(head[MESSAGES]), _message, most)


def without_stream(body: bytes) -> bytes:
    """The same request for a response in one piece. Raises `NotUnderstood`."""
    return without_fields(body, STREAMING)


def _places(raws: Sequence[msgspec.Raw], start: int) -> Iterable[int]:
    """The indices of the messages from `start` on, after that of the first instructions before them."""
    if not start:
        return range(len(raws))
    first = next((i for i in range(start) if _MESSAGE.decode(raws[i]).role in INSTRUCTIONS), None)
    return range(start, len(raws)) if first is None else (first, *range(start, len(raws)))


def _check_choices(raw: bytes | None) -> None:
    """Checks the number of choices in raw JSON. Raises `NotUnderstood` unless it is null or a positive integer."""
    try:
        count = None if raw is None else _INT.decode(raw)
    except msgspec.MsgspecError:
        raise NotUnderstood("n is not an integer") from None
    if count is not None:
        check_count(count)


def _limit(raw: bytes | None) -> int | None:
    """A reply limit in raw JSON, in tokens (see `token_limit`). Raises `NotUnderstood` for what is not a number."""
    if raw is None:
        return None
    try:
        return token_limit(_NUMBER.decode(raw))
    except msgspec.MsgspecError:
        raise NotUnderstood("a limit is not a number") from None


def _message(said: msgspec.Raw, index: int, whole: Whole = itself) -> Message:
    found = _MESSAGE.decode(said)
    raw = oversized_json.copy(whole(said))
    calls = tuple(Call(c.id or "", _called(c)) for c in found.tool_calls or ())
    if found.function_call is not None and not calls:
        calls = (Call("", found.function_call.name or ""),)  # before tools: the result has no id and follows at once
    kind = chat_messages.KINDS.get(found.role, Kind.OTHER)
    answers = _answers(found) if kind is Kind.RESULT else ()
    return Message(raw, found.role, kind, chat_messages, index, calls, answers, found.name or "")


def _answers(found: _Message) -> tuple[str, ...]:
    """The id of the call whose result a message is; none where a tool's message names none."""
    if found.role == "function":
        return NO_ID
    return () if found.tool_call_id is None else (found.tool_call_id,)


def _called(call: _ToolCall) -> str:
    target = call.function or call.custom
    return (target.name or "") if target is not None else ""


def _needs(head: Mapping[str, bytes], body: bytes) -> frozenset[str]:
    """The capabilities that a model needs for this request."""
    needs = {name for name, mark in NEEDS if oversized_json.find(body, mark) >= 0}
    if any(head.get(key, b"null") not in (b"null", b"[]") for key in SCHEMAS):
        needs.add("tools")
    if b'"json_schema"' in head.get("response_format", b""):
        needs.add("schema")
    return frozenset(needs)


def render(prompt: Prompt, plan: Plan) -> bytes:
    """The JSON to send: the client's fields in the client's order, each with its own bytes unless a step changed it."""
    draft = plan.draft
    changed: dict[str, bytes] = {}
    if draft.model != prompt.model:
        changed["model"] = msgspec.json.encode(draft.model)
    if draft.reply != prompt.reply.limit and draft.reply is not None:
        changed |= _limits(prompt.head, draft.reply)
    if draft.blocks is not plan.before.blocks:
        sent = with_breakpoints(plan.before.messages, list(draft.messages), ("content",))
        changed["messages"] = b"[" + b",".join(m.raw for m in sent) + b"]"
    if draft.definitions.changed:
        changed |= draft.definitions.fields
    fields = {key: changed.get(key, raw) for key, raw in prompt.head.items()}
    if draft.model != prompt.model and draft.window.limit_field is not None:
        fields = _in_field(fields, draft.window.limit_field)
    return object_of(fields.items())


def _in_field(fields: Mapping[str, bytes], field: str) -> dict[str, bytes]:
    """The fields with the reply limit in the one field that a model accepts, `field`."""
    limits = [key for key in (field, *LIMITS) if fields.get(key, b"null") != b"null"]
    limit = fields[limits[0]] if limits else b"null"
    return {field if key in LIMITS else key: limit if key in LIMITS else raw for key, raw in fields.items()}


def _limits(head: Mapping[str, bytes], reply: int) -> dict[str, bytes]:
    """The limits that the client set, lowered to `reply` tokens if they are larger; none is added."""
    limits = {key: _limit(head.get(key)) for key in LIMITS}
    return {key: str(reply).encode() for key, limit in limits.items() if limit is not None and limit > reply}
