"""Bodies as a recording has them: without keys, as JSON of one line.

Clients send the same text again and again: a conversation grows at its end. What is known of a body's beginning is not
searched for keys again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec
from xxhash import xxh3_128

from proxy.model.bounded import Bounded
from proxy.wire.headers import Header
from proxy.wire.key_marks import may_have_key
from proxy.wire.keys import Known, without_keys

Headers = Sequence[Header]

BLOCK = 8192  # bytes of a body that are known or new together
MAX_KNOWN = 4096  # blocks
MAX_KNOWN_TEXTS = 1 << 14  # that were searched for keys: long ones, of bodies that may have some
ENTRY_BYTES = 300  # of what is known
SEED = secrets.randbits(64)  # of the digests: no client can look for two bodies with the same one
END = b"}\n"

_RAW = msgspec.json.Decoder(msgspec.Raw)  # checks that it is JSON
_STRING = msgspec.json.Encoder()
Keys = tuple[bytes, ...]


class KnownBodies:
    """Makes the fields of bodies. Remembers beginnings in which there is no sign of a key, by the digest of all up to a
    block's end."""

    def __init__(self) -> None:
        self._harmless: Bounded[tuple[Keys, bytes], bool] = Bounded(MAX_KNOWN, MAX_KNOWN * ENTRY_BYTES)
        self._texts: Known = Bounded(MAX_KNOWN_TEXTS, MAX_KNOWN_TEXTS * ENTRY_BYTES)

    @property
    def weight(self) -> int:
        """Bytes that are remembered."""
        return self._harmless.weight + self._texts.weight

    def fields(self, body: bytes, keys: Keys) -> bytes:
        """The end of a line from the fields of the body. `keys`: the sender's credentials."""
        marked = not self._is_harmless(body, keys)
        without = without_keys(body, keys, self._texts) if marked else body
        line = None if without is None else one_line(without)
        if line is not None:
            return b',"bytes":%d,"content":"bodies","request":%b}\n' % (len(body), line)
        if marked:  # what cannot be read is not known to be without keys
            return b',"bytes":%d,"content":"dropped"}\n' % len(body)
        text = _STRING.encode(body.decode(errors="replace"))
        return b',"bytes":%d,"content":"bodies","request_text":%b}\n' % (len(body), text)

    def _is_harmless(self, body: bytes, keys: Keys) -> bool:
        """Whether there is no sign of a key in a body. Only what follows its known beginning is searched."""
        new = [(keys, digest) for digest in _digests(body)]
        start = 0
        while new and self._harmless.get(new[0]):
            start += BLOCK
            del new[0]
        if new:
            across = max(0, start - max(map(len, keys), default=0))  # a key may begin in what is known
            if may_have_key(body, start) or any(body.find(key, across) >= 0 for key in keys):
                return False
            for digest in new:
                self._harmless.put(digest, True, ENTRY_BYTES)
        return True


def _digests(body: bytes) -> list[bytes]:
    """For each block the digest of all up to its end."""
    view, state = memoryview(body), xxh3_128(seed=SEED)
    found: list[bytes] = []
    for start in range(0, len(body), BLOCK):
        state.update(view[start : start + BLOCK])
        found.append(state.digest())
    return found


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
