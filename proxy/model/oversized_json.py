"""Works on oversized JSON in slices: finds strings, cuts out the middles of long ones. It never decodes the whole.

A call into C holds the GIL until it returns, and a text of 64 MB takes 256 MB once it contains one emoji. Therefore no
call here reads more than a slice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

OUTSIZE = 2 << 20  # bytes of a message or text above which it is not decoded whole
SLICE = 1 << 20  # bytes per search: at most 1 ms
STRETCH = 1 << 16  # bytes per search for strings or escapes: at most 10 ms, if all strings are empty
LONGEST = 8 << 20  # bytes of JSON that are decoded at once: 64 MB of escapes take 90 ms
PIECE = 1 << 15  # bytes of a string that are decoded at once
SHORTEST = 1 << 16  # bytes; shorter strings are not cut by default
LONGEST_ESCAPE = 12  # bytes: a surrogate pair
HEAD = 0.5  # the share of the kept bytes that is at the start of the string
QUOTE, BACKSLASH = b'"', ord("\\")
DATA = (b'"data"', b'"file_data"', b'"url"', b'"image_url"', b'"encrypted_content"', b'"result"')
IMAGE = b"data:image"
PROMPTS = (b'"instructions"', b'"system"', b'"prompt"', b'"suffix"')
TEXTS = (b'"content"', b'"text"', b'"arguments"', b'"input"', b'"output"', b'"stdout"', b'"stderr"', *PROMPTS)
KEYS = (*TEXTS, b'"refusal"', b'"description"', b'"reasoning', *DATA)
STRANGE = 1 << 20  # bytes of a string under any other key: a name, a role, an argument of a call
MOST_STRANGE = LONGEST // 2  # bytes of such strings together
MARKED = re.compile(r" \[… [\d,]+ bytes left out …\] ")
MARKER = " [… {:,} bytes left out …] "  # no line break: it may be inside JSON that is itself a string

# Strings under these keys are content; any other string may be an id or a name.
APART = 1 << 9  # bytes of content above which it is left out of an outline
CONTENT = re.compile(
    rb'"(?:content|text|arguments|input|output|stdout|stderr|refusal|description|reasoning\w*|data|file_data|'
    rb'(?:image_)?url|instructions|system|prompt|suffix)"\s*:\s*"\Z'
)
TOKEN = b"%b " % os.urandom(12).hex().encode()  # per process, so that no client can send it

SAID = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
JSON_STRING = re.compile(rb'"(%b)"(?:[:,] ?(?="))?' % SAID.pattern, re.DOTALL)  # and the separator before another one
JSON_STRINGS = re.compile(rb'(?:[^"]*+"%b")*+' % SAID.pattern, re.DOTALL)

Cut = tuple[int, int]
STRING = msgspec.json.Decoder(str)


def count(raw: bytes, sign: bytes) -> int:
    """How often a byte sequence occurs."""
    return sum(raw.count(sign, start, start + SLICE) for start in range(0, len(raw), SLICE))


def find(raw: bytes, sign: bytes, start: int = 0) -> int:
    """The index of the next occurrence of a byte sequence; -1 if there is none."""
    while start < len(raw):
        found = raw.find(sign, start, start + SLICE)
        if found >= 0:
            return found
        start += SLICE - len(sign) + 1
    return -1


def holds(raw: msgspec.Raw, signs: Sequence[bytes]) -> bool:
    """Whether one of these byte sequences (at most 16 bytes each) occurs."""
    view = memoryview(raw)
    if view.nbytes <= SLICE:
        whole = bytes(view)
        return any(sign in whole for sign in signs)
    slices = (bytes(view[start : start + SLICE + 16]) for start in range(0, view.nbytes, SLICE))
    return any(sign in piece for piece in slices for sign in signs)


def copy(raw: msgspec.Raw | memoryview) -> bytes:
    """A copy as bytes, made in slices so that other threads can run in between."""
    view = memoryview(raw)
    if view.nbytes <= OUTSIZE:
        return bytes(view)
    return b"".join([bytes(view[start : start + SLICE]) for start in range(0, view.nbytes, SLICE)])


def signs(raw: bytes) -> int:
    """An upper bound of the number of values in JSON: commas and brackets, also those in strings. Up to 1 ms per MB."""
    return sum(count(raw, sign) for sign in (b",", b"[", b"{"))


def values(raw: bytes, most: int) -> int:
    """About how many values JSON has, without the content of strings. Stops counting above `most`."""
    if (all_of_them := signs(raw)) <= most:
        return all_of_them
    found = 0
    for start, end in _stretches(raw):
        rest, said = (b"", 1) if end - start > STRETCH else JSON_STRING.subn(b"", raw[start:end])
        found += said + signs(rest)
        if found > most:
            break
    return found


def strings(raw: bytes) -> Iterator[Cut]:
    """Start and end of each string in JSON, without its quotation marks."""
    for start, end in _stretches(raw):
        if end - start > STRETCH:
            yield start + 1, end - 1
        else:
            yield from (found.span(1) for found in JSON_STRING.finditer(raw, start, end))


def _stretches(raw: bytes) -> Iterator[Cut]:
    """JSON in parts that start and end outside of strings: one string, or at most `STRETCH` bytes. A string that does
    not end, and what follows it, are in none."""
    start = 0
    while start < len(raw):
        whole = JSON_STRINGS.match(raw, start, start + STRETCH)
        end = start if whole is None else whole.end()
        if end == start:  # no string ends in this stretch
            quote = raw.find(QUOTE, start, start + STRETCH)
            end = min(start + STRETCH, len(raw)) if quote < 0 else quote if quote > start else _end(raw, start)
        if end > len(raw):
            return
        yield start, end
        start = end


def _end(raw: bytes, start: int) -> int:
    """The end of the string that starts at `start`, after its quotation mark; beyond `raw` if it does not end."""
    end = start + 1
    while end < len(raw) and raw[end] != QUOTE[0]:
        after = _said(raw, end, end + STRETCH)
        end = after if after > end else end + 2  # after an escape at the end of a slice
    return end + 1


def _said(raw: bytes, start: int, end: int) -> int:
    """The end of a string within a slice. `start` must not be inside an escape."""
    found = SAID.match(raw, start, end)
    return start if found is None else found.end()


def _escaped(raw: bytes, start: int, place: int) -> bool:
    """Whether a character of a string follows an odd number of backslashes."""
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
    """JSON with its long content strings replaced by tokens: `text`. `gone` are their positions in `raw`."""

    raw: bytes
    text: bytes
    gone: Sequence[Cut]

    def whole(self, value: msgspec.Raw | bytes) -> memoryview:
        """The original bytes of a value of the outline."""
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
    """The outline of JSON above `LONGEST` bytes; None for shorter JSON."""
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
    """Which middles of strings to cut so that about `most` bytes remain. Strings of up to `shortest` bytes are kept,
    and so is data; with `images`, images are cut, because their size is in their first bytes."""
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
    """Whether very long strings are neither content nor data, so that a decoder would read too much whole."""
    total = sum(
        end - start
        for start, end in strings(raw)
        if end - start > STRANGE and not any(key in raw[max(0, start - 32) : start] for key in KEYS)
    )
    return total > MOST_STRANGE


def _is_data(raw: bytes, start: int) -> bool:
    before = raw[max(0, start - 24) : start]
    return raw[start : start + 5] == b"data:" or any(key in before for key in DATA)


def _safe(raw: bytes, start: int, place: int, end: int) -> int:
    """The next position in a string that is not inside a character or an escape; its end if there is none nearby."""
    for at in range(place, min(end, place + SHORTEST)):
        if raw[at] & 0xC0 == 0x80 or (raw[at - 1] == BACKSLASH and _escaped(raw, start, at)):
            continue  # inside a character or an escape
        if BACKSLASH in raw[max(0, at - LONGEST_ESCAPE) : at] and raw[at] != BACKSLASH:
            continue
        if raw[at] == BACKSLASH and raw[at + 1 : at + 3].lower() == b"ud" and raw[at + 3 : at + 4] in b"cdefCDEF":
            continue  # the second half of a surrogate pair
        return at
    return end


def is_image(raw: bytes, cut: Cut) -> bool:
    """Whether a cut is in an image's data."""
    return raw.rfind(IMAGE, max(0, cut[0] - SLICE), cut[0]) > raw.rfind(QUOTE, max(0, cut[0] - SLICE), cut[0])


def without(raw: bytes, gone: Sequence[Cut]) -> bytes:
    """The JSON with a marker for each cut."""
    parts, at = [], 0
    for start, end in gone:
        parts += [raw[at:start], MARKER.format(end - start).encode()]
        at = end
    return b"".join((*parts, raw[at:]))


def is_cut(text: str) -> bool:
    """Whether the middle of a string was cut out of a text, so that what is in it cannot be counted any more."""
    return "bytes left out" in text and MARKED.search(text) is not None


def pieces(raw: bytes, cut: Cut) -> Iterator[str]:
    """The text of a cut, in pieces of about `PIECE` bytes."""
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
