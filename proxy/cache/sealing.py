"""Keyed names, authentication tags and encryption for values in the shared cache, all derived from one secret.

A name is a keyed hash. It says in which slot of a Redis cluster the value is: what belongs to one tenant or caller is
in one of `SLOTS`, so that one MGET reads all of it, and what is common to all is in a slot of its own. A plain value
carries a version and a tag bound to its name, so that a random, foreign or moved value is a miss. Content is encrypted
(AES-256-GCM) with a key of its own for each caller. This module performs no I/O.
"""

from __future__ import annotations

import hmac
import os
from binascii import crc_hqx
from hashlib import blake2b
from itertools import count

from xxhash import xxh3_64_intdigest

PREFIX = b"plimsoll:{v1}:"  # of what is common to all; before slots there were, of everything
SLOTS, CLUSTER_SLOTS = 64, 16_384  # ours are spread evenly over those of a Redis cluster
SIGNED, SEALED = b"\x01", b"\x02"  # the first byte of a value: its version
TAG_BYTES = 16
NONCE_BYTES = 12  # AES-GCM's
MAX_VALUE_BYTES = 64 * 1024  # our counts have under 1 KB, our summaries under 32 KB


def _tags() -> tuple[bytes, ...]:
    """The hash tag of each slot: the first number that Redis puts into its share of the cluster's slots.
    https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags"""
    share = CLUSTER_SLOTS // SLOTS
    found = dict[int, bytes]()
    for number in count():
        tag = b"%d" % number
        found.setdefault(crc_hqx(tag, 0) % CLUSTER_SLOTS // share, tag)
        if len(found) == SLOTS:
            return tuple(found[slot] for slot in range(SLOTS))
    raise AssertionError


PREFIXES = tuple(b"plimsoll:{%b}:" % tag for tag in _tags())


def former_name(name: bytes) -> bytes:
    """The name that a value had before there were slots."""
    return PREFIX + name.partition(b"}:")[2]


class Sealer:
    """Names, signs and encrypts with one secret. The secret may have any length; 32 random bytes are best."""

    def __init__(self, secret: bytes) -> None:
        self._name_hash = blake2b(key=_derived(secret, b"name"), digest_size=16)
        self._tag_key = _derived(secret, b"tag")
        self._seal_key = _derived(secret, b"seal")
        self._slot_seed = int.from_bytes(_derived(secret, b"slot")[:8], "big")

    def name(self, kind: str, *parts: bytes, whose: bytes = b"") -> bytes:
        """The Redis key of a value: `plimsoll:{<slot>}:<kind>:<keyed hash of kind and parts>`. The slot is that of
        whose value it is, a tenant or a caller; by default that of what is common to all."""
        digest = self._name_hash.copy()
        digest.update(b"".join([len(part).to_bytes(8, "big") for part in (*parts, kind.encode())]) + kind.encode())
        for part in parts:
            digest.update(part)
        prefix = PREFIXES[xxh3_64_intdigest(whose, self._slot_seed) % SLOTS] if whose else PREFIX
        return prefix + kind.encode() + b":" + digest.hexdigest().encode()

    def sign(self, name: bytes, payload: bytes) -> bytes:
        """The value to store under a name: version, tag, and the payload in plain text."""
        return SIGNED + self._tag(name, payload) + payload

    def verify(self, name: bytes, value: bytes) -> bytes | None:
        """The payload of a value that `sign` made for this name; None for any other value."""
        tag, payload = value[1 : 1 + TAG_BYTES], value[1 + TAG_BYTES :]
        if len(value) > MAX_VALUE_BYTES or value[:1] != SIGNED:
            return None
        return payload if hmac.compare_digest(tag, self._tag(name, payload)) else None

    def _tag(self, name: bytes, payload: bytes) -> bytes:
        return blake2b(name + b"\0" + payload, key=self._tag_key, digest_size=TAG_BYTES).digest()

    def seal(self, name: bytes, caller: bytes, content: bytes) -> bytes:
        """The value to store under a name: version, nonce, and the content encrypted for one caller."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # slow to import, and only summaries need it

        nonce = os.urandom(NONCE_BYTES)
        return SEALED + nonce + AESGCM(self._caller_key(caller)).encrypt(nonce, content, name)

    def unseal(self, name: bytes, caller: bytes, value: bytes) -> bytes | None:
        """The content of a value that `seal` made for this name and caller; None for any other value."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if len(value) > MAX_VALUE_BYTES or value[:1] != SEALED:
            return None
        nonce, encrypted = value[1 : 1 + NONCE_BYTES], value[1 + NONCE_BYTES :]
        try:
            return AESGCM(self._caller_key(caller)).decrypt(nonce, encrypted, name)
        except (InvalidTag, ValueError):
            return None

    def _caller_key(self, caller: bytes) -> bytes:
        return blake2b(caller, key=self._seal_key, digest_size=32).digest()


def _derived(secret: bytes, use: bytes) -> bytes:
    return blake2b(secret, person=b"plimsoll " + use, digest_size=32).digest()
