"""A completion's request: its scan, its prompts as a neutral prompt, and a planned prompt as JSON again.

What no step changed keeps its bytes. One prompt is a text, or a list of token ids; several prompts are answered
separately, so that each has the window to itself. With a suffix the model writes what is missing between the two:
both keep what stands at the gap.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from proxy.model import oversized_json
from proxy.model.api import no_extension, no_known_prefix
from proxy.model.conversation import HEAD, RULED, TAIL, Form, Kind, Message, Prompt, ReplyLimit
from proxy.model.lenient_json import UNREADABLE, RawFields, object_of
from proxy.model.names import name_of
from proxy.model.plan import Plan
from proxy.model.scan import KnownPrefix, Scan, ScanState
from proxy.wire.body import Whole, copied, decoded, without_fields
from proxy.wire.openai import inputs
from proxy.wire.openai.inputs import count_ids, inputs_in, is_list, together
from proxy.wire.scan import NULL, NotUnderstood, asked_tier, check_count, reason, token_limit, unreadable

PATH = "/v1/completions"
BARE_PATH = PATH.removeprefix("/v1")  # of clients whose base URL has no /v1: most upstreams accept it, too
AZURE_PATH = "/openai" + PATH
NAME = "completions"

PROMPT, SUFFIX, LIMIT = "prompt", "suffix", "max_tokens"
STREAMING = ("stream", "stream_options")
NOTHING = (b"null", b'""')
MAX_DIGITS = 10
DEFAULT_REPLY = 16  # tokens, of a request without a limit: OpenAI's, and vLLM's


class _Request(msgspec.Struct, gc=False):
    model: str
    prompt: msgspec.Raw
    max_tokens: int | float | None = None
    suffix: msgspec.Raw = NULL
    n: int | None = None
    best_of: msgspec.Raw = NULL
    stream: bool | None = None
    service_tier: msgspec.Raw = NULL


_REQUEST = msgspec.json.Decoder(_Request)
known_prefix, without_extension = no_known_prefix, no_extension
_NUMBER: msgspec.json.Decoder[int | float | None] = msgspec.json.Decoder(int | float | None)


def recognises(fields: RawFields) -> bool:
    """Whether a body with these fields is one of this API. Responses have templates under the same key."""
    texts = bytes(fields.get(PROMPT, b""))[:1] in (b'"', b"[")
    return texts and not {"messages", "input"} & fields.keys()


def scan(body: bytes, known: KnownPrefix | None = None) -> Scan:
    """The scan of a body. The bytes of its longest prompt, and of the suffix, bound its tokens. Raises
    `NotUnderstood`."""
    try:
        request = _REQUEST.decode(body)
        prompts = inputs_in(request.prompt)
    except UNREADABLE as error:
        raise unreadable(error, body) from None
    if request.n is not None:
        check_count(request.n)
    most = max(memoryview(raw).nbytes for raw in prompts) + memoryview(request.suffix).nbytes
    reserve = _reply(request.max_tokens)
    seen = ScanState(count=len(prompts))
    tier = "" if request.service_tier is NULL else asked_tier(request.service_tier)
    choices = len(prompts) * max(1, request.n or 1, _count(request.best_of))
    return Scan(
        name_of(request.model), reserve, bool(request.stream), most, seen=seen, text=body, tier=tier, choices=choices
    )


def parse(
    body: bytes, pins: Collection[int] = (), start: int = 0, plain: bool = False, known: KnownPrefix | None = None
) -> Prompt:
    """The request as a prompt; see `proxy.model.api.RequestFormat.parse`. Its suffix is the last message. Raises
    `NotUnderstood`."""
    try:
        head, whole = decoded(body)
        if PROMPT not in head or "model" not in head:
            raise NotUnderstood("it has no model or no prompt")
        model = name_of(msgspec.json.decode(head["model"], type=str))
        messages = [_message(raw, PROMPT, i, whole) for i, raw in enumerate(inputs_in(head[PROMPT]))]
        prompts, suffix = len(messages), head.get(SUFFIX, NULL)
        if bytes(whole(suffix)) not in NOTHING:
            messages = [_beside(message, TAIL) for message in messages]
            messages.append(_beside(_message(suffix, SUFFIX, prompts, whole), HEAD))
        asked = _NUMBER.decode(head.get(LIMIT, NULL))
    except UNREADABLE as error:
        raise NotUnderstood(reason(error)) from None
    if len(messages) > prompts > 1:
        raise NotUnderstood("several prompts have one suffix")
    fields = copied(head, whole)
    return Prompt(
        model=model,
        messages=tuple(messages),
        head=fields,
        # What the client did not set cannot be lowered.
        reply=ReplyLimit(_reply(asked), LIMIT, 0 if _is_set(asked) else DEFAULT_REPLY),
        stream=fields.get("stream") == b"true",
        pins=frozenset(pins),
        api=NAME,
        form=Form(texts=True, apart=prompts > 1),
    )


def render(prompt: Prompt, plan: Plan) -> bytes:
    """The JSON to send: the client's fields in the client's order, each with its own bytes unless a step changed it."""
    draft = plan.draft
    changed: dict[str, bytes] = {}
    if draft.model != prompt.model:
        changed["model"] = msgspec.json.encode(draft.model)
    if draft.reply != prompt.reply.limit:
        changed[LIMIT] = b"%d" % (draft.reply or 0)
    if draft.blocks is not plan.before.blocks:
        changed |= _written(list(draft.messages), listed=is_list(msgspec.Raw(prompt.head[PROMPT])))
    return object_of((key, changed.get(key, raw)) for key, raw in prompt.head.items())


def without_stream(body: bytes) -> bytes:
    """The same request for a response in one piece. Raises `NotUnderstood`."""
    return without_fields(body, STREAMING)


def _written(messages: Sequence[Message], *, listed: bool) -> dict[str, bytes]:
    prompts = [message for message in messages if message.role == PROMPT]
    written = {PROMPT: together(prompts, listed=listed)}
    return written | {message.role: message.raw for message in messages if message.role == SUFFIX}


def _message(said: msgspec.Raw, role: str, index: int, whole: Whole) -> Message:
    raw = oversized_json.copy(whole(said))
    keep = "" if count_ids(raw) is None else RULED
    return Message(raw, role, Kind.USER, inputs, index, pinned=True, keep=keep)


def _beside(message: Message, keep: str) -> Message:
    """A message with a gap at the end that must stay."""
    return message if message.keep else replace(message, keep=keep)


def _count(raw: msgspec.Raw) -> int:
    """A whole number; 0 for anything else, which upstreams refuse."""
    text = bytes(raw)
    return int(text) if text.isdigit() and len(text) < MAX_DIGITS else 0


def _is_set(asked: int | float | None) -> bool:
    """Whether a request has a reply limit: several servers take -1 for none."""
    return asked is not None and asked >= 0


def _reply(asked: int | float | None) -> int:
    """The tokens that a reply may have: 0 asks for the echo of the prompt alone. Raises `NotUnderstood`."""
    return (token_limit(asked) or 0) if _is_set(asked) else DEFAULT_REPLY
