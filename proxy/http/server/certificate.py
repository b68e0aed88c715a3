"""The certificate of our own ports: loads it, and follows its files when it is renewed.

Theory of operation. Every `POLL_S` seconds a thread reads the metadata of the files. Changed files are loaded when two
polls in a row have seen the same, so that a certificate is not loaded before its key is written; `request` (SIGHUP)
loads at once. They are loaded into a context of their own: a certificate that is wrong leaves the old one in use. The
listener's context hands each new connection to the latest one, as servers do for several names (RFC 6066, 3). Open
connections keep theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

from proxy.errors import ConfigError
from proxy.http.callbacks import Event, ignore

POLL_S = 2.0
NAMES = ("PLIMSOLL_TLS_CERT", "PLIMSOLL_TLS_KEY")
Stamp = tuple[int, int, int, int]  # device, inode, size and time of modification in ns


class Certificate:
    """The certificate chain in `chain` and its private key in `key`, or in `chain` too; both are PEM files.

    `context` is for listeners. Raises ConfigError if the files cannot be used.
    """

    def __init__(self, chain: Path, key: Path | None = None, event: Event = ignore) -> None:
        self._files, self._event = (chain, key), event
        self._loaded = self._seen = self._stamps()
        self._latest = _load(chain, key)
        self._requested = asyncio.Event()
        self.context = _load(chain, key)
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Gives a new connection the latest certificate. OpenSSL calls it for clients that name no server, too."""
        connection.context = self._latest

    def request(self) -> None:
        """Loads the files again soon, whether or not they have changed."""
        self._requested.set()

    async def follow(self) -> None:
        """Follows the files until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._requested.wait(), POLL_S)
            await self.poll()

    async def poll(self) -> None:
        """Loads the files if they have changed and are the same as at the last poll, or if that was requested."""
        before, self._seen = self._seen, await asyncio.to_thread(self._stamps)
        if self._requested.is_set() or before == self._seen != self._loaded:
            self._requested.clear()
            self._loaded = self._seen  # also if it fails: a wrong file is reported once
            try:
                self._latest = await asyncio.to_thread(_load, *self._files)
            except ConfigError as error:
                self._event("the certificate is not reloaded, the old one stays", problem=str(error))
            else:
                self._event("the certificate is reloaded")

    def _stamps(self) -> tuple[Stamp | None, ...]:
        """What changes if a file changes, or if what its links lead to does."""
        return tuple(None if file is None else _stamp(file) for file in self._files)


def _stamp(file: Path) -> Stamp | None:
    with contextlib.suppress(OSError):  # it is being replaced
        found = file.stat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
    return None


def _load(chain: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # TLS 1.2 or newer
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(chain, key, password=lambda: "")  # prevents a prompt
    except (OSError, ssl.SSLError) as error:
        named = NAMES[0] if key is None else " and ".join(NAMES)
        raise ConfigError(f"{named}, {chain}: {_reason(error)}") from None
    return context


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"no certificate with its key that can be used ({error.reason or 'empty'})"
    return error.strerror or type(error).__name__
