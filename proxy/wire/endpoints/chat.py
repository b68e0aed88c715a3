"""POST /v1/chat/completions: its JSON as a Prompt, and a Draft as its JSON again; what is unchanged keeps its bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter

import msgspec
from xxhash import xxh3_64

from proxy.types import Call, Glance, Message, Plan, Prompt

PATH = "/v1/chat/completions"
NAME = "chat"

LIMITS = ("max_completion_tokens", "max_tokens")
RESULTS = ("tool", "function")
INSTRUCTIONS = ("system", "developer")
QUOTED = {role: b'"%s"' % role.encode() for role in (*INSTRUCTIONS, "user", "assistant", *RESULTS)}
# Parts and fields whose cost no count of bytes bounds: an image by URL, a file by id, hidden search context, ...
UNPROVABLE_PARTS = (b'"image', b'_image"', b'"video', b'_video"', b'audio"', b'"file', b'_file"', b'"document')
UNPROVABLE_HEAD = ("web_search_options", "prediction", "audio", "modalities")
# The fields that decide what a prompt costs besides its messages.
COSTLY = attrgetter("tools", "functions", "response_format", "tool_choice", "function_call", *UNPROVABLE_HEAD)
REFERS = b'"$ref"'  # a schema that refers to its own parts is written out in full: it may grow without bound
# Where more may be counted than there are bytes: a call's arguments are parsed and written again (five bytes of 1e15,
# become nine tokens), and results of parallel calls as ASCII JSON with blanks (two bytes of a letter become six).
WRITTEN, ESCAPED = 2, 3
LIST = ord("[")
NEEDS = (("vision", b'"image_url"'), ("audio", b'"input_audio"'))
MOST = 10**15  # larger numbers overflow what we reckon with
NULL = msgspec.Raw(b"null")
OURS = "plimsoll"  # a message's own key for us: {"pin": true}; no provider may see it
PIN = "pin"


class NotUnderstood(ValueError):
    """The body is no chat request that we can plan with; its text says why and holds nothing of the body."""


class _Seen(msgspec.Struct, gc=False):
    role: str = ""
    content: msgspec.Raw = NULL
    tool_calls: list[msgspec.Raw] | None = None
    function_call: msgspec.Raw = NULL
    tool_call_id: msgspec.Raw = NULL
    name: msgspec.Raw = NULL
    refusal: msgspec.Raw = NULL
    audio: msgspec.Raw = NULL
    plimsoll: msgspec.Raw = NULL


class _Top(msgspec.Struct, gc=False):
    model: str
    messages: list[_Seen]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    stream: bool | None = None
    tools: msgspec.Raw = NULL
    functions: msgspec.Raw = NULL
    response_format: msgspec.Raw = NULL
    tool_choice: msgspec.Raw = NULL
    function_call: msgspec.Raw = NULL
    web_search_options: msgspec.Raw = NULL
    prediction: msgspec.Raw = NULL
    audio: msgspec.Raw = NULL
    modalities: msgspec.Raw = NULL


class _Function(msgspec.Struct, gc=False):
    name: str = ""


class _ToolCall(msgspec.Struct, gc=False):
    id: str = ""
    function: _Function | None = None
    custom: _Function | None = None


class _Message(msgspec.Struct, gc=False):
    role: str
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None
    tool_call_id: str | None = None
    name: str | None = None


_TOP = msgspec.json.Decoder(_Top)
_HEAD = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_MESSAGE = msgspec.json.Decoder(_Message)
_INT: msgspec.json.Decoder[int | None] = msgspec.json.Decoder(int | None)


def glance(body: bytes) -> Glance:
    """A first look, in one pass and with contents left unread. Raises `NotUnderstood`.

    Its bytes bound a plain prompt's tokens: a byte-level tokenizer never makes more tokens than there are bytes, and
    the frame that a message costs is shorter than its JSON; only what is rewritten may grow (`WRITTEN`, `ESCAPED`).
    Instructions that stand first behind other messages are no part of what the first message costs: no marks then."""
    try:
        top = _TOP.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotUnderstood(_reason(error)) from None
    asks = [_checked(ask) for ask in (top.max_completion_tokens, top.max_tokens) if ask is not None]
    n = 1 if top.n is None else _checked(top.n)
    opaque, heard, surplus, late, parallel, keyed = False, False, 0, False, False, False
    for place, m in enumerate(top.messages):  # one pass: a long conversation has thousands
        content = m.content
        if memoryview(content)[0] == LIST and not opaque:
            opaque = any(mark in bytes(content) for mark in UNPROVABLE_PARTS)
        if m.tool_calls:
            parallel = len(m.tool_calls) > 1
            surplus += (WRITTEN - 1) * sum(map(_size, m.tool_calls))
        elif parallel and m.role in RESULTS:
            surplus += (ESCAPED - 1) * _size(content)
        if m.function_call is not NULL:
            surplus += (WRITTEN - 1) * _size(m.function_call)
        if m.audio is not NULL and bytes(m.audio) != b"null":
            heard = True
        if m.plimsoll is not NULL:
            keyed = True
        if place and m.role in INSTRUCTIONS:
            late = True
    late = late and top.messages[0].role not in INSTRUCTIONS
    return Glance(
        model=top.model,
        reserve=n * max(asks) if asks else None,
        n=n,
        stream=bool(top.stream),
        most=None if opaque or heard or _unprovable(top) else len(body) + surplus,
        head=b"\0".join(COSTLY(top)),
        marks=None if opaque or late else partial(_marks, top.messages),
        keyed=keyed,
    )


def _marks(messages: Sequence[_Seen], seed: int) -> list[int]:
    """One digest for each message, of all that counts in it and in those before it: JSON values one after another
    cannot be mistaken for others."""
    running = xxh3_64(seed=seed)
    update, digest, found = running.update, running.intdigest, []
    for m in messages:
        update(QUOTED.get(m.role) or msgspec.json.encode(m.role))  # a made-up role must not pass for other messages
        update(m.content)
        if m.tool_calls is not None or m.tool_call_id is not NULL or m.name is not NULL:
            for raw in m.tool_calls or ():
                update(raw)
            update(b"|")
            update(m.tool_call_id)
            update(m.name)
        if m.function_call is not NULL or m.refusal is not NULL:
            update(b"||")
            update(m.function_call)
            update(m.refusal)
        found.append(digest())
    return found


def _size(raw: msgspec.Raw) -> int:
    return memoryview(raw).nbytes


def _unprovable(top: _Top) -> bool:
    """Whether something stands beside its messages whose cost its bytes do not bound."""
    for value in (top.web_search_options, top.prediction, top.audio, top.modalities):
        if value is not NULL and bytes(value) != b"null":
            return True
    return any(
        schema is not NULL and REFERS in bytes(schema) for schema in (top.tools, top.functions, top.response_format)
    )


def _checked(count: int) -> int:
    if not 1 <= count <= MOST:
        raise NotUnderstood("a limit or n is less than 1, or no number of anything")
    return count


def parse(body: bytes, pins: Collection[int] = (), start: int = 0, plain: bool = False) -> Prompt:
    """The request understood; of the messages before `start` only the first instructions. `plain` says that no
    content has parts besides text, which a glance tells cheaply. Raises `NotUnderstood`."""
    try:
        head = _HEAD.decode(body)
        if "messages" not in head or "model" not in head:
            raise NotUnderstood("it has no model or no messages")
        raws = _LIST.decode(head["messages"])
        messages = tuple(_message(bytes(raws[i]), i) for i in _wanted(raws, start))
        model = msgspec.json.decode(head["model"], type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotUnderstood(_reason(error)) from None
    if not messages:
        raise NotUnderstood("messages is empty")
    fields = {key: bytes(raw) for key, raw in head.items()}
    limits = [key for key in LIMITS if _positive(fields.get(key)) is not None]
    return Prompt(
        model=model,
        messages=messages,
        head=fields,
        ask=max((_positive(fields[key]) or 0 for key in limits), default=None),
        ask_field=limits[0] if limits else "max_tokens",
        n=_positive(fields.get("n")) or 1,
        reply_floor=_thinking(fields),
        needs=_needs(fields, b"" if plain else body),
        stream=fields.get("stream") == b"true",
        pins=frozenset(pins),
        opaque=not plain and any(mark in fields["messages"] for mark in UNPROVABLE_PARTS),
    )


def without_ours(body: bytes) -> tuple[bytes, frozenset[int]]:
    """The body written anew without the key of our own in its messages, and the places of those that it pins
    (`{"pin": true}`). All else keeps its bytes. Raises `NotUnderstood`."""
    try:
        head = _HEAD.decode(body)
        messages = [_HEAD.decode(raw) for raw in _LIST.decode(head["messages"])]
        ours = [msgspec.json.decode(m.pop(OURS, NULL)) for m in messages]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotUnderstood(_reason(error)) from None
    written = b",".join(_object((key, bytes(raw)) for key, raw in m.items()) for m in messages)
    fields = {**{key: bytes(raw) for key, raw in head.items()}, "messages": b"[" + written + b"]"}
    pins = frozenset(i for i, said in enumerate(ours) if isinstance(said, dict) and said.get(PIN) is True)
    return _object(fields.items()), pins


def _wanted(raws: Sequence[msgspec.Raw], start: int) -> Iterable[int]:
    """The places of the messages from `start` on, and before them that of the first instructions."""
    if not start:
        return range(len(raws))
    first = next((i for i in range(start) if _MESSAGE.decode(raws[i]).role in INSTRUCTIONS), None)
    return range(start, len(raws)) if first is None else (first, *range(start, len(raws)))


def _reason(error: Exception) -> str:
    """What a decoder says of where it stopped, without anything of the text."""
    return "it is no JSON that we understand" if isinstance(error, (UnicodeDecodeError, RecursionError)) else str(error)


def _positive(raw: bytes | msgspec.Raw | None) -> int | None:
    """A count from raw JSON; None for null or absent. Raises `NotUnderstood` for anything but a positive integer."""
    if raw is None:
        return None
    try:
        value = _INT.decode(raw)
    except msgspec.MsgspecError:
        raise NotUnderstood("a limit or n is no integer") from None
    return None if value is None else _checked(value)


def _message(raw: bytes, index: int) -> Message:
    found = _MESSAGE.decode(raw)
    calls = tuple(Call(c.id, _called(c)) for c in found.tool_calls or ())
    if found.function_call is not None and not calls:
        calls = (Call("", found.function_call.name),)  # before tools: the result has no id and follows at once
    answers = found.tool_call_id
    if found.role == "function":
        answers = ""
    elif found.role != "tool":
        answers = None
    return Message(raw, found.role, index, calls, answers)


def _called(call: _ToolCall) -> str:
    target = call.function or call.custom
    return target.name if target is not None else ""


def _thinking(head: Mapping[str, bytes]) -> int:
    """The least reply limit beside a thinking budget: more than the budget itself (Anthropic refuses less)."""
    raw = head.get("thinking")
    if raw is None:
        return 0
    thinking = msgspec.json.decode(raw)
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return budget + 1 if isinstance(budget, int) and budget > 0 else 0


def _needs(head: Mapping[str, bytes], body: bytes) -> frozenset[str]:
    """What a model must be able to do to take this request's place."""
    needs = {name for name, mark in NEEDS if mark in body}
    if any(head.get(key, b"null") not in (b"null", b"[]") for key in ("tools", "functions")):
        needs.add("tools")
    if b'"json_schema"' in head.get("response_format", b""):
        needs.add("schema")
    return frozenset(needs)


def render(prompt: Prompt, plan: Plan) -> bytes:
    """The JSON of what is to be sent: the client's fields in the client's order, each with its own bytes unless a
    step changed it."""
    draft = plan.draft
    changed: dict[str, bytes] = {}
    if draft.model != prompt.model:
        changed["model"] = msgspec.json.encode(draft.model)
    if draft.reply != prompt.ask and draft.reply is not None:
        changed |= _limits(prompt.head, draft.reply)
    if draft.blocks is not plan.before.blocks:
        changed["messages"] = b"[" + b",".join(m.raw for m in draft.messages) + b"]"
    return _object((key, changed.get(key, raw)) for key, raw in prompt.head.items())


def _limits(head: Mapping[str, bytes], reply: int) -> dict[str, bytes]:
    """Every limit that the client set and that is over the reply, lowered; none is ever added."""
    asked = {key: _positive(head.get(key)) for key in LIMITS}
    return {key: str(reply).encode() for key, ask in asked.items() if ask is not None and ask > reply}


def _object(pairs: Iterable[tuple[str, bytes]]) -> bytes:
    return b"{" + b",".join(msgspec.json.encode(key) + b":" + raw for key, raw in pairs) + b"}"
