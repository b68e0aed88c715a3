"""The scan of a request: its model, its reply limit, and a bound on its tokens; contents are not decoded.

See `proxy.wire.scan` for how prefixes of growing conversations are recognised. The instructions, if there are any, are
message 0 of a request, and its input items follow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from proxy.apis.openai_responses.items import CALLS, COMPACTION, MESSAGE, OUTPUTS, REASONING, USER, type_of
from proxy.model import oversized_json
from proxy.model.lenient_json import UNREADABLE
from proxy.model.names import name_of
from proxy.model.scan import KnownPrefix, PrefixDigest, Scan, ScanState
from proxy.wire import scan as shared
from proxy.wire.scan import NULL, NotUnderstood, Update, asked_tier, decoded_request, prefix_digest, reason, token_limit

INPUT = "input"
QUOTE = ord('"')
TRIGGER = "compaction_trigger"
NAME = b"responses"  # in the head: a message may be the same JSON in another API, where it costs something else
# Parts whose cost no count of bytes bounds: an image by URL, a file by id.
UNPROVABLE_PARTS = (b'_image"', b'_file"', b'_audio"', b'"computer_scree')
# Fields with content that the request does not contain: what the provider has stored, reasoning that it adds.
UNPROVABLE = attrgetter("previous_response_id", "conversation", "prompt")
# The fields that decide what a prompt costs besides its messages.
OVERHEAD = attrgetter(
    *("instructions", "tools", "text", "tool_choice", "parallel_tool_calls", "reasoning"),
    *("previous_response_id", "conversation", "prompt", "context_management", "truncation"),
)
IN_THE_BODY = frozenset({"function", "custom"})  # types of tools that cost what they say
REFERENCE = b'"$ref"'  # a schema that refers to its own parts is written out in full: it may grow without bound
# Items whose cost their bytes bound.
BOUNDED = frozenset({MESSAGE, *CALLS, *OUTPUTS, REASONING, COMPACTION, "configuration_update"})
# What parallel calls cost may exceed their bytes: they are parsed and written again (five bytes of 1e15, become nine
# tokens).
REWRITTEN = 2  # tokens per byte, at most
PRO = b'"pro"'  # a mode of reasoning for which the provider adds some 2,000 tokens

# What encrypted reasoning costs, by the characters of its base64: fitted to recorded usage, with a median error of 6 %.
ENCRYPTED, PER_CHARACTER, LEAST_ENCRYPTED = 880, 0.144, 10
STORED = 200  # tokens of reasoning that only its id stands for: 10 to 180 were recorded
KEEPS_REASONING = re.compile(r"gpt-(5\.[6-9]|5\.\d\d|[6-9])")  # models that read the reasoning of earlier turns, too
ALL_TURNS = b'"all_turns"'  # a value of `reasoning.context`
UNTIL_USER, FOR_GOOD = 1, 2  # values of `ScanState.hidden`


class _Item(msgspec.Struct, gc=False):
    type: str | None = None
    role: str | None = None
    content: msgspec.Raw = NULL
    output: msgspec.Raw = NULL
    encrypted_content: msgspec.Raw = NULL
    plimsoll: msgspec.Raw = NULL


class _Request(msgspec.Struct, gc=False):
    model: str
    input: msgspec.Raw
    instructions: msgspec.Raw = NULL
    max_output_tokens: int | float | None = None
    stream: bool | None = None
    background: bool | None = None
    tools: msgspec.Raw = NULL
    text: msgspec.Raw = NULL
    tool_choice: msgspec.Raw = NULL
    parallel_tool_calls: msgspec.Raw = NULL
    reasoning: msgspec.Raw = NULL
    previous_response_id: msgspec.Raw = NULL
    conversation: msgspec.Raw = NULL
    prompt: msgspec.Raw = NULL
    context_management: msgspec.Raw = NULL
    truncation: msgspec.Raw = NULL
    service_tier: msgspec.Raw = NULL


class _Tool(msgspec.Struct, gc=False):
    type: str = ""


_REQUEST = msgspec.json.Decoder(_Request)
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_ITEM = msgspec.json.Decoder(_Item)
_TOOLS = msgspec.json.Decoder(list[_Tool] | None)
START = ScanState()


def scan(body: bytes, known: KnownPrefix | None = None) -> Scan:
    """The scan of a body, in one pass. Raises `NotUnderstood`.

    Its bytes bound a plain prompt's tokens, as `proxy.apis.openai_chat.scan` says of chat. There are no digests where
    the cost of an item depends on what follows it: reasoning is read until the user speaks again.

    `known` is a prefix of the body; the caller has compared its bytes.
    """
    request, text, known = decoded_request(_REQUEST, body, known, INPUT)
    lead = [request.instructions] if _says(request.instructions) else []
    if known is not None and b"".join(lead) != known.lead:
        return scan(body)  # its first message is another one
    try:
        items = items_of(request.input)
        keeps = keeps_reasoning(request.model, bytes(request.reasoning))
        state = _state_after(items, START if known is None else known.seen, keeps=keeps)
        continues = any(map(_says, UNPROVABLE(request)))
        bounded = not state.opaque and not continues and not _is_unprovable(request)
    except UNREADABLE as error:
        if known is not None:
            return scan(body)  # so that the reason is about the body that the client sent
        raise NotUnderstood(reason(error)) from None
    if known is None and lead:
        state, items = replace(state, count=1 + state.count), [*lead, *items]
    uncached = state.opaque or state.hidden or continues
    return Scan(
        name_of(request.model),
        token_limit(request.max_output_tokens),
        bool(request.stream),
        len(body) + state.surplus if bounded else None,
        head=b"\0".join((NAME, *OVERHEAD(request))),
        marks=None if uncached else partial(prefix_digest, scan, body, items, known, _hash),
        seen=state,
        known=known,
        text=text,
        background=bool(request.background),
        compacts=state.compacts,
        tier="" if request.service_tier is NULL else asked_tier(request.service_tier),
    )


def known_prefix(body: bytes, scan: Scan, digest: PrefixDigest) -> KnownPrefix | None:
    """All items of a scanned body as a prefix of later bodies; see `proxy.wire.scan.known_prefix`."""
    found = shared.known_prefix(body, scan, digest, INPUT)
    if found is None or body[found.start - 1 : found.start] != b"[":
        return None  # the input is one text
    said = _REQUEST.decode(scan.text).instructions
    return replace(found, lead=bytes(said) if _says(said) else b"")


def items_of(said: msgspec.Raw) -> list[msgspec.Raw]:
    """The items of an input; one text is a user's message. Raises `msgspec.MsgspecError`."""
    if not is_text(said):
        return _ITEMS.decode(said)
    return [msgspec.Raw(b'{"role":"user","content":%b}' % bytes(said))]


