"""Which headers are forwarded in each direction (RFC 9110, 7.6). It adds none.

Headers are pairs of bytes with names in lower case, as in ASGI. Their order and duplicates are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

Header = tuple[bytes, bytes]

OURS = b"x-plimsoll-"  # the proxy's own headers: never sent to a provider, and never accepted from one

QUERY = OURS + b"query"  # the query of a request to a fitted path, for code that receives only its headers

# RFC 9110, 7.6.1: the fields of one connection, and those that proxies must treat like them.
HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
# The two fields that a WebSocket's handshake needs on each connection (RFC 6455, 4.1 and 4.2.2).
SWITCH: tuple[Header, ...] = ((b"connection", b"Upgrade"), (b"upgrade", b"websocket"))
# Expect is answered by the server that the client is connected to (10.1.1); Host names the upstream (7.2).
NOT_TO_UPSTREAM = HOP_BY_HOP | {b"host", b"expect"}
HARMLESS = frozenset((b"keep-alive", b"close"))  # the usual values of Connection: they name no other header
NOTHING: frozenset[bytes] = frozenset()


def to_upstream(headers: Iterable[Header], drop: frozenset[bytes] = NOTHING) -> list[Header]:
    """A client's headers for the upstream, without the names in `drop`."""
    return _end_to_end(headers, NOT_TO_UPSTREAM | drop if drop else NOT_TO_UPSTREAM)


def to_client(headers: Iterable[Header], drop: frozenset[bytes] = NOTHING) -> list[Header]:
    """An upstream's headers for the client, without the names in `drop`."""
    return _end_to_end(headers, HOP_BY_HOP | drop if drop else HOP_BY_HOP)


def _end_to_end(headers: Iterable[Header], unwanted: frozenset[bytes]) -> list[Header]:
    kept, options = [], []
    for header in headers:
        name = header[0]
        if name not in unwanted:
            if not name.startswith(OURS):
                kept.append(header)
        elif name == b"connection" and header[1] not in HARMLESS:
            options.append(header[1])
    if options:
        named = connection_options(options)
        kept = [h for h in kept if h[0] not in named]
    return kept


def connection_options(values: Iterable[bytes]) -> frozenset[bytes]:
    """The names in Connection fields: headers that must not be forwarded (RFC 9110, 7.6.1)."""
    return frozenset(option.strip().lower() for value in values for option in value.split(b","))


def value_of(headers: Sequence[Header], name: bytes) -> bytes | None:
    """The first value of a header, or None."""
    for key, value in headers:
        if key == name:
            return value
    return None


REQUEST_ID, ANTHROPIC_ID = b"x-request-id", b"request-id"
# The form of an id. An API key is none, wherever a client puts it.
ID = re.compile(r"(?!sk-)[\w.:/+=-]{1,80}", re.ASCII)


def answered_id(headers: Sequence[Header]) -> bytes | None:
    """The id that an upstream gave a request, under either name."""
    return value_of(headers, REQUEST_ID) or value_of(headers, ANTHROPIC_ID)


def request_id(value: bytes) -> str:
    """A request's id for the log; empty if the value does not have the form of an id."""
    if not value:
        return ""
    text = value.decode("latin-1")
    return text if ID.fullmatch(text) else ""
