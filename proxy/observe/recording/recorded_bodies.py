"""Bodies as a recording has them: without keys, without content-encoding, as JSON of one line.

Clients send the same text again and again: a conversation grows at its end. What is known of a body's beginning is
neither searched for keys nor compressed again: the file gets the gzip member that was made before.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from xxhash import xxh3_128, xxh3_128_digest

from proxy.model.bounded import SMALL, Bounded
from proxy.observe.recording.recording_files import Packed, Piece, packed
from proxy.wire.coding import IDENTITY, coding_of
from proxy.wire.headers import Header
from proxy.wire.key_marks import may_have_key
from proxy.wire.keys import Known, without_keys

Headers = Sequence[Header]
MAX_BODY_BYTES = 8 << 20  # of one body, also without its content-encoding: making its line takes four times as much

BLOCK = 8192  # bytes of a body that are compressed together
SHORT = 4096  # bytes of a body that is compressed together with others: a member takes 20 us
MAX_KNOWN, MAX_KNOWN_BYTES = 4096, 8 << 20  # of bodies, and as much of blocks
MAX_KNOWN_TEXTS = 1 << 14  # that were searched for keys: long ones, of bodies that may have some
ENTRY_BYTES = 300  # of what is known, besides its text
SEED = secrets.randbits(64)  # of the digests: no client can look for two bodies with the same one
END = b"}\n"

_RAW = msgspec.json.Decoder(msgspec.Raw)  # checks that it is JSON
_STRING = msgspec.json.Encoder()
Keys = tuple[bytes, ...]
Digest = tuple[Keys, bytes]


class _Block(NamedTuple):
    """A part of a body. `marked`: there may be a key in what comes up to its end, so that it is read each time."""

    member: Packed
    marked: bool


class KnownBodies:
    """Makes the fields of bodies. Remembers them, by the digest of the body, and the gzip members of its blocks, by the
    digest of all up to a block's end. `known` and `fields` are thread-safe."""

    def __init__(self) -> None:
        self._bodies: Bounded[Digest, tuple[Piece, ...]] = Bounded(MAX_KNOWN, MAX_KNOWN_BYTES)
        self._ready: set[Digest] = set()
        self._blocks: Bounded[Digest, _Block] = Bounded(MAX_KNOWN, MAX_KNOWN_BYTES)
        self._texts: Known = Bounded(MAX_KNOWN_TEXTS, MAX_KNOWN_TEXTS * ENTRY_BYTES)

    @property
    def weight(self) -> int:
        """Bytes that are remembered."""
        return SMALL * len(self._ready) + self._bodies.weight + self._blocks.weight + self._texts.weight

    def is_ready(self, body: bytes, keys: Keys, headers: Headers) -> bool:
        """Whether a short body can be recorded as it is: JSON of one line, without keys and content-encoding. Takes
        0.3 us if it is known. Not thread-safe."""
        digest = (keys, xxh3_128_digest(body, SEED))
        return digest in self._ready or self._checked(digest, body, headers)

    def _checked(self, digest: Digest, body: bytes, headers: Headers) -> bool:
        if coding_of(headers) not in IDENTITY or self._without_keys(body, digest[0]) is not body:
            return False
        if one_line(body) is not body:
            return False
        if len(self._ready) >= MAX_KNOWN:
            self._ready.clear()
        self._ready.add(digest)
        return True

    def known(self, body: bytes, keys: Keys) -> tuple[Piece, ...] | None:
        """The fields of a body that is known. Takes 0.5 us, and 0.1 us per kilobyte."""
        return self._bodies.get((keys, xxh3_128_digest(body, SEED)))

    def fields(self, body: bytes, keys: Keys) -> tuple[Piece, ...]:
        """The end of a line from the fields of the body, in pieces. `keys`: the sender's credentials."""
        digests = _digests(body) if len(body) > SHORT else []
        known = [*self._known_blocks(keys, digests)]
        is_new = max(0, BLOCK * len(known) - max(map(len, keys), default=0))
        has_own = any(body.find(key, is_new) >= 0 for key in keys)
        marked = has_own or (bool(known) and known[-1].marked) or may_have_key(body, BLOCK * len(known))
        without = without_keys(body, keys, self._texts) if marked else body
        line = None if without is None else one_line(without)
        if line is body:
            return self._remembered(body, keys, known, digests, marked)
        if line is not None:
            return _head(body, b"request"), line, END
        if marked:  # what cannot be read is not known to be without keys
            return (b',"bytes":%d,"content":"dropped"' % len(body), END)
        return _head(body, b"request_text"), _STRING.encode(body.decode(errors="replace")), END

    def _without_keys(self, body: bytes, keys: Keys) -> bytes | None:
        has_key = any(key in body for key in keys) or may_have_key(body)
        return without_keys(body, keys, self._texts) if has_key else body

    def _known_blocks(self, keys: Keys, digests: Sequence[bytes]) -> Iterator[_Block]:
        """The blocks of the body's beginning, as far as it is known."""
        for digest in digests:
            block = self._blocks.get((keys, digest))
            if block is None:
                return
            yield block

    def _remembered(
        self, body: bytes, keys: Keys, known: list[_Block], digests: Sequence[bytes], marked: bool
    ) -> tuple[Piece, ...]:
        members = [block.member for block in known]
        for place in range(len(known), len(digests)):
            member = packed(body[BLOCK * place : BLOCK * (place + 1)])
            self._blocks.put((keys, digests[place]), _Block(member, marked), ENTRY_BYTES + len(member))
            members.append(member)
        head = _head(body, b"request")
        fields = (head, Packed(b"".join(members)), END) if members else (head + body + END,)
        return self._bodies.put((keys, xxh3_128_digest(body, SEED)), fields, ENTRY_BYTES + sum(map(len, fields)))


def _digests(body: bytes) -> list[bytes]:
    """For each block the digest of all up to its end."""
    view, state = memoryview(body), xxh3_128(seed=SEED)
    found: list[bytes] = []
    for start in range(0, len(body), BLOCK):
        state.update(view[start : start + BLOCK])
        found.append(state.digest())
    return found


def _head(body: bytes, name: bytes) -> bytes:
    return b',"bytes":%d,"content":"bodies","%b":' % (len(body), name)


def one_line(body: bytes) -> bytes | None:
    """The body, if it is JSON, without line ends between values; the same one if it has none."""
    try:
        _RAW.decode(body)
        if not body.isascii():
            body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if b"\n" in body or b"\r" in body:  # in JSON, white space between values: in a text they are escaped
        return body.replace(b"\r", b" ").replace(b"\n", b" ")
    return body
