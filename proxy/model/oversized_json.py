"""JSON out of all proportion: what is in it, and the same without its long strings' middles; it is never decoded whole.

A call into C holds the interpreter's lock until it returns, and a text of 64 MB takes 256 MB once one emoji stands in
it: so everything here looks at a piece at a time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

OUTSIZE = 2 << 20  # bytes of a message or text over which it is not read whole
SLICE = 1 << 20  # bytes that one search may look at: at most 1 ms
STRETCH = 1 << 18  # bytes of a string whose escapes are looked at: at most 10 ms
LONGEST = 8 << 20  # bytes of JSON that are decoded at once: 64 MB of escapes take 90 ms
PIECE = 1 << 15  # bytes of a string that are decoded at once
SHORTEST = 1 << 16  # bytes of a string that is not cut, unless many messages share what is too little for them
LONGEST_ESCAPE = 12  # bytes: two halves of a pair
HEAD = 0.5  # the share of what stays that goes to a string's beginning
QUOTE, BACKSLASH = b'"', ord("\\")
DATA = (b'"data"', b'"file_data"', b'"url"')  # keys of strings that are no text: images, sounds, files
IMAGE = b"data:image"
KEYS = (b'"content"', b'"text"', b'"arguments"', b'"input"', b'"refusal"', b'"description"', b'"reasoning', *DATA)
STRANGE = 1 << 20  # bytes of a string under another key: a name, a role, a key itself
MARKER = " [… {:,} bytes left out …] "  # no line end: it may stand in a string of JSON that is itself text

# A string that stands under one of these keys tells nothing of what a request is; any other may be an id or a name.
APART = 1 << 9  # bytes of such a string that is left out of an outline
CONTENT = re.compile(
    rb'"(?:content|text|arguments|input|refusal|description|reasoning\w*|data|file_data|url)"\s*:\s*"\Z'
)
TOKEN = b"%b " % os.urandom(12).hex().encode()  # of this process: nobody outside can write it

SAID = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)

Cut = tuple[int, int]
STRING = msgspec.json.Decoder(str)


def count(raw: bytes, sign: bytes) -> int:
    """How often a sign stands there."""
    return sum(raw.count(sign, start, start + SLICE) for start in range(0, len(raw), SLICE))


def find(raw: bytes, sign: bytes, start: int = 0) -> int:
    """Where a sign stands next; -1 where it does not."""
    while start < len(raw):
        found = raw.find(sign, start, start + SLICE)
        if found >= 0:
            return found
        start += SLICE - len(sign) + 1
    return -1


def holds(raw: msgspec.Raw, signs: Sequence[bytes]) -> bool:
    """Whether one of these signs stands there, each of at most 16 bytes."""
    view = memoryview(raw)
    if view.nbytes <= SLICE:
        whole = bytes(view)
        return any(sign in whole for sign in signs)
    slices = (bytes(view[start : start + SLICE + 16]) for start in range(0, view.nbytes, SLICE))
    return any(sign in piece for piece in slices for sign in signs)


def copy(raw: msgspec.Raw | memoryview) -> bytes:
    """Its bytes. Joining them lets other threads have their turn, as copying them at once would not."""
    view = memoryview(raw)
    if view.nbytes <= OUTSIZE:
        return bytes(view)
    return b"".join([bytes(view[start : start + SLICE]) for start in range(0, view.nbytes, SLICE)])


def signs(raw: bytes) -> int:
    """How many signs before values there are in JSON, those in strings included: no fewer than values. A megabyte takes
    0.3 to 1 ms."""
    return sum(count(raw, sign) for sign in (b",", b"[", b"{"))


def values(raw: bytes, most: int) -> int:
    """About how many values there are in JSON, strings left unread; over `most` it does not go on."""
    found, at = 0, 0
    if (all_of_them := signs(raw)) <= most:
        return all_of_them
    for start, end in strings(raw):
        found += _opened(raw, at, start)
        at = end
        if found > most:
            return found
    return found + _opened(raw, at, len(raw))


def _opened(raw: bytes, start: int, end: int) -> int:
    """Values that begin between two strings."""
    if end - start <= 2:
        return 1
    steps = range(start, end, SLICE)
    return 1 + sum(raw.count(sign, at, min(at + SLICE, end)) for at in steps for sign in (b",", b"[", b"{"))


def strings(raw: bytes) -> Iterator[Cut]:
    """Where each string of JSON begins, behind its quotation mark, and where it ends, before the other."""
    start = find(raw, QUOTE) + 1
    while start:
        end = start
        while end < len(raw) and raw[end] != QUOTE[0]:
            after = _said(raw, end, end + STRETCH)
            end = after if after > end else end + 2  # behind an escape that a slice ended in
        if end >= len(raw):
            return
        yield start, end
        start = find(raw, QUOTE, end + 1) + 1


def _said(raw: bytes, start: int, end: int) -> int:
    """How far a string goes on within a slice that begins at none of its escapes' second half."""
    found = SAID.match(raw, start, end)
    return start if found is None else found.end()


