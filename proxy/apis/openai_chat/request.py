"""POST /v1/chat/completions: its JSON as a Prompt, and a Draft as its JSON again; what is unchanged keeps its bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

import msgspec

from proxy.apis.openai_chat import messages as chat_messages
from proxy.apis.openai_chat.scan import INSTRUCTIONS, MESSAGES, UNPROVABLE_PARTS
from proxy.model import oversized_json
from proxy.model.conversation import NO_ID, Call, Kind, Message, Prompt
from proxy.model.names import name_of
from proxy.model.plan import Plan
from proxy.model.scan import KnownPrefix
from proxy.wire.controls import MESSAGE_KEY as OURS
from proxy.wire.scan import NULL, NotUnderstood, check_count, reason, token_limit

PATH = "/v1/chat/completions"
BARE_PATH = PATH.removeprefix("/v1")  # of a client whose base URL is ours without /v1: most upstreams take it, too
NAME = "chat"

LIMITS = ("max_completion_tokens", "max_tokens")
NEEDS = (("vision", b'"image_url"'), ("audio", b'"input_audio"'))
STREAMING = ("stream", "stream_options")
PIN = "pin"


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


_HEAD = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_MESSAGE = msgspec.json.Decoder(_Message)
_INT: msgspec.json.Decoder[int | None] = msgspec.json.Decoder(int | None)
_NUMBER: msgspec.json.Decoder[int | float | None] = msgspec.json.Decoder(int | float | None)


def parse(
    body: bytes, pins: Collection[int] = (), start: int = 0, plain: bool = False, known: KnownPrefix | None = None
) -> Prompt:
    """The request understood; of the messages before `start` only the first instructions. `plain` says that no
    content has parts besides text, which a glance tells cheaply. Where messages are `known`, `body` is without them
    (a glance's `text`). Raises `NotUnderstood`."""
    try:
        outline = oversized_json.outline(body)
        head = _HEAD.decode(body if outline is None else outline.text)
        if "messages" not in head or "model" not in head:
            raise NotUnderstood("it has no model or no messages")
        raws = _LIST.decode(head["messages"])
        if known is None:
            messages = tuple(_message(raws[i], i, outline) for i in _wanted(raws, start))
        else:
            lead = (_message(msgspec.Raw(known.lead), 0),) if known.lead else ()
            messages = (*lead, *(_message(raw, i, outline) for i, raw in enumerate(raws, known.seen.count)))
        model = name_of(msgspec.json.decode(head["model"], type=str))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotUnderstood(reason(error)) from None
    if not messages:
        raise NotUnderstood("messages is empty")
    # Of a long body its messages stay a view: as bytes they would be its second copy, beside the messages' own.
    view = MESSAGES if len(body) > oversized_json.OUTSIZE else None
    whole = _itself if outline is None else outline.whole
    fields = {key: cast(bytes, whole(raw)) if key == view else bytes(whole(raw)) for key, raw in head.items()}
    _check_answers(fields.get("n"))
    asked = {key: ask for key in LIMITS if (ask := _limit(fields.get(key))) is not None}
    return Prompt(
        model=model,
        messages=messages,
        head=fields,
        ask=max(asked.values(), default=None),
        ask_field=next(iter(asked), "max_tokens"),
        reply_floor=_thinking(fields),
        needs=_needs(fields, b"" if plain else body),
        stream=fields.get("stream") == b"true",
        pins=frozenset(pins),
        opaque=not plain and oversized_json.holds(head[MESSAGES], UNPROVABLE_PARTS),
    )


def without_ours(body: bytes) -> tuple[bytes, frozenset[int]]:
    """The body written anew without the key of our own in its messages, and the places of those that it pins
    (`{"pin": true}`). All else keeps its bytes; a body without the key is returned itself. Raises `NotUnderstood`."""
    try:
        outline = oversized_json.outline(body)
        head = _HEAD.decode(body if outline is None else outline.text)
        messages = [_HEAD.decode(raw) for raw in _LIST.decode(head.get("messages", NULL))]
        if not any(OURS in m for m in messages):
            return body, frozenset()
        ours = [msgspec.json.decode(m.pop(OURS, NULL)) for m in messages]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotUnderstood(reason(error)) from None
    whole = _itself if outline is None else outline.whole
    written = b",".join(_object((key, bytes(whole(raw))) for key, raw in m.items()) for m in messages)
    fields = {key: b"[" + written + b"]" if key == MESSAGES else bytes(whole(raw)) for key, raw in head.items()}
    pins = frozenset(i for i, said in enumerate(ours) if isinstance(said, dict) and said.get(PIN) is True)
    return _object(fields.items()), pins


def without_stream(body: bytes) -> bytes:
    """The same request, wanting its answer in one piece. Raises `NotUnderstood`."""
    try:
        outline = oversized_json.outline(body)
        head = _HEAD.decode(body if outline is None else outline.text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotUnderstood(reason(error)) from None
    whole = _itself if outline is None else outline.whole
    return _object((key, bytes(whole(raw))) for key, raw in head.items() if key not in STREAMING)


def _wanted(raws: Sequence[msgspec.Raw], start: int) -> Iterable[int]:
    """The places of the messages from `start` on, and before them that of the first instructions."""
    if not start:
        return range(len(raws))
    first = next((i for i in range(start) if _MESSAGE.decode(raws[i]).role in INSTRUCTIONS), None)
    return range(start, len(raws)) if first is None else (first, *range(start, len(raws)))


def _check_answers(raw: bytes | None) -> None:
    """Sees that a number of answers from raw JSON can be. Raises `NotUnderstood` for what is no positive integer."""
    try:
        count = None if raw is None else _INT.decode(raw)
    except msgspec.MsgspecError:
        raise NotUnderstood("n is no integer") from None
    if count is not None:
        check_count(count)


def _limit(raw: bytes | None) -> int | None:
    """A reply limit from raw JSON (see `token_limit`). Raises `NotUnderstood` for what is no number."""
    if raw is None:
        return None
    try:
        return token_limit(_NUMBER.decode(raw))
    except msgspec.MsgspecError:
        raise NotUnderstood("a limit is no number") from None


def _itself(raw: msgspec.Raw) -> msgspec.Raw:
    return raw


def _message(said: msgspec.Raw, index: int, outline: oversized_json.Outline | None = None) -> Message:
    found = _MESSAGE.decode(said)
    raw = oversized_json.copy(said if outline is None else outline.whole(said))
    calls = tuple(Call(c.id, _called(c)) for c in found.tool_calls or ())
    if found.function_call is not None and not calls:
        calls = (Call("", found.function_call.name),)  # before tools: the result has no id and follows at once
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
    needs = {name for name, mark in NEEDS if oversized_json.find(body, mark) >= 0}
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
    fields = {key: changed.get(key, raw) for key, raw in prompt.head.items()}
    if draft.model != prompt.model and draft.window.limit_field is not None:
        fields = _in_field(fields, draft.window.limit_field)
    return _object(fields.items())


def _in_field(fields: Mapping[str, bytes], field: str) -> dict[str, bytes]:
    """The reply limit in the one field that a model takes, where the client's stands in another."""
    limits = [key for key in (field, *LIMITS) if fields.get(key, b"null") != b"null"]
    limit = fields[limits[0]] if limits else b"null"
    return {field if key in LIMITS else key: limit if key in LIMITS else raw for key, raw in fields.items()}


def _limits(head: Mapping[str, bytes], reply: int) -> dict[str, bytes]:
    """Every limit that the client set and that is over the reply, lowered; none is ever added."""
    asked = {key: _limit(head.get(key)) for key in LIMITS}
    return {key: str(reply).encode() for key, ask in asked.items() if ask is not None and ask > reply}


def _object(pairs: Iterable[tuple[str, bytes]]) -> bytes:
    written: list[bytes] = []
    for key, raw in pairs:
        written += [b"," if written else b"{", msgspec.json.encode(key), b":", raw]
    return b"".join((*written, b"}")) if written else b"{}"
