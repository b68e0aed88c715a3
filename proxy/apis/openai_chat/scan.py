"""The scan of a chat request: its model, its reply limit, and a bound on its tokens; contents are not decoded.

See `proxy.wire.scan` for how prefixes of growing conversations are recognised.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter

import msgspec

from proxy.model import oversized_json
from proxy.model.names import name_of
from proxy.model.scan import KnownPrefix, PrefixDigest, Scan, ScanState
from proxy.wire import scan as shared
from proxy.wire.scan import NULL, Update, asked_tier, check_count, decoded_request, prefix_digest, token_limit

MESSAGES = "messages"
RESULTS = ("tool", "function")
INSTRUCTIONS = ("system", "developer")
QUOTED = {role: b'"%s"' % role.encode() for role in (*INSTRUCTIONS, "user", "assistant", *RESULTS)}
# Parts and fields whose cost no count of bytes bounds: an image by URL, a file by id, hidden search context, ...
UNPROVABLE_PARTS = (b'"image', b'_image"', b'"video', b'_video"', b'audio"', b'"file', b'_file"', b'"document')
SEARCHES = ("web_search_options", "search_parameters", "plugins", "enable_search")  # what they find is in the prompt
UNPROVABLE_FIELDS = (*SEARCHES, "prediction", "audio", "modalities")
# The fields that decide what a prompt costs besides its messages.
OVERHEAD = attrgetter("tools", "functions", "response_format", "tool_choice", "function_call", *UNPROVABLE_FIELDS)
UNPROVABLE = attrgetter(*UNPROVABLE_FIELDS)
REFERENCE = b'"$ref"'  # a schema that refers to its own parts is written out in full: it may grow without bound
# Where there may be more tokens than bytes: a call's arguments are parsed and written again (five bytes of 1e15, become
# nine tokens), and results of parallel calls are written as ASCII JSON with blanks (two bytes of a letter become six).
REWRITTEN, ESCAPED = 2, 3  # tokens per byte, at most
REREAD = 3  # times that a response schema is read, at most: the most that a row of rules/families.toml may say
LIST = ord("[")


class _Message(msgspec.Struct, gc=False):
    role: str = ""
    content: msgspec.Raw = NULL
    tool_calls: list[msgspec.Raw] | None = None
    function_call: msgspec.Raw = NULL
    tool_call_id: msgspec.Raw = NULL
    name: msgspec.Raw = NULL
    refusal: msgspec.Raw = NULL
    audio: msgspec.Raw = NULL
    plimsoll: msgspec.Raw = NULL


class _Request(msgspec.Struct, gc=False):
    model: str
    messages: list[_Message]
    max_tokens: int | float | None = None
    max_completion_tokens: int | float | None = None
    n: int | None = None
    stream: bool | None = None
    tools: msgspec.Raw = NULL
    functions: msgspec.Raw = NULL
    response_format: msgspec.Raw = NULL
    tool_choice: msgspec.Raw = NULL
    function_call: msgspec.Raw = NULL
    web_search_options: msgspec.Raw = NULL
    search_parameters: msgspec.Raw = NULL
    plugins: msgspec.Raw = NULL
    enable_search: msgspec.Raw = NULL
    prediction: msgspec.Raw = NULL
    audio: msgspec.Raw = NULL
    modalities: msgspec.Raw = NULL
    service_tier: msgspec.Raw = NULL


_REQUEST = msgspec.json.Decoder(_Request)
NO_OVERHEAD = OVERHEAD(_Request("", []))  # of a request that has none of these fields, as most
NO_OVERHEAD_HEAD = b"\0".join(NO_OVERHEAD)
START = ScanState()


def scan(body: bytes, known: KnownPrefix | None = None) -> Scan:
    """The scan of a body, in one pass. Raises `NotUnderstood`.

    Its bytes bound a plain prompt's tokens: a byte-level tokenizer never makes more tokens than there are bytes, and
    the tokens that frame a message are fewer than the bytes of its JSON. Only what is rewritten may grow (`REWRITTEN`,
    `ESCAPED`).

    What a request costs besides its messages is remembered under its first message's digest, and depends on its first
    instructions. Therefore there are no digests if the first instructions stand behind other messages.

    `known` is a prefix of the body; the caller has compared its bytes.
    """
    request, text, known = decoded_request(_REQUEST, body, known, MESSAGES)
    newer, older = token_limit(request.max_completion_tokens), token_limit(request.max_tokens)
    if request.n is not None:
        check_count(request.n)
    state = START if known is None else known.seen
    if request.messages:
        state = _state_after(request.messages, state)
    overhead = OVERHEAD(request)
    none = overhead == NO_OVERHEAD
    surplus = state.surplus
    if request.response_format is not NULL:
        surplus += (REREAD - 1) * _size(request.response_format)
    bounded = not state.opaque and not state.heard and (none or not _is_unprovable(request))
    marks = None if state.opaque or state.late else partial(prefix_digest, scan, body, request.messages, known, _hash)
    return Scan(
        name_of(request.model),
        older if newer is None else newer if older is None else max(newer, older),
        bool(request.stream),
        len(body) + surplus if bounded else None,
        head=NO_OVERHEAD_HEAD if none else b"\0".join(overhead),
        marks=marks,
        seen=state,
        known=known,
        text=text,
        tier="" if request.service_tier is NULL else asked_tier(request.service_tier),
        choices=1 if request.n is None else max(1, request.n),
    )


def known_prefix(body: bytes, scan: Scan, digest: PrefixDigest) -> KnownPrefix | None:
    """All messages of a scanned body as a prefix of later bodies; see `proxy.wire.scan.known_prefix`."""
    return shared.known_prefix(body, scan, digest, MESSAGES)


def _state_after(messages: Sequence[_Message], before: ScanState) -> ScanState:
    count, opaque, heard, surplus = before.count, before.opaque, before.heard, before.surplus
    late, parallel, keyed = before.late, before.parallel, before.keyed
    led = before.led if count else messages[0].role in INSTRUCTIONS
    for place, m in enumerate(messages, count):  # one pass: a long conversation has thousands
        content = m.content
        if memoryview(content)[0] == LIST and not opaque:
            opaque = oversized_json.holds(content, UNPROVABLE_PARTS)
        if m.tool_calls:
            parallel = len(m.tool_calls) > 1
            surplus += (REWRITTEN - 1) * sum(map(_size, m.tool_calls))
        elif parallel and m.role in RESULTS:
            surplus += (ESCAPED - 1) * _size(content)
        if m.function_call is not NULL:
            surplus += (REWRITTEN - 1) * _size(m.function_call)
        if m.audio is not NULL and bytes(m.audio) != b"null":
            heard = True
        if m.plimsoll is not NULL:
            keyed = True
        if place and m.role in INSTRUCTIONS and not led:
            late = True
    return ScanState(
        count + len(messages),
        opaque=opaque,
        heard=heard,
        surplus=surplus,
        late=late,
        parallel=parallel,
        keyed=keyed,
        led=led,
    )


def _hash(update: Update, m: _Message) -> None:
    """Hashes all of a message that its count depends on, as JSON values that cannot be taken for others."""
    update(QUOTED.get(m.role) or msgspec.json.encode(m.role))  # an invented role must not pass for another one
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


def _size(raw: msgspec.Raw) -> int:
    return memoryview(raw).nbytes


def _is_unprovable(request: _Request) -> bool:
    """Whether it has a field, besides its messages, whose cost its bytes do not bound."""
    if any(bytes(value) != b"null" for value in UNPROVABLE(request)):
        return True
    schemas = (request.tools, request.functions, request.response_format)
    return any(schema is not NULL and REFERENCE in bytes(schema) for schema in schemas)
