"""What makes a row or a line worth keeping whatever its words: trouble, extremes, outlines. English and code only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from heapq import nsmallest

from proxy.model.lenient_json import Json

TROUBLE = frozenset(
    "error errors fail fails failed failing failure failures fatal exception exceptions traceback panic panicked"
    " critical denied refused rejected timeout timed warn warning warnings unknown invalid cannot unable"
    " abort aborted killed exited missing lost corrupt corrupted undefined unexpected crash crashed severe".split()
)
LOUD = frozenset("ERROR ERRORS FATAL CRITICAL PANIC FAIL FAILED FAILURE Traceback SEVERE EMERG ALERT".split())
NAMES_TROUBLE = ("Exception", "Error")
NAMED_TROUBLE = re.compile(r"[\w.]*\w(?:Exception|Error)")
ABOUT_TROUBLE = re.compile(
    r"\b(?:errors?|wrong|fail(?:s|ed|ing|ures?)?|problems?|broken?|crash(?:es|ed|ing)?|warnings?|bugs?|issues?"
    r"|why (?:did|does|is|are|was|were))\b",
    re.IGNORECASE,
)
HIGHEST = re.compile(
    r"\b(?:highest|most|largest|biggest|longest|maximum|max|greatest|latest|newest|best|top|priciest|recent|heaviest)\b",
    re.I,
)
LOWEST = re.compile(
    r"\b(?:lowest|least|smallest|minimum|min|oldest|earliest|cheapest|shortest|fewest|worst|lightest)\b", re.I
)
DEFINES = re.compile(
    r"(?:(?:export|pub(?:\([a-z]+\))?|public|private|protected|static|async|default|abstract|final|unsafe|inline)\s+)*"
    r"(?:func|def|class|type|interface|struct|enum|fn|function|const|var|let|module|package|trait|impl|namespace)\b"
)
HEADS = re.compile(r"(?:#{1,4}\s|\*\*\S)")
ROUTINE = re.compile(r"(?:import\b|from\b|//|#|/\*|\*|[)}\]]+[,;]?$|\"\"\"|return\b)")
STANDING = re.compile(
    rf"(?P<empty>\s*\Z)|(?P<defines>{DEFINES.pattern})|(?P<heads>{HEADS.pattern})|(?P<routine>{ROUTINE.pattern})"
)
STANDS = {"empty": -0.05, "heads": 0.2, "routine": -0.04}  # what a line is worth for what it is, in the same units
# A line number before the indent is not part of it.
STANDS_AS = re.compile(rf"(?:\s*+\d++(?:→|\t|[|:]\s?))?+(?P<indent>[ \t]*+)(?:{STANDING.pattern})")
HUGE = 10**300  # JSON may write numbers that no float holds
NUMBER = re.compile(r"[-+]?[$€£]?\d[\d,]*(?:\.\d+)?%?")
STAMP = re.compile(r"(?:19|20)\d\d-\d\d(?:-\d\d(?:[T ][\d:.]+)?)?")


def trouble_of(token: str) -> int:
    """2 for a word that shouts trouble (`ERROR`, `Traceback`, `java.io.IOException`), 1 for one that tells of it at
    all, 0 for any other."""
    if token in LOUD or (token.endswith(NAMES_TROUBLE) and NAMED_TROUBLE.fullmatch(token)):
        return 2
    return int(token.lower() in TROUBLE)


def standing(text: str) -> float:
    """What a line is in its text: a heading, a definition, a routine line, an empty one."""
    found = STANDS_AS.match(text)
    if found is None:
        return 0.0
    kind = found.lastgroup or ""
    if kind == "defines":
        return 0.45 if len(found["indent"].expandtabs(4)) <= 4 else 0.25
    return STANDS.get(kind, 0.0)


def wants_extremes(question: str) -> int:
    """1 where a question asks for what is most, -1 for what is least, 0 where for neither."""
    if LOWEST.search(question):
        return -1
    return 1 if HIGHEST.search(question) else 0


def numbers_in(row: Json, path: str = "", depth: int = 4) -> Iterator[tuple[str, float]]:
    """Every number in a row with its path; numbers and dates that are written as strings count too."""
    if isinstance(row, dict):
        for key, value in row.items() if depth else ():
            yield from numbers_in(value, f"{path}.{key}" if path else str(key), depth - 1)
    elif isinstance(row, list):
        for value in row[:3] if depth else ():
            yield from numbers_in(value, path, depth - 1)
    elif isinstance(row, (int, float)) and not isinstance(row, bool) and abs(row) < HUGE:
        yield path, float(row)
    elif isinstance(row, str) and len(row) <= 32:
        if STAMP.fullmatch(row):
            yield path, float("".join(c for c in row if c.isdigit())[:14].ljust(14, "0"))
        elif NUMBER.fullmatch(row):
            yield path, float("".join(c for c in row if c in "-.0123456789"))


def extremes(rows: Sequence[Json], direction: int, first: int = 5) -> Iterator[tuple[str, int, int]]:
    """The column, the row and the rank (0 is the most extreme) of the first few of every numeric column."""
    columns: dict[str, list[tuple[float, int]]] = {}
    for place, row in enumerate(rows):
        for path, value in numbers_in(row):
            columns.setdefault(path, []).append((-direction * value, place))
    for path, values in columns.items():
        for rank, (_, place) in enumerate(nsmallest(first, values)):
            yield path, place, rank