def _escaped(raw: bytes, start: int, place: int) -> bool:
    """Whether the character at a place in a string stands behind an odd number of backslashes."""
    at = place
    while at > start and raw[at - 1] == BACKSLASH:
        low = max(start, at - PIECE)
        run = at - low - len(raw[low:at].rstrip(b"\\"))
        at -= run
        if run < PIECE:
            break
    return (place - at) % 2 == 1


@dataclass(frozen=True, slots=True)
class Outline:
    """JSON without the long strings of its contents: `text` has tokens in their places, `gone` is where they stand in
    `raw`."""

    raw: bytes
    text: bytes
    gone: Sequence[Cut]

    def whole(self, value: msgspec.Raw | bytes) -> memoryview:
        """What stands in the JSON itself where a value of the outline stands."""
        if not self.gone:
            return memoryview(value)
        said = bytes(value)
        first, last = said.find(TOKEN), said.rfind(TOKEN)
        if first < 0:
            return memoryview(said)
        start = self.gone[_number(said, first)][0] - first
        number = _number(said, last)
        return memoryview(self.raw)[start : self.gone[number][1] + len(said) - last - len(_token(number))]


def outline(raw: bytes) -> Outline | None:
    """The outline of JSON that is too long to be decoded at once; None where it is not."""
    if len(raw) <= LONGEST:
        return None
    long = ((start, end) for start, end in strings(raw) if end - start > APART)
    gone = [cut for cut in long if CONTENT.search(raw, max(0, cut[0] - 48), cut[0])]
    parts, at = [], 0
    for number, (start, end) in enumerate(gone):
        parts += [raw[at:start], _token(number)]
        at = end
    return Outline(raw, b"".join((*parts, raw[at:])), gone)


def _token(number: int) -> bytes:
    return b"%b%08d" % (TOKEN, number)


def _number(said: bytes, place: int) -> int:
    return int(said[place + len(TOKEN) : place + len(TOKEN) + 8])


def cuts(raw: bytes, most: int, images: bool = False, shortest: int = SHORTEST) -> list[Cut]:
    """The middles of strings over `shortest` bytes, without which there are about `most` bytes. Data stays (`images`:
    but for images, whose sizes stand at their beginning)."""
    long = [
        (start, end)
        for start, end in strings(raw)
        if end - start > shortest and ((images and raw.startswith(IMAGE, start)) or not _is_data(raw, start))
    ]
    over = len(raw) - most
    found: list[Cut] = []
    for start, end in sorted(long, key=lambda span: span[0] - span[1]):
        if over <= 0:
            break
        kept = max(shortest, end - start - over)
        first = _safe(raw, start, start + int(kept * HEAD), end)
        last = _safe(raw, start, max(first, end - int(kept * (1 - HEAD))), end)
        over -= last - first
        found.append((first, last))
    return sorted(found)


def strange(raw: bytes) -> bool:
    """Whether there is a very long string where no text and no data stand: whoever reads it, reads it whole."""
    return any(
        end - start > STRANGE and not any(key in raw[max(0, start - 32) : start] for key in KEYS)
        for start, end in strings(raw)
    )


def _is_data(raw: bytes, start: int) -> bool:
    before = raw[max(0, start - 24) : start]
    return raw[start : start + 5] == b"data:" or any(key in before for key in DATA)


def _safe(raw: bytes, start: int, place: int, end: int) -> int:
    """The next place in a string that does not stand in a character or an escape; its end where there is none near."""
    for at in range(place, min(end, place + SHORTEST)):
        if raw[at] & 0xC0 == 0x80 or (raw[at - 1] == BACKSLASH and _escaped(raw, start, at)):
            continue  # within a character, or behind the beginning of an escape
        if BACKSLASH in raw[max(0, at - LONGEST_ESCAPE) : at] and raw[at] != BACKSLASH:
            continue
        if raw[at] == BACKSLASH and raw[at + 1 : at + 3].lower() == b"ud" and raw[at + 3 : at + 4] in b"cdefCDEF":
            continue  # the second half of a pair
        return at
    return end


def is_image(raw: bytes, cut: Cut) -> bool:
    """Whether a cut is of an image's data."""
    return raw.rfind(IMAGE, max(0, cut[0] - SLICE), cut[0]) > raw.rfind(QUOTE, max(0, cut[0] - SLICE), cut[0])


def without(raw: bytes, gone: Sequence[Cut]) -> bytes:
    """The JSON with a marker in place of each cut."""
    parts, at = [], 0
    for start, end in gone:
        parts += [raw[at:start], MARKER.format(end - start).encode()]
        at = end
    return b"".join((*parts, raw[at:]))


def pieces(raw: bytes, cut: Cut) -> Iterator[str]:
    """The text of a cut, a piece at a time."""
    start, stop = cut
    while start < stop:
        piece, start = _piece(raw, start, stop)
        yield piece


def _piece(raw: bytes, start: int, stop: int) -> tuple[str, int]:
    for end in range(min(stop, start + PIECE), min(stop, start + PIECE) + LONGEST_ESCAPE):
        try:
            return STRING.decode(b'"%b"' % raw[start : min(end, stop)]), min(end, stop)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    end = min(stop, start + PIECE)
    return raw[start:end].decode("utf-8", "replace"), end
