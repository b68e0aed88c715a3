"""Recognises a text that is a run of records (retrieved passages, mails, commits, search results, entries of a log) by
what recurs in it, and the head of each: its number, source, time. Counts the rows of a table. It knows no tool's words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

FEWEST = 3  # records; fewer are no run
DISTINCT = 0.8  # share of the heads that differ from each other: a line that recurs as it is heads nothing
ALIKE = 0.8  # share of the records in which a line at the same place begins alike, so that it belongs to the head
HEAD, LONGEST = 5, 300  # lines of a head, blank ones too, and characters of each
TABLE = 0.9  # share of the lines with the same number of separators from which they are rows

# How a head begins, with what recurs in it as a group: a tag with attributes, a heading, a line of signs with a title,
# a time (these anywhere); a number, `commit 1a2b3c4`, `Thread 7`, a name in quotation marks, `Key: value` above another
# one (after a blank line).
ANYWHERE = re.compile(
    r"(?P<tag><[A-Za-z][\w:.-]*)\s[^<>]*=[^<>]*>\s*\Z|(?P<marks>\#{1,6})\s+\S|(?P<signs>={3,}|-{3,}|\*{3,}|~{3,})\s*\w"
    r"|(?P<time>\[?(?:19|20)\d\d-\d\d-\d\d[T ]\d\d:\d\d)"
)
AFTER_BLANK = re.compile(
    r"(?P<number>[(\[]?\d{1,5}[)\].:])\s+\S|(?P<word>[A-Za-z]\w*)\s+(?:\#?\d+|[0-9a-f]{7,40})\b|(?P<quote>\")\w"
    r"|(?P<key>[A-Za-z][\w-]{0,20}):\s+\S"
)
KEY = re.compile(r"[A-Za-z][\w-]{0,20}:\s+\S")
NUMBER = re.compile(r"[(\[]?(\d+)[)\].:]")
BEGINNING = re.compile(r"\W*\w+\W*")
DIGITS = re.compile(r"\d+")
SEPARATED = re.compile(r"[,\t;|]")


@dataclass(frozen=True, slots=True)
class Records:
    """`heads`: of each record the lines of its head, by the first. `of`: for each line the first line of its record, -1
    for lines before the first."""

    heads: Mapping[int, tuple[int, ...]]
    of: Sequence[int]

    def along(self, place: int) -> tuple[int, ...]:
        """The lines that must stay with a line."""
        return self.heads.get(self.of[place], ())


def records_of(texts: Sequence[str]) -> Records | None:
    """The records of a text, given as its lines; None if it is no run of records."""
    found: dict[str, list[int]] = {}
    for key, place in _beginnings(texts):
        found.setdefault(key, []).append(place)
    levels = [key for key, places in found.items() if key.startswith("marks ") and places != [0]]
    if len(levels) > 1:  # headings of several levels: a document, which has an outline
        return None
    runs = [places for places in found.values() if _is_run(texts, places)]
    if not runs:
        return None
    places = min(runs, key=lambda places: places[0])
    return Records(_heads(texts, places), _of(len(texts), places))


def _beginnings(texts: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yields what a line that may be a head begins with, and its index."""
    blank = True
    for place, text in enumerate(texts):
        if not text or text.isspace():
            blank = True
            continue
        match = ANYWHERE.match(text) if text[0] in "<#=-*~[12" else None
        if match is None and blank:
            match = AFTER_BLANK.match(text)
            if match is not None and match.lastgroup == "key" and not _is_key(texts, place + 1):
                match = None
        blank = False
        if place + 1 < len(texts) and texts[place + 1].startswith("+++ "):
            continue  # a file of a patch
        if match is not None and len(text) <= LONGEST:
            yield f"{match.lastgroup} {DIGITS.sub('0', match[match.lastgroup or 0])}", place


def _is_key(texts: Sequence[str], place: int) -> bool:
    return place < len(texts) and KEY.match(texts[place]) is not None


def _is_run(texts: Sequence[str], places: Sequence[int]) -> bool:
    """Whether lines that begin alike are the heads of records: several, not all the same, most with lines below."""
    if len(places) < FEWEST or len({texts[place] for place in places}) < DISTINCT * len(places):
        return False
    numbers = [match[1] for place in places if (match := NUMBER.match(texts[place]))]
    if len(set(numbers)) < DISTINCT * len(numbers):  # several lists of numbered items
        return False
    return places[-1] - places[0] >= 2 * (len(places) - 1)


def _heads(texts: Sequence[str], places: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """The lines of each head: its first, and those after it that begin alike in most records."""
    heads = {place: [place] for place in places}
    for away in range(1, HEAD):
        ends = zip(places, [*places[1:], len(texts)], strict=True)
        below = {place: texts[place + away] for place, end in ends if place + away < end}
        alike: dict[str, int] = {}
        for text in below.values():
            if text.strip():
                beginning = begins(text)
                alike[beginning] = alike.get(beginning, 0) + 1
        most = max(alike, key=alike.__getitem__, default="")
        if not alike:
            continue  # a blank line, as between a heading and its source
        if alike[most] < ALIKE * len(places):
            break
        for place, text in below.items():
            if text.strip() and len(text) <= LONGEST and begins(text) == most:
                heads[place].append(place + away)
    return {place: tuple(lines) for place, lines in heads.items()}


def _of(count: int, places: Sequence[int]) -> list[int]:
    found = [-1] * (places[0] if places else count)
    for place, end in zip(places, [*places[1:], count], strict=True):
        found += [place] * (end - place)
    return found


def common_beginning(texts: Sequence[str], heads: Sequence[int]) -> str:
    """How most of these heads begin; empty if they do not begin alike."""
    found = Counter(begins(texts[place]) for place in heads)
    most, times = found.most_common(1)[0]
    return most if times >= ALIKE * len(heads) else ""


def begins(text: str) -> str:
    """What a line begins with: its first word and the signs around it, every number as 0."""
    match = BEGINNING.match(text)
    return DIGITS.sub("0", match[0]) if match is not None else ""


def rows_of(texts: Sequence[str]) -> int:
    """The number of rows of a text that is a table; 0 if it is none."""
    found = table_of(texts)
    if found is None:
        return 0
    first, end = found
    lines = [text for text in texts[first:end] if text and not text.isspace()]
    if lines[0][0] == "{":
        return len(lines)
    return len(lines) - 1 - (lines[0][0] == "|" and not lines[1].strip("|-: "))


def table_of(texts: Sequence[str]) -> tuple[int, int] | None:
    """The first line of a table and the one after its last: lines of JSON, a Markdown table, values with separators
    under a header; None if most of a text is none."""
    lines = [(place, text) for place, text in enumerate(texts) if text and not text.isspace()]
    if len(lines) < FEWEST:
        return None
    objects = [place for place, text in lines if text[0] == "{" and text.rstrip()[-1] == "}"]
    if len(objects) >= TABLE * len(lines):
        return objects[0], objects[-1] + 1
    found: dict[str, list[int]] = {}
    for place, text in lines:
        found.setdefault("".join(SEPARATED.findall(text)), []).append(place)
    signs, places = max(found.items(), key=lambda item: len(item[1]))
    if len(signs) < 2 or len(places) < TABLE * len(lines):
        return None
    return places[0], places[-1] + 1