def is_text(said: msgspec.Raw) -> bool:
    """Whether an input, or a content, is one text."""
    return memoryview(said)[0] == QUOTE


def hidden_tokens(characters: int) -> int:
    """Tokens of encrypted content of so many characters; of none at all, what is usual."""
    if not characters:
        return STORED
    return max(LEAST_ENCRYPTED, round(PER_CHARACTER * (characters - ENCRYPTED)))


def _state_after(items: Sequence[msgspec.Raw], before: ScanState, *, keeps: bool) -> ScanState:
    opaque, surplus, keyed, hidden = before.opaque, before.surplus, before.keyed, before.hidden
    kind = ""
    for raw in items:  # one pass: a long conversation has thousands
        item = _ITEM.decode(raw)
        kind = type_of(item.type, item.role)
        if kind == MESSAGE:
            opaque = opaque or _is_opaque(item.content)
            if item.role == USER and hidden == UNTIL_USER:
                hidden = 0
        elif kind in OUTPUTS:
            opaque = opaque or _is_opaque(item.output)
        elif kind in CALLS:
            surplus += (REWRITTEN - 1) * memoryview(raw).nbytes
        elif kind == REASONING or kind == COMPACTION:
            surplus += STORED
            hidden = max(hidden, FOR_GOOD if keeps or kind == COMPACTION else UNTIL_USER)
        if kind not in BOUNDED:
            opaque = opaque or kind != TRIGGER
        if item.plimsoll is not NULL:
            keyed = True
    compacts = bool(items) and kind == TRIGGER
    return ScanState(before.count + len(items), opaque, surplus=surplus, keyed=keyed, hidden=hidden, compacts=compacts)


def keeps_reasoning(model: str, reasoning: bytes) -> bool:
    """Whether a model reads the reasoning of earlier turns, too; `reasoning` is the field of that name."""
    return ALL_TURNS in reasoning or KEEPS_REASONING.match(model.rsplit("/", 1)[-1].lower()) is not None


def _says(said: msgspec.Raw) -> bool:
    return said is not NULL and bytes(said) != b"null"


def _is_opaque(content: msgspec.Raw) -> bool:
    return not is_text(content) and oversized_json.holds(content, UNPROVABLE_PARTS)


def _hash(update: Update, raw: msgspec.Raw) -> None:
    """Hashes an item, all of it: what its cost depends on differs from type to type."""
    update(raw)
    update(b"\0")


def _is_unprovable(request: _Request) -> bool:
    """Whether it has a field, besides its input, whose cost its bytes do not bound."""
    if request.tools is not NULL and any(tool.type not in IN_THE_BODY for tool in _TOOLS.decode(request.tools) or ()):
        return True
    if request.reasoning is not NULL and PRO in bytes(request.reasoning):
        return True
    return any(schema is not NULL and REFERENCE in bytes(schema) for schema in (request.tools, request.text))
