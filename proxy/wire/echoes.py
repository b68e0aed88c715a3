"""Whether an error quotes what a client sent: words and figures that a request itself contains prove nothing.

An upstream may quote in any form: with quotes and escapes, in another case, cut off, blanks folded. So words are
compared, not bytes: letters and digits alone, in lower case. It is strict: where a request happens to say what an
upstream says, nothing is learned from this refusal, which costs a later request a round trip.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from proxy.types import Quote
from proxy.wire.refusals import folded, words_of

LONGEST = 8 << 20  # bytes of a request that are searched; a longer one proves nothing
VICINITY = 160  # bytes on both sides of a place that are read as words
MOST_PLACES = 200  # at which one passage is compared; a word that is more frequent is taken for an echo
# Letters and digits as escapes: no encoder of JSON writes them so.
DISGUISED = re.compile(rb"\\u00(?:3[0-9]|4[1-9a-f]|5[0-9a]|6[1-9a-f]|7[0-9a])")

ESCAPE = re.compile(r"\\u([0-9a-f]{4})")


def echoes(quotes: Iterable[Quote], *said: bytes) -> bool:
    """Whether any of these passages of an error stands in what a client said."""
    if sum(map(len, said)) > LONGEST:
        return True
    texts = [text.lower() for text in said]
    if any(b"\\u00" in text and DISGUISED.search(text) for text in texts):
        return True
    return any(_stands_in(quote, text) for quote in quotes for text in texts)


def _stands_in(quote: Quote, text: bytes) -> bool:
    if not quote.words:
        return False
    anchor = max(quote.words, key=lambda word: (word.isascii(), len(word)))
    places = 0
    for form in _forms(anchor):
        for place in _places(form, text):
            places += 1
            near = text[max(0, place - VICINITY) : place + len(form) + VICINITY].decode(errors="replace")
            if places > MOST_PLACES or _within(quote, words_of(folded(ESCAPE.sub(_letter, near)))):
                return True
    return False


def _forms(word: str) -> set[bytes]:
    """How a word may be written in a request."""
    forms = {word, msgspec.json.encode(word).decode()[1:-1]}
    if not word.isascii():
        forms.add("".join(f"\\u{ord(c):04x}" for c in word))
    elif word.isdecimal():
        forms |= {f"{int(word):,}", f"{int(word):_}"}
    return {form.encode() for form in forms}


def _letter(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16))


def _places(form: bytes, text: bytes) -> Iterator[int]:
    place = text.find(form)
    while place >= 0:
        yield place
        place = text.find(form, place + 1)


def _within(quote: Quote, words: tuple[str, ...]) -> bool:
    """Whether these words hold the passage: a figure beside a word that stands beside it in the error, too; the words
    of any other passage one after the other. Words at its ends may be cut off."""
    for place in range(len(words) - len(quote.words) + 1):
        found = words[place : place + len(quote.words)]
        if quote.figure:  # cut off at its end, it shows what is before it
            before, after = words[place - 1] if place else "", words[place + 1] if place + 1 < len(words) else ""
            if found[0].startswith(quote.words[0]) and quote.before and before.endswith(quote.before):
                return True
            if found[0].endswith(quote.words[0]) and quote.after and after.startswith(quote.after):
                return True
        elif _reads(quote.words, found):
            return True
    return False


def _reads(quoted: tuple[str, ...], found: tuple[str, ...]) -> bool:
    if len(quoted) == 1:
        return quoted[0] in found[0]
    ends = found[0].endswith(quoted[0]) and found[-1].startswith(quoted[-1])
    return ends and quoted[1:-1] == found[1:-1]
