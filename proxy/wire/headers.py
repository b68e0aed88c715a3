"""Which headers are forwarded in each direction (RFC 9110, 7.6). It adds none.

Headers are pairs of bytes with names in lower case, as in ASGI. Their order and duplicates are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

from proxy.wire.keys import hidden_text

Header = tuple[bytes, bytes]

WRITTEN = b": ".join  # a header as a line
OURS = b"x-plimsoll-"  # the proxy's own headers: never sent to a provider, and never accepted from one


def spellings(names: Iterable[bytes]) -> Iterator[bytes]:
    """Names of headers with each of their hyphens as it is and as an underscore: servers that hand headers on as
    variables (CGI, WSGI) take both for the same name."""
    for name in names:
        for ends in product((b"-", b"_"), repeat=name.count(b"-")):
            yield b"".join(part + end for part, end in zip(name.split(b"-"), (*ends, b""), strict=True))


# Headers that are a key, whoever's: the providers' own names and those of gateways.
KEY_HEADERS = frozenset((b"authorization", b"api-key", b"x-api-key", b"x-goog-api-key"))
CREDENTIALS = frozenset(
    spellings(
        KEY_HEADERS
        | {
            *(b"ocp-apim-subscription-key", b"cf-aig-authorization", b"helicone-auth"),
            *(b"x-litellm-api-key", b"x-portkey-api-key", b"x-portkey-virtual-key"),
        }
    )
)

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
# Not forwarded in either direction. With underscores they would be framing to a server that reads both as one name.
DROPPED = frozenset({*spellings(HOP_BY_HOP), *spellings((b"content-length",))} - {b"content-length"})
BOTH_OURS = tuple(spellings((OURS,)))
# Expect is answered by the server that the client is connected to (10.1.1); Host names the upstream (7.2).
NOT_TO_UPSTREAM = DROPPED | {b"host", b"expect"}
HARMLESS = frozenset((b"keep-alive", b"close"))  # the usual values of Connection: they name no other header
NOTHING: frozenset[bytes] = frozenset()


MOST_NAMES, LONGEST_NAME = 1_000, 64  # names that are remembered, and their bytes: clients choose them


class NameTest(dict[bytes, bool]):
    """What a test says of the name of a header, by name. All messages have the same few names, and to look
    one up takes a third of the time of the test."""

    def __init__(self, test: Callable[[bytes], bool]) -> None:
        super().__init__()
        self._test = test

    def __missing__(self, name: bytes) -> bool:
        found = self._test(name)
        if len(self) < MOST_NAMES and len(name) <= LONGEST_NAME:
            self[name] = found
        return found


_GOES_UP = NameTest(lambda name: name not in NOT_TO_UPSTREAM and not name.startswith(BOTH_OURS))
_GOES_DOWN = NameTest(lambda name: name not in DROPPED and not name.startswith(BOTH_OURS))


def to_upstream(headers: Iterable[Header], drop: frozenset[bytes] = NOTHING) -> list[Header]:
    """A client's headers for the upstream, without the names in `drop`."""
    return _end_to_end(headers, _GOES_UP, drop)


def to_client(headers: Iterable[Header], drop: frozenset[bytes] = NOTHING) -> list[Header]:
    """An upstream's headers for the client, without the names in `drop`."""
    return _end_to_end(headers, _GOES_DOWN, drop)


def _end_to_end(headers: Iterable[Header], goes: NameTest, drop: frozenset[bytes]) -> list[Header]:
    kept = []
    for header in headers:
        if goes[header[0]]:
            kept.append(header)
        elif header[0] == b"connection" and header[1] not in HARMLESS:
            drop |= connection_options(header[1:])
    return [header for header in kept if header[0] not in drop] if drop else kept


def connection_options(values: Iterable[bytes]) -> frozenset[bytes]:
    """The names in Connection fields: headers that must not be forwarded (RFC 9110, 7.6.1)."""
    return frozenset(option.strip().lower() for value in values for option in value.split(b","))


def head_of(start: bytes, headers: Iterable[Header]) -> bytes | None:
    """The start line and the headers of a message, without the empty line. None if a line break in one of them would
    inject a header."""
    lines = [start, *map(WRITTEN, headers)]
    together = b"".join(lines)  # to search is cheaper than to count the line breaks of the head
    return None if b"\n" in together or b"\r" in together else b"\r\n".join(lines)


def value_of(headers: Sequence[Header], name: bytes) -> bytes | None:
    """The first value of a header, or None."""
    for key, value in headers:
        if key == name:
            return value
    return None


LITELLM_COST = b"x-litellm-response-cost"
MAX_COST = 1_000_000.0  # US dollars: no request costs more
REQUEST_ID, ANTHROPIC_ID = b"x-request-id", b"request-id"
ID = re.compile(r"(?!sk-)[\w.:/+=-]{1,80}", re.ASCII)  # the form of an id


def answered_id(headers: Sequence[Header]) -> bytes | None:
    """The id that an upstream gave a request, under either name."""
    found = None
    for name, value in headers:
        if name == REQUEST_ID and value:
            return value
        if name == ANTHROPIC_ID and not found:
            found = value
    return found


def reported_cost(headers: Sequence[Header]) -> float | None:
    """What LiteLLM's proxy says that a request costs, in US dollars. It says 0 of what it knows no price of: None."""
    for name, value in headers:
        if name == LITELLM_COST:
            return _cost(value)
    return None


def _cost(value: bytes) -> float | None:
    try:
        cost = float(value)
    except ValueError:
        return None
    return cost if 0 < cost <= MAX_COST else None


def request_id(value: bytes) -> str:
    """A request's id for the log; empty if the value does not have the form of an id. A key is none."""
    if not value:
        return ""
    text = value.decode("latin-1")
    return text if ID.fullmatch(text) and hidden_text(text) is text else ""
