"""Counts what a result lists, in the terms of the tool: matches in files, paths, entries, commits, tests, rows,
results. It recognises them by the form of their lines and knows no tool's name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from proxy.fit.relevance.results.records import Records, rows_of, table_of
from proxy.model.structs import replace

FEWEST = 3  # lines; fewer are no list
SAMPLE = 60  # lines that decide the form, from the beginning, the middle and the end
LONGEST = 400  # characters of a line that are compared
NEARLY, MOSTLY = 0.85, 0.4  # share of the lines that have the form: of all, and of a report with other lines in it

# No pattern is tried again from within a line, so that a line costs its length at most; `where` must look like a path.
MATCH = re.compile(r"(?P<where>[A-Z]:\\[^:]*|[^\s:]+):(?:\d+:|(?!/)\D)")
AROUND = re.compile(r"(?P<where>[^\s:]+?)-\d+-|--$")  # what `grep -C` shows between matches
TOLD = re.compile(
    r"(?P<where>[^\s:(]+)[:(]\d+[:,)](?:\d+[:)]?)?:?\s*(?:(?:fatal )?error|warning|note|info|[A-Z]{1,4}\d{2,5}\b)"
)
HEADED = re.compile(r"\d+:")  # a match under the path of its file
COUNTED = re.compile(r"(?P<where>[^\s:]+):\d+$")
STATUS = re.compile(r"(?:[MADRCU?!][MADRCU?! ]| [MADRCU]) \S|[MADRC]\t\S| ?\S.*\s\|\s+(?:\d+ [+-]+|Bin )")
MODE = re.compile(r"[-dlbcpsD][-rwxsStT]{9}[.+@]?\s")
BRANCH = re.compile(r"[│|\s\xa0]*(?:├──|└──|\|--|`--)\s")
PATH = re.compile(r"(?:\.{1,2}/|/|~/|[A-Z]:\\)[^:]*$|[^\s:/]+/[^\s:]*$")
NAME = re.compile(r"[^\s/:;,(){}\[\]<>=\"'|]{1,120}/?$")
SUFFIX = re.compile(r".+\.\w{1,8}$|.+/$")
COMMIT = re.compile(r"[*|\\/ ]*[0-9a-f]{7,40} \S")
TEST = re.compile(
    r"(?=\S+ +(?P<pytest>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS))\S*?::|test \S+ \.\.\. (?P<cargo>\w+)"
    r"|\s*--- (?P<go>PASS|FAIL|SKIP): |(?P<tap>ok|not ok) \d+|\s*(?P<sign>[✓✔✗✕✖×√]) \S"
)
FAILURES = frozenset({"FAILED", "ERROR", "FAIL", "not ok", "✗", "✕", "✖", "×"})
HEADER = re.compile(
    r"[A-Z][A-Z0-9()%/_-]*(?: [A-Z0-9()%/_-]+)?(?:(?:\s{2,}|\t)[A-Z][A-Z0-9()%/_-]*(?: [A-Z0-9()%/_-]+)?)+\s*$"
)
COLUMN = re.compile(r"\S(?:\s{2,}|\t)\S")
# Words by which a tool says that it has not returned all: then nobody knows the total.
PARTIAL = re.compile(
    r"truncated|omitted|first \d+|limited to|more (?:results|matches|lines|files|entries)|next_page|and \d+ more", re.I
)
# Lists of which each line is one thing, by the form of a line.
ONE_EACH = (("entries", MODE), ("entries", BRANCH), ("commits", COMMIT), ("files", STATUS), ("paths", PATH))
ENDS = 2  # lines at either end in which it says so


@dataclass(frozen=True, slots=True)
class Totals:
    """What a result lists: the plural `noun` of a thing, and the `places` of the lines that are one each. `files`: the
    file of each match, by its place. `failed`: the places of tests that failed. `records`: the things are records, of
    which parts are shown. `partial`: the tool says that there are more."""

    noun: str
    places: Collection[int]
    files: Mapping[int, str] | None = None
    failed: Collection[int] | None = None
    records: Records | None = None
    partial: bool = False

    def note(self, kept: Collection[int]) -> str:
        """How many of how many the lines at these places show."""
        total = f"{len(self.places)} {'returned' if self.partial else 'total'} {self.noun}"
        if self.records is not None:
            heads = {self.records.of[place] for place in kept if place not in self.records.along(place)} - {-1}
            return f"\n[Truncated: {total}, {len(heads)} shown in part]"
        shown = [place for place in kept if place in self.places]
        said = f"{len(shown)} shown"
        if self.files is not None:
            total = f"{total} in {_files(self.files.values())}"
            said = f"{len(shown)} in {_files(self.files[place] for place in shown)} shown"
        elif self.failed is not None:
            bad = sum(place in self.failed for place in shown)
            total = f"{total}, {len(self.failed)} failed"
            said = f"{len(shown)} shown, {bad} of them failed" if self.failed else said
        return f"\n[Truncated: {total}; {said}]"


def _files(names: Iterator[str] | Collection[str]) -> str:
    count = len(set(names))
    return f"{count} file{'' if count == 1 else 's'}"


def totals_of(texts: Sequence[str], records: Records | None = None) -> Totals | None:
    """What a result with these lines lists; None if it is no list, or none whose form is known."""
    partial = any(PARTIAL.search(text[:LONGEST]) for text in (*texts[:ENDS], *texts[-ENDS - 1 :]))
    known = [place for place, text in enumerate(texts) if text and not text.isspace()]
    if len(known) < FEWEST:
        return None
    sample = [texts[place][:LONGEST] for place in _sampled(known)]
    if records is not None and _share(TEST, sample) < MOSTLY:
        commits = all(texts[place].startswith("commit ") for place in records.heads)
        return Totals("commits" if commits else "results", records.heads.keys(), records=records, partial=partial)
    if (rows := rows_of(texts)) > 0:
        return Totals("rows", _rows(texts, rows), partial=partial)
    found = _listed(texts, known, sample)
    return None if found is None else replace(found, partial=partial)


def _sampled(places: Sequence[int]) -> Sequence[int]:
    """Three runs of the places: lines of two kinds that take turns are both in it."""
    if len(places) <= SAMPLE:
        return places
    run, middle = SAMPLE // 3, len(places) // 2
    return [*places[:run], *places[middle : middle + run], *places[-run:]]


def _rows(texts: Sequence[str], count: int) -> Sequence[int]:
    """The places of the rows of a table, without its header."""
    first, end = table_of(texts) or (0, 0)
    lines = [place for place in range(first, end) if texts[place] and not texts[place].isspace()]
    return lines[len(lines) - count :]


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The match at the beginning of a line; None if what stands for a file does not look like a path."""
    match = pattern.match(text[:LONGEST])
    if match is None or "where" not in pattern.groupindex or match["where"] is None:
        return match
    file, number = match["where"], match[0][-2].isdigit()
    return match if "/" in file or "\\" in file or ("." in file and number) else None


