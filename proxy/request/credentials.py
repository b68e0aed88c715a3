"""The credentials that a request came with, as a text may repeat them: no recording and no page shows them."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Iterator
from urllib.parse import quote_from_bytes

from proxy.observe.recording.recorded_bodies import Headers
from proxy.upstreams.internal_client import TENANT_HEADERS
from proxy.wire.headers import QUERY
from proxy.wire.paths import KEY_IN_QUERY

NAMES = TENANT_HEADERS | {QUERY}
SCHEME = re.compile(rb"^\s*(bearer|basic)\s+", re.IGNORECASE)
MIN_KEY = 8  # bytes; anything shorter is a word and no key


def credentials_of(headers: Headers) -> tuple[bytes, ...]:
    """The credentials in headers and in the query, each also as it stands in a URL and in JSON if that differs."""
    found = [key for name, value in headers if name in NAMES for key in _keys(name, value) if len(key) >= MIN_KEY]
    return tuple(dict.fromkeys(form for key in found for form in _forms(key)))


def _keys(name: bytes, value: bytes) -> Iterator[bytes]:
    if name == QUERY:
        for found in KEY_IN_QUERY.finditer(value):
            yield re.split(b"[&;]", value[found.end() :], maxsplit=1)[0]
        return
    scheme = SCHEME.match(value)
    key = SCHEME.sub(b"", value).strip()
    yield key
    if scheme is not None and scheme[1].lower() == b"basic":
        yield _password(key)


def _password(key: bytes) -> bytes:
    """The password in a Basic credential (RFC 7617, 2)."""
    try:
        return b64decode(key, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _forms(key: bytes) -> tuple[bytes, ...]:
    text = key.decode("utf-8", "replace")
    return key, quote_from_bytes(key, safe="").encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode()
