"""A request of /api/generate: its scan, its texts as a neutral prompt, and a planned prompt as JSON again.

What no step changed keeps its bytes. The system prompt, the prompt and the suffix are a message each, and so is the
`context`: the ids of the tokens of earlier turns, of which the oldest may go. With a suffix the model writes what is
missing between the two: both keep what stands at the gap. A request without a prompt loads the model, or unloads it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from proxy.model import oversized_json
from proxy.model.api import no_extension, no_known_prefix
from proxy.model.conversation import HEAD, TAIL, TEXT, Costs, Kind, Message, Prompt, ReplyLimit
from proxy.model.lenient_json import UNREADABLE, RawFields
from proxy.model.names import name_of
from proxy.model.plan import Plan
from proxy.model.scan import KnownPrefix, Scan, ScanState
from proxy.wire.body import Whole, copied, decoded
from proxy.wire.ollama.options import LIMIT_FIELD, OWN, STREAM, Options, rendered, reply_limit
from proxy.wire.ollama.options import without_stream as without_stream
from proxy.wire.openai import inputs
from proxy.wire.openai.inputs import count_ids
from proxy.wire.scan import NULL, NotUnderstood, reason, token_limit, unreadable

PATH = "/api/generate"
NAME = "generate"
SYSTEM, CONTEXT, PROMPT, SUFFIX = "system", "context", "prompt", "suffix"
TEXTS = (SYSTEM, PROMPT, SUFFIX)
IMAGES = "images"
NOTHING = (b"null", b'""', b"[]")
FIRST = b'"n'  # bytes with which a text or null begins


class _Request(msgspec.Struct, gc=False):
    model: str
    prompt: msgspec.Raw = NULL
    suffix: msgspec.Raw = NULL
    system: msgspec.Raw = NULL
    context: msgspec.Raw = NULL
    images: msgspec.Raw = NULL
    stream: bool | None = None
    options: Options | None = None


_REQUEST = msgspec.json.Decoder(_Request)
known_prefix, without_extension = no_known_prefix, no_extension


def recognises(fields: RawFields) -> bool:
    """Whether a body with these fields is one of this API."""
    return PROMPT in fields and "messages" not in fields and any(key in fields for key in (*OWN, CONTEXT, "raw"))


def scan(body: bytes, known: KnownPrefix | None = None) -> Scan:
    """The scan of a body. Its bytes bound its tokens, unless it has images. Raises `NotUnderstood`."""
    try:
        request = _REQUEST.decode(body)
    except UNREADABLE as error:
        raise unreadable(error, body) from None
    if any(memoryview(raw)[0] not in FIRST for raw in (request.prompt, request.suffix, request.system)):
        raise NotUnderstood("a text is of a wrong type")
    options = request.options or Options()
    opaque = bytes(request.images) not in NOTHING
    return Scan(
        name_of(request.model),
        token_limit(options.num_predict),
        request.stream is not False,  # the default is a stream
        None if opaque else len(body),
        seen=ScanState(count=1, opaque=opaque),
        text=body,
        window=token_limit(options.num_ctx),
    )


def parse(
    body: bytes, pins: Collection[int] = (), start: int = 0, plain: bool = False, known: KnownPrefix | None = None
) -> Prompt:
    """The request as a prompt; see `proxy.model.api.RequestFormat.parse`. Raises `NotUnderstood`."""
    try:
        head, whole = decoded(body)
        if "model" not in head:
            raise NotUnderstood("it has no model")
        model = name_of(msgspec.json.decode(head["model"], type=str))
        messages = _messages(head, whole)
        limit = reply_limit(head)
    except UNREADABLE as error:
        raise NotUnderstood(reason(error)) from None
    fields = copied(head, whole)
    images = fields.get(IMAGES, b"null") not in NOTHING
    return Prompt(
        model=model,
        messages=messages,
        head=fields,
        reply=ReplyLimit(limit, LIMIT_FIELD),
        needs=frozenset({"vision"} if images else ()),
        stream=fields.get(STREAM) != b"false",
        pins=frozenset(pins),
        costs=Costs.of(images),
        api=NAME,
        form=TEXT,
    )


def render(prompt: Prompt, plan: Plan) -> bytes:
    """The JSON to send; see `proxy.wire.ollama.options.rendered`."""
    if plan.draft.blocks is plan.before.blocks:
        return rendered(prompt, plan, {})
    return rendered(prompt, plan, {m.role: m.raw for m in plan.draft.messages if m.role in prompt.head})


def _messages(head: Mapping[str, msgspec.Raw], whole: Whole) -> tuple[Message, ...]:
    """The texts of a request and its context, in the order in which the model reads them. The prompt is always there.
    Raises msgspec's errors and `NotUnderstood`."""
    given = {name: oversized_json.copy(whole(head.get(name, NULL))) for name in (SYSTEM, CONTEXT, PROMPT, SUFFIX)}
    found = {name: raw for name, raw in given.items() if raw not in NOTHING}
    for name, raw in found.items():
        if (count_ids(raw) is None) != (name in TEXTS):
            raise NotUnderstood(f"{name} is of a wrong type")
    found.setdefault(PROMPT, b'""')
    gap = SUFFIX in found
    order: Sequence[str] = [name for name in given if name in found]
    return tuple([_message(name, found[name], place, gap) for place, name in enumerate(order)])


def _message(name: str, raw: bytes, place: int, gap: bool) -> Message:
    keep = TAIL if name == CONTEXT or (gap and name == PROMPT) else HEAD if name == SUFFIX else ""
    kind = Kind.INSTRUCTION if name == SYSTEM else Kind.OTHER if name == CONTEXT else Kind.USER
    return Message(raw, name, kind, inputs, place, pinned=True, keep=keep)
