"""The scan of a request of the Messages API: its model, its reply limit, and a bound on its tokens; contents are not
decoded.

See `proxy.wire.scan` for how prefixes of growing conversations are recognised. The top-level `system` is message 0,
wherever it stands in the body.
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
from proxy.wire.scan import NULL, Update, decoded_request, prefix_digest, token_limit

API_NAME = "messages"
MESSAGES = "messages"
ASSISTANT, USER, SYSTEM = "assistant", "user", "system"
QUOTED = {role: b'"%s"' % role.encode() for role in (USER, ASSISTANT, SYSTEM)}
# Blocks and fields whose cost no count of bytes bounds: images, documents, files by id, tools of servers.
UNPROVABLE_PARTS = (b'"image"', b'"document"', b'"container_upload"')
UNPROVABLE_FIELDS = ("mcp_servers", "container", "thread")
# The fields that decide what a prompt costs besides its messages.
OVERHEAD = attrgetter(
    *("system", "tools", "tool_choice", "thinking", "output_format", "output_config", "context_management"),
    *UNPROVABLE_FIELDS,
)
UNPROVABLE = attrgetter(*UNPROVABLE_FIELDS)
HOSTED = (b"_20", b"mcp_toolset")  # in the type of a tool that Anthropic runs: web_search_20250305
TOOL_USE = b'tool_use"'
# Where there may be more tokens than bytes: the input of a call is parsed and written again (five bytes of 1e15, become
# nine tokens).
REWRITTEN = 2  # tokens per byte, at most
LIST, NULL_START = ord("["), ord("n")
HEAD = API_NAME.encode() + b"\0"  # the same bytes may be a request of another API, which counts them otherwise


class _Message(msgspec.Struct, gc=False):
    role: str = ""
    content: msgspec.Raw = NULL
    plimsoll: msgspec.Raw = NULL


class _Request(msgspec.Struct, gc=False):
    model: str
    messages: list[_Message]
    max_tokens: int | float | None = None
    stream: bool | None = None
    system: msgspec.Raw = NULL
    tools: msgspec.Raw = NULL
    tool_choice: msgspec.Raw = NULL
    thinking: msgspec.Raw = NULL
    output_format: msgspec.Raw = NULL
    output_config: msgspec.Raw = NULL
    context_management: msgspec.Raw = NULL
    mcp_servers: msgspec.Raw = NULL
    container: msgspec.Raw = NULL
    thread: msgspec.Raw = NULL
    compaction: msgspec.Raw = NULL


_REQUEST = msgspec.json.Decoder(_Request)
START = ScanState()


def scan(body: bytes, known: KnownPrefix | None = None) -> Scan:
    """The scan of a body, in one pass. Raises `NotUnderstood`.

    Its bytes bound a plain prompt's tokens: a byte-level tokenizer never makes more tokens than there are bytes, and
    the tokens that frame a block are fewer than the bytes of its JSON. Only what is rewritten may grow (`REWRITTEN`).

    `known` is a prefix of the body; the caller has compared its bytes.
    """
    request, text, known = decoded_request(_REQUEST, body, known, MESSAGES)
    messages = request.messages
    state = START if known is None else known.seen
    if known is None and has_system(request.system):
        messages = [_Message(SYSTEM, request.system), *messages]
    if messages:
        state = _state_after(messages, state)
    bounded = not state.opaque and not _is_unprovable(request)
    return Scan(
        name_of(request.model),
        token_limit(request.max_tokens),
        bool(request.stream),
        len(body) + state.surplus if bounded else None,
        head=HEAD + b"\0".join(OVERHEAD(request)),
        marks=None if state.opaque else partial(prefix_digest, scan, body, messages, known, _hash),
        seen=state,
        known=known,
        text=text,
        compacts=request.compaction is not NULL and bytes(request.compaction) != bytes(NULL),
    )


def known_prefix(body: bytes, scan: Scan, digest: PrefixDigest) -> KnownPrefix | None:
    """All messages of a scanned body as a prefix of later bodies; see `proxy.wire.scan.known_prefix`."""
    return shared.known_prefix(body, scan, digest, MESSAGES)


def has_system(raw: msgspec.Raw | bytes) -> bool:
    """Whether the value of `system` is a message: a text or a list of blocks."""
    return memoryview(raw)[0] != NULL_START


def _state_after(messages: Sequence[_Message], before: ScanState) -> ScanState:
    opaque, surplus, keyed = before.opaque, before.surplus, before.keyed
    for m in messages:  # one pass: a long conversation has thousands
        content = m.content
        if memoryview(content)[0] == LIST:
            if not opaque:
                opaque = oversized_json.holds(content, UNPROVABLE_PARTS)
            if m.role == ASSISTANT and oversized_json.holds(content, (TOOL_USE,)):
                surplus += (REWRITTEN - 1) * memoryview(content).nbytes
        if m.plimsoll is not NULL:
            keyed = True
    return ScanState(before.count + len(messages), opaque=opaque, surplus=surplus, keyed=keyed)


def _hash(update: Update, m: _Message) -> None:
    """Hashes all of a message that its count depends on."""
    update(QUOTED.get(m.role) or msgspec.json.encode(m.role))  # an invented role must not pass for another one
    update(m.content)


def _is_unprovable(request: _Request) -> bool:
    """Whether it has a field, besides its messages, whose cost its bytes do not bound."""
    if any(bytes(value) != b"null" for value in UNPROVABLE(request)):
        return True
    return request.tools is not NULL and oversized_json.holds(request.tools, HOSTED)
