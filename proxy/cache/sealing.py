"""Names, tags and seals made from the secret: what leaves the process tells nothing, and what comes back is ours.

A name is a keyed hash. A value carries a version and a tag bound to its name, so that a random, foreign or moved
value is a miss. Content is sealed (AES-256-GCM) with a key of its caller's own.
"""

from __future__ import annotations

import hmac
import os
from hashlib import blake2b

PREFIX = b"plimsoll:{v1}:"  # the braces keep all keys in one slot of a Redis cluster: one MGET reads many
PLAIN, SEALED = b"\x01", b"\x02"  # versions of values
TAG = 16  # bytes
NONCE = 12  # bytes: AES-GCM's
LARGEST = 64 * 1024  # bytes of a value; no count of ours has 1 KB, no summary 32


class Seals:
    """All that is made from one secret; of any length, best 32 random bytes."""

    def __init__(self, secret: bytes) -> None:
        self._naming = blake2b(key=_derived(secret, b"name"), digest_size=16)
        self._tagging = _derived(secret, b"tag")
        self._sealing = _derived(secret, b"seal")

    def name(self, kind: str, *parts: bytes) -> bytes:
        """The key under which something is kept: `plimsoll:{v1}:<kind>:<keyed hash of the parts>`."""
        made = self._naming.copy()
        made.update(b"".join([len(part).to_bytes(8, "big") for part in (*parts, kind.encode())]) + kind.encode())
        for part in parts:
            made.update(part)
        return PREFIX + kind.encode() + b":" + made.hexdigest().encode()

    def wrap(self, name: bytes, payload: bytes) -> bytes:
        """A value as it is kept under a name."""
        return PLAIN + self._tag(name, payload) + payload

    def unwrap(self, name: bytes, value: bytes) -> bytes | None:
        """The payload of a value that we kept under this name; None for any other."""
        tag, payload = value[1 : 1 + TAG], value[1 + TAG :]
        if len(value) > LARGEST or value[:1] != PLAIN or not hmac.compare_digest(tag, self._tag(name, payload)):
            return None
        return payload

    def _tag(self, name: bytes, payload: bytes) -> bytes:
        return blake2b(name + b"\0" + payload, key=self._tagging, digest_size=TAG).digest()

    def seal(self, name: bytes, caller: bytes, content: bytes) -> bytes:
        """Content as it is kept under a name, for one caller alone."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # heavy, and only summaries need it

        nonce = os.urandom(NONCE)
        return SEALED + nonce + AESGCM(self._key_of(caller)).encrypt(nonce, content, name)

    def unseal(self, name: bytes, caller: bytes, value: bytes) -> bytes | None:
        """The content that was sealed under this name for this caller; None for anything else."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if len(value) > LARGEST or value[:1] != SEALED:
            return None
        try:
            return AESGCM(self._key_of(caller)).decrypt(value[1 : 1 + NONCE], value[1 + NONCE :], name)
        except (InvalidTag, ValueError):
            return None

    def _key_of(self, caller: bytes) -> bytes:
        return blake2b(caller, key=self._sealing, digest_size=32).digest()


def _derived(secret: bytes, use: bytes) -> bytes:
    return blake2b(secret, person=b"plimsoll " + use, digest_size=32).digest()
