"""The first sentence of a description, whatever its language."""

from __future__ import annotations

import re

LEAST = 12  # bytes of a first sentence: "Note." or a tag say nothing, so that the next sentence belongs to it
LONGEST = 400  # bytes in which a sentence ends; what is longer is cut within `CUT`
CUT = 120  # bytes: about 30 tokens
READ = 2 * LONGEST  # characters of a text that are read
MORE = "…"
# A mark of the end with closing quotes and brackets behind it, and a blank; of scripts without blanks none is needed. A
# line break ends a sentence unless the next line goes on with a small letter.
END = re.compile(r"""[.!?؟।۔։።][.!?"'”’»)\]*_`]*(?=\s|$)|[。！？｡][」』”’）]*|(?=\n)""")
# What a dot does not end: a letter ("e.g.", "z. B."), a number of a list, usual abbreviations before other words.
INNER = re.compile(r"(?:^|[\s(\[{\"'“„])(?:(?:\w\.)*\w|\d+|approx|cf|vs|ca|no|nr|fig|incl|resp|bzw|max|min)\.$", re.I)


def first_sentence(text: str) -> str:
    """The first sentence of a text; of one that has no end, its first words, with `MORE` behind them."""
    read = text[:READ].strip()
    for end in END.finditer(read):
        found = read[: end.end()].rstrip()
        size = _bytes(found)
        if size > LONGEST:
            break
        if size >= LEAST and not _goes_on(found, read, end):
            return found
    return read if _bytes(text.strip()) <= CUT else _cut(read)


def _goes_on(found: str, read: str, end: re.Match[str]) -> bool:
    """Whether a sentence goes on behind what may be its end: with a small letter, or after an abbreviation."""
    rest = read[end.end() :]
    following = rest.lstrip()
    if rest[: len(rest) - len(following)].count("\n") > 1:
        return False  # a blank line
    return following[:1].islower() or (end.group()[:1] == "." and INNER.search(found) is not None)


def _cut(read: str) -> str:
    """The first words of a text, in `CUT` bytes."""
    head = read.encode("utf-8", "replace")[:CUT].decode("utf-8", "ignore")
    if len(head) == len(read):
        return head
    words = head.rstrip() if read[len(head)].isspace() else head.rpartition(" ")[0].rstrip()
    return (words if len(words) >= len(head) // 2 else head).rstrip(" ,;:-–—") + MORE


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
