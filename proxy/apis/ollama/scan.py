"""The scan of a request of Ollama's API: its model, its reply limit, its window, and a bound on its tokens; contents
are not decoded.

See `proxy.wire.scan` for how prefixes of growing conversations are recognised.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from proxy.model import oversized_json
from proxy.model.names import name_of
from proxy.model.scan import KnownPrefix, PrefixDigest, Scan, ScanState
from proxy.wire import scan as shared
from proxy.wire.ollama.options import Options
from proxy.wire.scan import NULL, Update, decoded_request, prefix_digest, token_limit

API_NAME = "ollama"
MESSAGES = "messages"
QUOTED = {role: b'"%s"' % role.encode() for role in ("system", "user", "assistant", "tool")}
EMPTY = (b"null", b"[]")
REFERENCE = b'"$ref"'  # a schema that refers to its own parts may be written out in full: it may grow without bound
# Where there may be more tokens than bytes: a call's arguments are parsed and written again (five bytes of 1e15, become
# nine tokens).
REWRITTEN = 2  # tokens per byte, at most
HEAD = API_NAME.encode() + b"\0"  # the same bytes may be a request of another API, which counts them otherwise


class _Message(msgspec.Struct, gc=False):
    role: str = ""
    content: msgspec.Raw = NULL
    thinking: msgspec.Raw = NULL
    images: msgspec.Raw = NULL
    tool_calls: list[msgspec.Raw] | None = None
    tool_name: msgspec.Raw = NULL
    plimsoll: msgspec.Raw = NULL


class _Request(msgspec.Struct, gc=False):
    model: str
    messages: list[_Message]
    stream: bool | None = None
    options: Options | None = None
    tools: msgspec.Raw = NULL


_REQUEST = msgspec.json.Decoder(_Request)
START = ScanState()


def scan(body: bytes, known: KnownPrefix | None = None) -> Scan:
    """The scan of a body, in one pass. Raises `NotUnderstood`.

    Its bytes bound a plain prompt's tokens: a byte-level tokenizer never makes more tokens than there are bytes, and
    the tokens that frame a message are fewer than the bytes of its JSON. Only what is rewritten may grow (`REWRITTEN`).

    `known` is a prefix of the body; the caller has compared its bytes.
    """
    request, text, known = decoded_request(_REQUEST, body, known, MESSAGES)
    options = request.options or Options()
    state = START if known is None else known.seen
    if request.messages:
        state = _state_after(request.messages, state)
    bounded = not state.opaque and REFERENCE not in bytes(request.tools)
    return Scan(
        name_of(request.model),
        token_limit(options.num_predict),
        request.stream is not False,  # the default is a stream
        len(body) + state.surplus if bounded else None,
        head=HEAD + bytes(request.tools),
        marks=None if state.opaque else partial(prefix_digest, scan, body, request.messages, known, _hash),
        seen=state,
        known=known,
        text=text,
        window=token_limit(options.num_ctx),
    )


def known_prefix(body: bytes, scan: Scan, digest: PrefixDigest) -> KnownPrefix | None:
    """All messages of a scanned body as a prefix of later bodies; see `proxy.wire.scan.known_prefix`."""
    return shared.known_prefix(body, scan, digest, MESSAGES)


def _state_after(messages: Sequence[_Message], before: ScanState) -> ScanState:
    opaque, surplus, keyed = before.opaque, before.surplus, before.keyed
    for m in messages:  # one pass: a long conversation has thousands
        if m.images is not NULL and not opaque:
            opaque = memoryview(m.images).nbytes > 4 or bytes(m.images) not in EMPTY
        for call in m.tool_calls or ():
            surplus += (REWRITTEN - 1) * memoryview(call).nbytes
        if m.plimsoll is not NULL:
            keyed = True
    return ScanState(before.count + len(messages), opaque=opaque, surplus=surplus, keyed=keyed)


def _hash(update: Update, m: _Message) -> None:
    """Hashes all of a message that its count depends on."""
    update(QUOTED.get(m.role) or msgspec.json.encode(m.role))  # an invented role must not pass for another one
    update(m.content)
    if m.tool_calls is not None or m.thinking is not NULL or m.tool_name is not NULL:
        for raw in m.tool_calls or ():
            update(raw)
        update(b"|")
        update(m.thinking)
        update(m.tool_name)


def has_images(raw: msgspec.Raw) -> bool:
    """Whether a list of messages may have images."""
    return oversized_json.holds(raw, (b'"images"',))
