"""The recorder that the settings ask for: who a caller is in a recording, and how a body is redacted."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from hashlib import blake2b

from proxy.config.settings import Settings
from proxy.observe.recorded_bodies import Headers
from proxy.observe.recording import Recorder, Sender
from proxy.observe.recording_files import RecordingFiles
from proxy.tokens.encodings import encoding
from proxy.tokens.families import Families
from proxy.tokens.redaction import redactors
from proxy.upstreams.internal_client import ANONYMOUS, TENANT_HEADERS, caller_of
from proxy.wire.headers import QUERY
from proxy.wire.paths import KEY_IN_QUERY

NAMES = TENANT_HEADERS | {QUERY}
SCHEME = re.compile(rb"^\s*(?:bearer|basic)\s+", re.IGNORECASE)
MIN_KEY = 8  # bytes; anything shorter is a word and no key
MAX_SENDERS = 1024


def make_recorder(settings: Settings, families: Families, event: Callable[..., None]) -> Recorder | None:
    """The recorder; None if nothing is recorded. Without a secret, callers have other names after each start."""
    if settings.record is None:
        return None
    secret = settings.secret or os.urandom(32)
    files = RecordingFiles(settings.record, settings.record_size)
    redact = redactors(_derived(secret, b"words"), lambda model: encoding(families.find(model).encoding))
    return Recorder(files, settings.record_content, Senders(_derived(secret, b"caller")).of, redact, event)


class Senders:
    """Names callers by a keyed hash of their credentials, in hexadecimal; empty for those without one."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[tuple[bytes, ...], Sender] = {}  # by names and values

    def of(self, headers: Headers) -> Sender:
        """Who sent these headers."""
        given: tuple[bytes, ...] = ()
        for header in headers:
            if header[0] in NAMES:
                given = given + header if given else header
        return self._known.get(given) or self._remembered(given)

    def _remembered(self, given: tuple[bytes, ...]) -> Sender:
        if len(self._known) >= MAX_SENDERS:
            self._known.clear()
        return self._known.setdefault(given, self._sender([*zip(given[::2], given[1::2], strict=True)]))

    def _sender(self, given: Headers) -> Sender:
        caller = caller_of(given)
        name = "" if caller == ANONYMOUS else blake2b(caller, key=self._key, digest_size=8).hexdigest()
        return Sender(name, tuple(key for header in given for key in _keys(*header) if len(key) >= MIN_KEY))


def _keys(name: bytes, value: bytes) -> list[bytes]:
    """The credentials in a header, or in the query."""
    if name != QUERY:
        return [SCHEME.sub(b"", value).strip()]
    return [re.split(b"[&;]", value[found.end() :], maxsplit=1)[0] for found in KEY_IN_QUERY.finditer(value)]


def _derived(secret: bytes, use: bytes) -> bytes:
    return blake2b(secret, person=b"record " + use, digest_size=32).digest()
