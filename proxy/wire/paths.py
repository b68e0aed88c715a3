"""Request paths: which spellings are equal, and which bring a credential. What they mean is in `proxy.apis.paths`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from proxy.wire.headers import QUERY

# Gemini's, Azure's and gateways' names for a credential in a query.
KEY_IN_QUERY = re.compile(rb"(?:^|[&;])(?:(?:api[_-]?)?key|(?:access[_-]?)?token|authorization)=", re.IGNORECASE)


def one_path(path: bytes) -> bytes:
    """A path without doubled and trailing slashes, which do not change its meaning."""
    return b"/" + b"/".join(filter(None, path.split(b"/")))


def brings_key(target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request has a credential outside its usual headers: in its query, or, as browsers send it, as one of a
    WebSocket's subprotocols."""
    if KEY_IN_QUERY.search(target.partition(b"?")[2]):
        return True
    for name, value in headers:
        if name == b"sec-websocket-protocol" and b"key" in value.lower():
            return True
        if name == QUERY and KEY_IN_QUERY.search(value):
            return True
    return False
