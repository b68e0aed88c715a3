"""Splits a user's text into clauses: sentences, lines, labels, and the values of JSON, XML and YAML. It weighs none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from proxy.fit.relevance.text.dates import AFTER_ORDINALS

# Where a clause ends. `mark`: punctuation that belongs to it, at a blank (not in "am 10. April") or, in scripts without
# blanks, anywhere. All else separates: emoji, line breaks, the colon of a label, an opening question mark, the
# punctuation of JSON, a tag.
END = re.compile(
    rf"(?P<mark>[.!?…;]++(?!(?<=\d\.) (?:{'|'.join(AFTER_ORDINALS)})\b)"
    r"[\"'”’»)\]*_]*+(?=\s|<|\Z)|[。！？；؟।፧\u037e]++[」』”’）]*+)"
    r"|[\u2600-\u27bf\U0001f300-\U0001faff]++|\n+|[:：](?=\s|\Z)|(?=¿)|\"\s*+[:,}\]]+\s*+\"?|[{\[]\s*+\"|</?\w[^<>\n]{0,80}>"
)
CLOSING = " \t\"'”’»」』)]）*_。."  # what may follow the sign by which a clause asks
QUESTION_MARKS = ("?", "？", "؟", "፧", "\u037e")
PARTICLES = ("吗", "嗎", "呢", "か", "까")  # the word that ends a question, where the script needs no question mark
GREEK = re.compile(r"[\u0370-\u03ff]")


def clauses_in(text: str) -> Iterator[tuple[int, int]]:
    """Yields the clauses of a text as (start, end), in characters, without the blanks around them. A piece without a
    letter or a digit is no clause."""
    start = 0
    for match in END.finditer(text):
        yield from _trimmed(text, start, match.end() if match["mark"] else match.start())
        start = match.end()
    yield from _trimmed(text, start, len(text))


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    piece = text[start:end]
    if any(map(str.isalnum, piece)):
        yield start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())


def is_question(clause: str) -> bool:
    """Whether a clause ends as a question: with a question mark of any script, or with a particle that asks. Greek has
    a semicolon for a question mark."""
    tail = clause.rstrip(CLOSING)
    return tail.endswith(QUESTION_MARKS + PARTICLES) or (tail.endswith(";") and GREEK.search(tail) is not None)