def _share(pattern: re.Pattern[str], sample: Sequence[str]) -> float:
    return sum(_match(pattern, text) is not None for text in sample) / len(sample)


def _listed(texts: Sequence[str], known: Sequence[int], sample: Sequence[str]) -> Totals | None:
    """What the lines at the `known` places list, by the form of a sample of them."""

    def places(pattern: re.Pattern[str]) -> frozenset[int]:
        return frozenset(place for place in known if _match(pattern, texts[place]))

    if _share(TEST, sample) >= MOSTLY:
        return _tests(texts, known)
    if _share(COUNTED, sample) >= NEARLY:
        return Totals("files", places(COUNTED))
    if _share(TOLD, sample) >= NEARLY:
        return _in_files("diagnostics", texts, known, TOLD)
    if _share(MATCH, sample) > 0 and _share(MATCH, sample) + _share(AROUND, sample) >= NEARLY:
        return _in_files("matches", texts, known, MATCH)
    for noun, pattern in ONE_EACH:
        if _share(pattern, sample) >= NEARLY:
            return Totals(noun, places(pattern))
    if _share(NAME, sample) >= NEARLY and _share(SUFFIX, sample) >= MOSTLY:
        return Totals("entries", places(NAME))
    columns = sum(COLUMN.search(text) is not None for text in sample)
    if columns >= NEARLY * len(sample) and HEADER.match(texts[known[0]][:LONGEST]):
        return Totals("rows", frozenset(known[1:]))
    return _under_paths(texts, known) if _share(HEADED, sample) >= MOSTLY else None


def _in_files(noun: str, texts: Sequence[str], known: Sequence[int], pattern: re.Pattern[str]) -> Totals:
    files = _found(texts, known, pattern)
    return Totals(noun, files.keys(), files)


def _tests(texts: Sequence[str], known: Sequence[int]) -> Totals:
    said = _found(texts, known, TEST)
    failed = frozenset(place for place, word in said.items() if word in FAILURES)
    return Totals("tests", said.keys(), failed=failed)


def _found(texts: Sequence[str], known: Sequence[int], pattern: re.Pattern[str]) -> dict[int, str]:
    """What the named group of a pattern matches in each line, by its place."""
    matches = ((place, _match(pattern, texts[place])) for place in known)
    return {place: match[match.lastgroup or 0] for place, match in matches if match is not None}


def _under_paths(texts: Sequence[str], known: Sequence[int]) -> Totals | None:
    """The matches of a search that writes the path of a file above those in it; None where there is no such path."""
    files: dict[int, str] = {}
    file = ""
    for place in known:
        text = texts[place][:LONGEST]
        if HEADED.match(text):
            if not file:
                return None
            files[place] = file
        elif PATH.match(text) or SUFFIX.match(text):
            file = text
    return Totals("matches", files.keys(), files) if files else None
