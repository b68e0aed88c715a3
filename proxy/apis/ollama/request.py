"""A request of Ollama's API as a neutral prompt, and a planned prompt as JSON again. What no step changed keeps its
bytes.

Calls have no ids in it: results belong to the calls before them by the tool's name, else by their order. They get ids
here, which are not sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from proxy.apis.ollama import messages as ollama_messages
from proxy.apis.ollama.scan import API_NAME, MESSAGES, has_images
from proxy.apis.ollama.scan import known_prefix as known_prefix
from proxy.apis.ollama.scan import scan as scan
from proxy.model import oversized_json
from proxy.model.conversation import NO_ID, Call, Costs, Kind, Message, Prompt, ReplyLimit
from proxy.model.lenient_json import UNREADABLE, RawFields
from proxy.model.names import name_of
from proxy.model.plan import Plan
from proxy.model.scan import KnownPrefix
from proxy.wire.body import (
    RAW_LIST,
    Whole,
    copied,
    decoded,
    view_of,
    without_message_key,
)
from proxy.wire.ollama.options import LIMIT_FIELD, OWN, rendered, reply_limit
from proxy.wire.ollama.options import without_stream as without_stream
from proxy.wire.scan import NotUnderstood, reason
from proxy.wire.tool_definitions import declared

PATH = "/api/chat"


class _Function(msgspec.Struct, gc=False):
    name: str = ""


class _ToolCall(msgspec.Struct, gc=False):
    id: str = ""
    function: _Function | None = None


class _Message(msgspec.Struct, gc=False):
    role: str
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str = ""
    tool_name: str = ""


_MESSAGE = msgspec.json.Decoder(_Message)


def recognises(fields: RawFields) -> bool:
    """Whether a body with these fields is one of this API."""
    return MESSAGES in fields and any(key in fields for key in OWN)


def parse(
    body: bytes, pins: Collection[int] = (), start: int = 0, plain: bool = False, known: KnownPrefix | None = None
) -> Prompt:
    """The request as a prompt; see `proxy.model.api.RequestFormat.parse`. Raises `NotUnderstood`."""
    try:
        head, whole = decoded(body)
        if MESSAGES not in head or "model" not in head:
            raise NotUnderstood("it has no model or no messages")
        raws = RAW_LIST.decode(head[MESSAGES])
        messages = _messages(raws[start:], start if known is None else known.seen.count, whole)
        model = name_of(msgspec.json.decode(head["model"], type=str))
        limit = reply_limit(head)
    except UNREADABLE as error:
        raise NotUnderstood(reason(error)) from None
    if not raws and known is None:
        raise NotUnderstood("messages is empty")
    images = not plain and has_images(head[MESSAGES])
    # The messages of a long body stay a view: bytes would be another copy of the body, besides each message's own.
    fields = copied(head, whole, view_of(MESSAGES, body))
    return Prompt(
        model=model,
        messages=messages,
        head=fields,
        reply=ReplyLimit(limit, LIMIT_FIELD),
        needs=_needs(fields, images),
        stream=fields.get("stream") != b"false",
        pins=frozenset(pins),
        costs=Costs.of(images),
        api=API_NAME,
        definitions=declared(fields, ("tools",), "parameters", ("function",)),
    )


def render(prompt: Prompt, plan: Plan) -> bytes:
    """The JSON to send; see `proxy.wire.ollama.options.rendered`."""
    changed = dict(plan.draft.definitions.fields) if plan.draft.definitions.changed else {}
    if plan.draft.blocks is not plan.before.blocks:
        changed[MESSAGES] = b"[" + b",".join([m.raw for m in plan.draft.messages]) + b"]"
    return rendered(prompt, plan, changed)


def without_extension(body: bytes) -> tuple[bytes, frozenset[int]]:
    """See `proxy.wire.body.without_message_key`. Raises `NotUnderstood`."""
    return without_message_key(body, MESSAGES)


def _messages(raws: Iterable[msgspec.Raw], first: int, whole: Whole) -> tuple[Message, ...]:
    """The messages, the first of them with the index `first`. Calls and results have ids."""
    found: list[Message] = []
    waiting: list[Call] = []  # calls without a result, named as the client names them
    for index, said in enumerate(raws, first):
        message = _MESSAGE.decode(said)
        kind = ollama_messages.KINDS.get(message.role, Kind.OTHER)
        calls = tuple([Call(f"{index}.{i}", _named(call)) for i, call in enumerate(message.tool_calls or ())])
        answers = (_answered(message, waiting),) if kind is Kind.RESULT else ()
        if kind is not Kind.RESULT:
            waiting = list(calls)
        raw = oversized_json.copy(whole(said))
        found.append(Message(raw, message.role, kind, ollama_messages, index, calls, answers))
    return tuple(found)


def _named(call: _ToolCall) -> str:
    return "" if call.function is None else call.function.name


def _answered(message: _Message, waiting: list[Call]) -> str:
    """The id of the call that a result answers, which waits no more; of several of its tool the first."""
    if not waiting:
        return NO_ID[0]
    named = next((call for call in waiting if call.name == message.tool_name), waiting[0])
    waiting.remove(named)
    return named.id


def _needs(head: Mapping[str, bytes], images: bool) -> frozenset[str]:
    """The capabilities that a model needs for this request. Any model of Ollama's can be held to a schema."""
    tools = head.get("tools", b"null") not in (b"null", b"[]")
    return frozenset(name for name, needed in (("vision", images), ("tools", tools)) if needed)
