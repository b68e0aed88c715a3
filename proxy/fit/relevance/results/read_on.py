"""Says how a call can be repeated for what its shortened result leaves out: by lines, by an offset, by a page."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from proxy.fit.nested import decoded
from proxy.fit.relevance.text.heuristics import NUMBERED
from proxy.model.lenient_json import Json


@dataclass(frozen=True, slots=True)
class ArgumentNames:
    """Names of tools' arguments, which `rules/tools.toml` has. `paths`: of what is read. `offsets`: the first line or
    row. `limits`: the number of lines or rows. `ends`: the last line or row. `ranges`: a pair of first and last.
    `pages`: the number of a page."""

    paths: tuple[str, ...] = ()
    offsets: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()


NO_NAMES = ArgumentNames()


@dataclass(frozen=True, slots=True)
class ReadOn:
    """How a call can be repeated. `first`: the number of its result's first line, as the tool counts; 0 if it does not
    read lines. `numbered`: the text has the numbers of its lines. `offset`, `limit`, `end`, `range`: the names of those
    arguments, if the call or its tool has them. `page`: the page, as the call names it. `rows`: the names of the
    arguments by which the tool returns other rows. `says_who`: the first note says that a proxy has left this out."""

    first: int = 0
    numbered: bool = False
    offset: str = ""
    limit: str = ""
    page: str = ""
    end: str = ""
    range: str = ""
    rows: tuple[str, ...] = ()
    says_who: bool = False

    def lines(self, first: int, count: int) -> str:
        """The arguments that return these lines; empty if the tool has none for it."""
        if self.offset:
            more = f", {self.limit} {count}" if self.limit else f", {self.end} {first + count - 1}" if self.end else ""
            return f"{self.offset} {first}{more}"
        return f"{self.range} [{first}, {first + count - 1}]" if self.range else ""


NO_CALL = ReadOn()


def read_on(
    arguments: str,
    text: str,
    names: ArgumentNames = NO_NAMES,
    declared: Collection[str] = (),
    *,
    says_who: bool = False,
) -> ReadOn:
    """How the call with these arguments (JSON), which returned this text, can be repeated. `declared`: the names of all
    arguments that its tool has.

    It reads lines if its text is numbered, if it has an offset, or if what it reads is all that it names (a search in a
    file has a pattern too, so its lines are not those of the file).
    """
    try:
        given = decoded(arguments)
    except msgspec.DecodeError:
        given = None
    given = given if isinstance(given, dict) else {}
    offset, span, page = (_name(given, known) for known in (names.offsets, names.ranges, names.pages))
    said = [name for name, value in given.items() if isinstance(value, str)]
    reads = bool(offset or span) or (bool(said) and all(name in names.paths for name in said) and not page)
    numbered = _numbered(text)
    first = numbered or (max(1, _number(given.get(offset or span)) or 1) if reads else 0)
    if first and not (offset or span):
        offset = _name(declared, names.offsets)
        span = "" if offset else _name(declared, names.ranges)
    limit, end = (_name(given, known) or _name(declared, known) for known in (names.limits, names.ends))
    by_rows = tuple(filter(None, (_name(declared, known) for known in (names.pages, names.offsets, names.limits))))
    return ReadOn(
        first=first,
        numbered=numbered > 0,
        offset=offset,
        limit=limit if offset else "",
        page=f"{page} {given[page]}" if page else "",
        end=end if offset and not limit else "",
        range=span,
        rows=by_rows,
        says_who=says_who,
    )


def _name(given: Collection[str], known: Collection[str]) -> str:
    return next((name for name in known if name in given), "")


def _number(value: Json) -> int:
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, int) else 0


def _numbered(text: str) -> int:
    """The number of the first line, if the tool numbered the lines; else 0."""
    found = [NUMBERED.match(line) for line in text.split("\n", 2)[:2]]
    numbers = [int("".join(filter(str.isdigit, match[0]))) for match in found if match]
    return numbers[0] if len(numbers) == 2 and numbers[1] == numbers[0] + 1 else 0
