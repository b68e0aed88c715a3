"""A request for embeddings: its scan, its inputs as a neutral prompt, and a planned prompt as JSON again.

Each input has the model's window to itself, and there is no reply. What no step changed keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from proxy.model import oversized_json
from proxy.model.api import no_extension, no_known_prefix
from proxy.model.conversation import EMBEDDED, NO_REPLY, RULED, Kind, Message, Prompt
from proxy.model.lenient_json import UNREADABLE, RawFields, object_of
from proxy.model.names import name_of
from proxy.model.plan import Plan
from proxy.model.scan import KnownPrefix, Scan, ScanState
from proxy.wire.body import copied, decoded
from proxy.wire.openai import inputs
from proxy.wire.openai.inputs import count_ids, inputs_in, is_list, together
from proxy.wire.scan import NotUnderstood, reason, unreadable

PATH = "/v1/embeddings"
BARE_PATH = PATH.removeprefix("/v1")  # of clients whose base URL has no /v1: most upstreams accept it, too
AZURE_PATH = "/openai" + PATH
NAME = "embeddings"
INPUT = "input"
OWN = frozenset({"encoding_format", "dimensions"})  # fields that no other API with an input has


class _Request(msgspec.Struct, gc=False):
    model: str
    input: msgspec.Raw


_REQUEST = msgspec.json.Decoder(_Request)
known_prefix, without_extension = no_known_prefix, no_extension


def recognises(fields: RawFields) -> bool:
    """Whether a body with these fields is one of this API. A text alone may be an input of Responses, too."""
    if INPUT not in fields or "messages" in fields:
        return False
    said = bytes(fields[INPUT])
    listed = said[:1] == b"[" and said[1:].lstrip()[:1] not in (b"{", b"]")
    return listed or bool(OWN & fields.keys()) or b"embed" in bytes(fields.get("model", b""))


def scan(body: bytes, known: KnownPrefix | None = None) -> Scan:
    """The scan of a body. The bytes of its longest input bound its tokens. Raises `NotUnderstood`."""
    try:
        request = _REQUEST.decode(body)
        found = inputs_in(request.input)
    except UNREADABLE as error:
        raise unreadable(error, body) from None
    most = max(memoryview(raw).nbytes for raw in found)
    return Scan(name_of(request.model), 0, False, most, seen=ScanState(count=len(found)), text=body)


def parse(
    body: bytes, pins: Collection[int] = (), start: int = 0, plain: bool = False, known: KnownPrefix | None = None
) -> Prompt:
    """The request as a prompt; see `proxy.model.api.RequestFormat.parse`. Raises `NotUnderstood`."""
    try:
        head, whole = decoded(body)
        if INPUT not in head or "model" not in head:
            raise NotUnderstood("it has no model or no input")
        model = name_of(msgspec.json.decode(head["model"], type=str))
        raws = [oversized_json.copy(whole(raw)) for raw in inputs_in(head[INPUT])]
        for raw in raws:
            count_ids(raw)
    except UNREADABLE as error:
        raise NotUnderstood(reason(error)) from None
    messages = tuple(Message(raw, INPUT, Kind.USER, inputs, i, pinned=True, keep=RULED) for i, raw in enumerate(raws))
    return Prompt(
        model=model,
        messages=messages,
        head=copied(head, whole),
        reply=NO_REPLY,
        pins=frozenset(pins),
        api=NAME,
        form=EMBEDDED,
    )


def render(prompt: Prompt, plan: Plan) -> bytes:
    """The JSON to send: the client's fields in the client's order, each with its own bytes unless a step changed it."""
    draft = plan.draft
    changed: dict[str, bytes] = {}
    if draft.model != prompt.model:
        changed["model"] = msgspec.json.encode(draft.model)
    if draft.blocks is not plan.before.blocks:
        listed = is_list(msgspec.Raw(prompt.head[INPUT]))
        changed[INPUT] = together(list(draft.messages), listed=listed)
    return object_of((key, changed.get(key, raw)) for key, raw in prompt.head.items())


def without_stream(body: bytes) -> bytes:
    """The body itself: there are no streams of embeddings."""
    return body
