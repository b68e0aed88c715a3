"""What headers may be forwarded each way (RFC 9110, 7.6); it adds none.

Headers are pairs of bytes with names in lower case, as ASGI has them; their order and duplicates are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

Header = tuple[bytes, bytes]

OURS = b"x-plimsoll-"  # what clients ask of us, and what we tell them: no provider is asked, and none may speak for us

QUERY = OURS + b"query"  # where the query of a request to a fitted endpoint stands for those who see headers alone

# RFC 9110, 7.6.1: fields that speak of one connection, and those that proxies are told to know beside them.
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
# The two that a WebSocket's handshake needs on either connection (RFC 6455, 4.1 and 4.2.2).
SWITCH: tuple[Header, ...] = ((b"connection", b"Upgrade"), (b"upgrade", b"websocket"))
# Expect is answered where the client is connected (10.1.1); Host is written anew for the upstream (7.2).
NOT_TO_UPSTREAM = HOP_BY_HOP | {b"host", b"expect"}
HARMLESS = frozenset((b"keep-alive", b"close"))  # Connection's usual values: they name no other header that is kept
NOTHING: frozenset[bytes] = frozenset()


def to_upstream(headers: Iterable[Header], drop: frozenset[bytes] = NOTHING) -> list[Header]:
    """A client's headers as the upstream gets them; `drop` are further names to leave out."""
    return _end_to_end(headers, NOT_TO_UPSTREAM | drop if drop else NOT_TO_UPSTREAM)


def to_client(headers: Iterable[Header], drop: frozenset[bytes] = NOTHING) -> list[Header]:
    """An upstream's headers as the client gets them; `drop` are further names to leave out."""
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
    """The names that Connection fields list: each of them is a header that ends here (RFC 9110, 7.6.1)."""
    return frozenset(option.strip().lower() for value in values for option in value.split(b","))


def value_of(headers: Sequence[Header], name: bytes) -> bytes | None:
    """The first value of a header, or None."""
    for key, value in headers:
        if key == name:
            return value
    return None


REQUEST_ID = b"x-request-id"
# What an id looks like; not a key, wherever a client puts it.
ID = re.compile(r"(?!sk-)[\w.:/+=-]{1,80}", re.ASCII)


def request_id(value: bytes) -> str:
    """A request's id as a log may have it; empty where it is none."""
    if not value:
        return ""
    text = value.decode("latin-1")
    return text if ID.fullmatch(text) else ""
