"""The recorder that the settings ask for: who a caller is in a recording, and how a body is redacted."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from hashlib import blake2b

from proxy.config.settings import BODIES, Settings
from proxy.observe.metrics.groups import OTHER
from proxy.observe.recording.recorded_bodies import Headers
from proxy.observe.recording.recorded_lines import named
from proxy.observe.recording.recorder import Recorder, Sender
from proxy.observe.recording.recording_files import RecordingFiles
from proxy.request.callers import hash_of
from proxy.request.credentials import NAMES, credentials_of
from proxy.tokens.encodings import encoding
from proxy.tokens.families import Families
from proxy.tokens.redaction import redactors
from proxy.upstreams.internal_client import ANONYMOUS, caller_of

MAX_SENDERS = 1024
MAX_HASHES = 4  # of one sender


def make_recorder(
    settings: Settings, families: Families, event: Callable[..., None], label: Callable[[str], str]
) -> Recorder | None:
    """The recorder; None if nothing is recorded. Without a secret, callers have other names after each start.
    `label`: what the tables call a model; `OTHER` if none knows it."""
    if settings.record is None:
        return None
    secret = settings.secret or os.urandom(32)
    files = RecordingFiles(settings.record, settings.record_size)
    names = ModelNames(_derived(secret, b"model"), label).of
    redact = redactors(_derived(secret, b"words"), lambda model: encoding(families.find(model).encoding), names)
    hashed = None if settings.secret is None else partial(hash_of, settings.secret)
    senders = Senders(_derived(secret, b"caller"), hashed).of
    name = None if settings.record_content == BODIES else names
    return Recorder(
        files, settings.record_content, sender=senders, redact=redact, event=event, name=name, answered=names
    )


class Senders:
    """Names callers by a keyed hash of their credentials, in hexadecimal; empty for those without one. `hashed`: the
    hash of one credential as callers.toml has it; None: there are no such hashes without a secret."""

    def __init__(self, key: bytes, hashed: Callable[[bytes], str] | None = None) -> None:
        self._key, self._hashed = key, hashed
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
        keys = credentials_of(given)
        return Sender(name, keys, () if self._hashed is None else tuple(map(self._hashed, keys[:MAX_HASHES])))


class ModelNames:
    """Names models as the tables do, and those that none knows by a keyed hash: a client may write anything there."""

    def __init__(self, key: bytes, label: Callable[[str], str]) -> None:
        self._key, self._label = key, label
        self._names: dict[tuple[str, str], str] = {}  # by model and caller

    def of(self, model: str, caller: str) -> str:
        """The name of a model in the lines of a caller."""
        found = self._names.get((model, caller))
        if found is None:
            if len(self._names) >= MAX_SENDERS:
                self._names.clear()
            found = self._names[model, caller] = self._named(model, caller)
        return found

    def _named(self, model: str, caller: str) -> str:
        label = self._label(model) if model else ""
        if label != OTHER and named(label) == label:
            return label
        text = f"{caller}:{model}".encode("utf-8", "surrogatepass")
        return f"model-{blake2b(text, key=self._key, digest_size=6).hexdigest()}"


def _derived(secret: bytes, use: bytes) -> bytes:
    return blake2b(secret, person=b"record " + use, digest_size=32).digest()
