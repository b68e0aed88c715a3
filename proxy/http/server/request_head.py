"""The head of a request: its limits, what makes it invalid, its target, and its request to upgrade. Pure.

llhttp has checked the grammar before; this is what it leaves to a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from urllib.parse import unquote

import httptools

from proxy.errors import ClientError
from proxy.wire.headers import Header

MAX_HEAD = 64 * 1024  # bytes of a request's head
MAX_HEADERS = 200
MAX_TARGET = 32 * 1024
SHORT_TARGET = 256  # bytes; parsed targets up to this length are cached
MAX_PIPELINED = 8  # requests that may queue behind a running one; at this number, parsing pauses
HEAD_END = b"\r\n\r\n"
UPGRADE = frozenset((b"upgrade", b"http2-settings"))  # headers, and options of Connection
CHECKED = frozenset((b"transfer-encoding", b"expect"))  # headers that decide how the body is received

BAD_REQUEST = ClientError(400, "This is not a valid HTTP request.", code="bad_request")
HEAD_TOO_LARGE = ClientError(
    431, f"The request's head exceeds {MAX_HEAD} bytes or {MAX_HEADERS} headers.", code="head_too_large"
)
TARGET_TOO_LONG = ClientError(414, f"The request's target exceeds {MAX_TARGET} bytes.", code="target_too_long")
VERSION_NOT_SUPPORTED = ClientError(505, "The HTTP version must be 1.1 or 1.0.", code="http_version_not_supported")
INVALID_HOST = ClientError(
    400, "A request must have one Host header: a host, and optionally a port.", code="invalid_host"
)
# RFC 9112, 3.2: uri-host [ ":" port ]; the host may be empty. RFC 6874 adds the zone of an IPv6 address.
HOST = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]+(?:%25[\w.~-]+)?\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?[ \t]*"
)
CODING_NOT_SUPPORTED = ClientError(
    501, "The only supported Transfer-Encoding is chunked.", code="transfer_coding_unsupported"
)


def parse_target(url: bytes) -> tuple[str, bytes, bytes]:
    """Returns the target's decoded path, its raw path and its query. Raises HttpParserError or ValueError if the target
    is invalid."""
    if url == b"*":  # RFC 9112, 3.2.4
        return "*", b"*", b""
    parsed = httptools.parse_url(url)
    if (parsed.schema or b"http").lower() not in (b"http", b"https"):
        raise ValueError("the scheme is not http or https")
    raw = parsed.path or b"/"  # the absolute form may have an empty path (RFC 9110, 4.2.3)
    path = raw.decode("ascii")
    return unquote(path) if "%" in path else path, raw, parsed.query or b""


parse_target_cached = lru_cache(maxsize=1024)(parse_target)


def version_of(version: str) -> str:
    """Returns the version as which a request is served: a higher minor version is 1.1 (RFC 9110, 2.5). Returns "" for
    another major version."""
    major, _, minor = version.partition(".")
    if major != "1":
        return ""
    return "1.0" if minor == "0" else "1.1"


def error_of(headers: Iterable[Header], version: str) -> ClientError | None:
    """Returns what the headers of a request, names in lower case, are rejected for."""
    hosts = 0
    for name, value in headers:
        if name == b"host":
            hosts += 1
            if not HOST.fullmatch(value):
                return INVALID_HOST
        elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            return CODING_NOT_SUPPORTED  # the upstream would get the body without this header
    return INVALID_HOST if hosts != 1 and (hosts or version != "1.0") else None


def expects_continue(headers: Iterable[Header]) -> bool:
    """Whether the client waits for a response 100 before it sends the body (RFC 9110, 10.1.1)."""
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


def is_handshake(method: bytes, version: str, headers: Sequence[Header]) -> bool:
    """Whether the request is a WebSocket handshake (RFC 6455, 4.1): an HTTP/1.1 GET without a body."""
    names = dict(headers)
    return (
        [value.lower() for name, value in headers if name == b"upgrade"] == [b"websocket"]
        and method == b"GET"
        and version == "1.1"
        and names.get(b"content-length", b"0") == b"0"
        and b"transfer-encoding" not in names
    )


def head_without_upgrade(method: bytes, url: bytes, version: str, headers: Iterable[Header]) -> bytes:
    """Returns the head without its request to upgrade, which a server may ignore (RFC 9110, 7.8). Many Java clients
    send `Upgrade: h2c` with every first request, and llhttp treats their bodies as data of the new protocol."""
    kept = [b"%b: %b\r\n" % header for header in _without_upgrade(headers)]
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, url, version.encode(), b"".join(kept))


def _without_upgrade(headers: Iterable[Header]) -> Iterator[Header]:
    """Yields the headers without the upgrade. Other options of Connection stay: they name hop-by-hop headers."""
    for name, value in headers:
        if name == b"connection":
            value = b",".join(option for option in value.split(b",") if option.strip().lower() not in UPGRADE)
        if name not in UPGRADE and (value or name != b"connection"):
            yield name, value


def has_many_heads(data: bytes) -> bool:
    """Whether `data` may contain more pipelined requests than the queue allows. The first head is usually followed by a
    body without a carriage return: a search that finds none in 1 MB takes 15 us, one for `HEAD_END` 1,000 to 2,000."""
    at = data.find(HEAD_END) + len(HEAD_END)
    for _ in range(2 * MAX_PIPELINED):
        at = data.find(b"\r", at) + 1
        if not at:
            return False
    return data.count(HEAD_END) > MAX_PIPELINED
