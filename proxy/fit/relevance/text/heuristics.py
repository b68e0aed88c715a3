"""Signs that a row or a line is worth keeping, whatever the query: extreme values, the outline of a text.

They know English and program code only. They return figures; how much those weigh is decided by `results`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from heapq import nsmallest

from proxy.model.lenient_json import Json

ASKS_HIGHEST = re.compile(
    r"\b(?:highest|most|largest|biggest|longest|maximum|max|greatest|latest|newest|best|top|priciest|recent|heaviest)\b",
    re.I,
)
ASKS_LOWEST = re.compile(
    r"\b(?:lowest|least|smallest|minimum|min|oldest|earliest|cheapest|shortest|fewest|worst|lightest)\b", re.I
)
DEFINITION = re.compile(
    r"(?:(?:export|pub(?:\([a-z]+\))?|public|private|protected|static|async|default|abstract|final|unsafe|inline)\s+)*"
    r"(?:func|def|class|type|interface|struct|enum|fn|function|const|var|let|module|package|trait|impl|namespace)\b"
)
# A function of C, a method of Java or TypeScript: a name, its parameters, and the bracket that opens the body.
FUNCTION = re.compile(
    r"(?!(?:if|for|while|switch|catch|else|do|try|return|with|elif|match|select|case|new|await|throw|synchronized)\b)"
    r"(?:[A-Za-z_][\w<>\[\],.*&:?]*+[ \t]+[*&]*)*+(?P<defined>[A-Za-z_$][\w$]*+)\s*\([^;{}]*\)[^;(){}=]*\{\s*\Z"
)
HEADING = re.compile(r"(?:#{1,4}\s|\*\*\S)")
ROUTINE = re.compile(r"(?:import\b|from\b|//|#|/\*|\*|[)}\]]+[,;]?$|\"\"\"|return\b)")
KIND = re.compile(
    rf"(?P<empty>\s*\Z)|(?P<defines>{DEFINITION.pattern})|(?P<heads>{HEADING.pattern})|(?P<routine>{ROUTINE.pattern})"
)
# Value of a line by its kind, in units of the best match; a definition is valued by its indentation.
OUTLINE_VALUES = {"empty": -0.05, "heads": 0.2, "routine": -0.04}
NUMBERED = re.compile(r"\s*+\d++(?:→|\t|[|:]\s?)")  # a line number that a tool has put before the indentation
LINE_KIND = re.compile(rf"(?:{NUMBERED.pattern})?+(?P<indent>[ \t]*+)(?:{KIND.pattern})")
HUGE = 10**300  # JSON may contain integers that are too large for a float
NUMBER = re.compile(r"[-+]?[$€£]?\d[\d,]*(?:\.\d+)?%?")
TIMESTAMP = re.compile(r"(?:19|20)\d\d-\d\d(?:-\d\d(?:[T ][\d:.]+)?)?")


def outline_value(text: str) -> float:
    """The value of a line for the outline of its text: positive for headings and definitions, negative for routine and
    empty lines, 0 for others."""
    found = LINE_KIND.match(text)
    if found is None:
        return 0.0
    kind = found.lastgroup or ""
    if kind == "defines":
        return 0.45 if len(found["indent"].expandtabs(4)) <= 4 else 0.25
    return OUTLINE_VALUES.get(kind, 0.0)


def superlative(question: str) -> int:
    """1 if a question asks for the highest ("latest", "most"), -1 for the lowest, 0 if for neither."""
    if ASKS_LOWEST.search(question):
        return -1
    return 1 if ASKS_HIGHEST.search(question) else 0


def numbers_in(row: Json, path: str = "", depth: int = 4) -> Iterator[tuple[str, float]]:
    """Yields (path, value) for every number in a JSON row, including numbers and timestamps in strings. At most `depth`
    levels deep; of an inner list only the first three elements."""
    if isinstance(row, dict):
        for key, value in row.items() if depth else ():
            yield from numbers_in(value, f"{path}.{key}" if path else str(key), depth - 1)
    elif isinstance(row, list):
        for value in row[:3] if depth else ():
            yield from numbers_in(value, path, depth - 1)
    elif isinstance(row, (int, float)) and not isinstance(row, bool) and abs(row) < HUGE:
        yield path, float(row)
    elif isinstance(row, str) and len(row) <= 32:
        if TIMESTAMP.fullmatch(row):
            yield path, float("".join(c for c in row if c.isdigit())[:14].ljust(14, "0"))
        elif NUMBER.fullmatch(row):
            yield path, float("".join(c for c in row if c in "-.0123456789"))


def extremes(rows: Sequence[Json], direction: int, first: int = 5) -> Iterator[tuple[str, int, int]]:
    """Yields (path, row index, rank) for the `first` most extreme values of every numeric column; rank 0 is the most
    extreme. `direction`: 1 for the highest values, -1 for the lowest."""
    columns: dict[str, list[tuple[float, int]]] = {}
    for place, row in enumerate(rows):
        for path, value in numbers_in(row):
            columns.setdefault(path, []).append((-direction * value, place))
    for path, values in columns.items():
        for rank, (_, place) in enumerate(nsmallest(first, values)):
            yield path, place, rank
