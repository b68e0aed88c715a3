"""Finds texts of results that stand in later results again, whole or in part, and older versions of what was read
again. It changes no text.

Theory of operation
===================

Results are read from the newest to the oldest. Each line that stays is remembered with the result that has it, so an
older result finds for each of its lines the newest one. Three signs say that lines of a result need not stay: the whole
text is the same; the line has the number of a line that a later read of the same path shows; or a run of lines stands
in the same order in a later result. Where a later read of the same path shows other lines in their place, they are an
older version. A line without a number proves nothing by itself: short runs stay, and of a text of which little stands
elsewhere all stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from proxy.fit.claims.again import last_name, same_path
from proxy.fit.relevance.results.shown_lines import NONE, PLAIN, Shown

RUN = 300  # characters of the lines in one later result, from which on they are a run
WORTH = 240  # characters of lines that are worth a note where they stand
MOST_OF_IT = 0.6  # share of a text that must stand elsewhere, if nothing says that both are of the same thing
# Share of the lines of an older version that stand in newer ones, if its path alone proves nothing: of any lines of a
# path, and of what the same call returned (the end of a log that grows is no older version).
ALIKE, SAME = 0.3, 0.6


class Text(msgspec.Struct, frozen=True, gc=False):
    """A text of a result. `path`: what its call reads, if it only reads; `same`: a key of that call. `certain`: the
    path names one thing, wherever the call is made. `fixed`: it must stay. `one`: it is worth nothing in parts, as
    JSON is."""

    shown: Shown
    path: str = ""
    same: str = ""
    certain: bool = False
    fixed: bool = False
    one: bool = False


class Stretch(msgspec.Struct, frozen=True, gc=False):
    """Lines `start` to `end` (excluded) of a text that stand in the texts `holders`, by their places among all, in
    order; or `older`: of which newer ones stand there."""

    start: int
    end: int
    holders: tuple[int, ...]
    older: bool = False


Line = tuple[int, int]  # the place of a text among all, and of a line in it


@dataclass(slots=True)
class Versions:
    """What is known of a path. `lines`: the newest line of each number; `contents`: the keys of all lines."""

    path: str
    lines: dict[int, Line] = field(default_factory=dict)
    contents: set[int] = field(default_factory=set)


class Paths:
    """The versions of each path. A relative path may be the same as an absolute one that ends with it."""

    MOST = 8  # paths of one last name that are compared

    def __init__(self) -> None:
        self._known: dict[str, Versions] = {}
        self._by_name: dict[str, list[Versions]] = {}

    def of(self, path: str) -> Versions:
        """The versions of a path."""
        known = self._known.get(path)
        if known is None:
            alike = self._by_name.setdefault(last_name(path), [])
            known = next((each for each in alike if same_path(each.path, path)), None) or Versions(path)
            self._known[path] = known
            if len(alike) < self.MOST and known.path == path:
                alike.append(known)
        return known


def repeats(texts: Sequence[Text]) -> list[tuple[Stretch, ...]]:
    """The stretches of each text that need not stay, in order; none of the newest. Linear."""
    finder = _Finder(texts)
    found = [finder.read(place) for place in range(len(texts) - 1, -1, -1)]
    return found[::-1]


def arrivals(texts: Sequence[Text]) -> list[dict[int, int]]:
    """What each text repeats of earlier ones, or replaces, when it comes: about how many characters, by the place of
    the newest text that has them. Of a text it follows from the texts up to it.

    Few lines stand in several texts, and few paths are read again: only those are remembered.
    """
    counts = Counter(chain.from_iterable([text.shown.lines for text in texts]))
    several = {key for key, count in counts.items() if count > 1}
    names = Counter([last_name(text.path) for text in texts if text.path])
    wholes, sames, lines, paths = dict[int, int](), dict[str, int](), dict[int, int](), Paths()
    found = []
    for place, text in enumerate(texts):
        shown, is_again = text.shown, bool(text.path) and names[last_name(text.path)] > 1
        shared = several & shown.lines
        versions = paths.of(text.path).lines if is_again else {}
        before = wholes.get(shown.key, sames.get(text.same) if text.same else None)
        if before is not None:
            found.append({before: texts[before].shown.size})
        else:
            numbers = versions.keys() & set(shown.numbers) if versions else ()
            again = [versions[n][0] for n in numbers] or [lines[key] for key in shared if key in lines]
            size = shown.size // len(shown.sizes)
            found.append({n: size * count for n, count in Counter(again).items()} if len(again) * size >= WORTH else {})
        wholes[shown.key] = place
        lines.update(dict.fromkeys(shared, place))
        if text.path:
            sames[text.same] = place
        if is_again:
            versions.update({number: (place, 0) for number in shown.numbers if number != NONE})
    return found


class _Finder:
    """Reads texts from the newest to the oldest."""

    def __init__(self, texts: Sequence[Text]) -> None:
        self._texts = texts
        self._wholes: dict[int, Stretch] = {}  # by the key of a text: where it stands
        self._sames: dict[str, Stretch] = {}  # by what was called: where its newest text stands
        self._lines: dict[tuple[int, int], Line] = {}  # by number and key: the newest line
        self._gone: dict[int, set[int]] = {}  # by text: the lines that do not stay
        self._paths = Paths()

    def read(self, place: int) -> tuple[Stretch, ...]:
        """The stretches of the next older text."""
        text = self._texts[place]
        found = () if text.fixed else tuple(self._stretches(text))
        found = tuple([each for each in found if _size(text, each) >= WORTH])
        self._remember(place, text, found)
        return found

    def _stretches(self, text: Text) -> Sequence[Stretch]:
        known, lines = self._wholes.get(text.shown.key), len(text.shown.contents)
        if known is not None:
            return [Stretch(0, lines, known.holders, known.older)]
        versions = self._paths.of(text.path) if text.path else None
        if versions is not None and versions.contents:
            alike = 1.0 if text.certain and text.path == versions.path else _alike(text, versions)
            same = self._sames.get(text.same) if alike >= SAME else None
            if same is not None and _starts_alike(text.shown, self._texts[same.holders[0]].shown):
                return [Stretch(0, lines, same.holders, older=True)]
            if alike >= ALIKE and not text.one:
                return list(self._by_number(text, versions)) if text.shown.numbers else _joined(self._runs(text))
        found = [] if text.one else self._runs(text)
        return found if sum([_size(text, each) for each in found]) >= MOST_OF_IT * text.shown.size else []

    def _by_number(self, text: Text, versions: Versions) -> Iterator[Stretch]:
        """Yields the stretches whose numbers later reads show, too. A line without a number belongs to the one before
        it if it stands behind that there, too."""
        shown = text.shown
        held: list[tuple[Line, bool]] = []
        for at, number in enumerate([*shown.numbers, NONE]):
            if at == len(shown.numbers):
                line = None
            elif number != NONE:
                line = versions.lines.get(number)
            else:
                line = self._behind(held[-1][0], shown, at) if held else None
            if line is not None:
                held.append((line, self._texts[line[0]].shown.contents[line[1]] != shown.contents[at]))
            elif held:
                holders = sorted({place for (place, _), _ in held})
                yield Stretch(at - len(held), at, tuple(holders), any([changed for _, changed in held]))
                held = []

    def _behind(self, before: Line, shown: Shown, at: int) -> Line | None:
        """The line behind another, if it stays there and is the same as the line at a place."""
        place, line = before[0], before[1] + 1
        other = self._texts[place].shown
        if line >= len(other.contents) or other.contents[line] != shown.contents[at] or line in self._gone[place]:
            return None
        number, there = shown.numbers[at] if shown.numbers else NONE, other.numbers[line] if other.numbers else NONE
        return (place, line) if number == there else None

    def _runs(self, text: Text) -> list[Stretch]:
        """The runs of lines that stand in later texts in the same order. Runs that follow one another are one."""
        shown, at, found = text.shown, 0, list[Stretch]()
        while at < len(shown.contents):
            start, number = at, shown.numbers[at] if shown.numbers else NONE
            tells = number != NONE or shown.sizes[at] > PLAIN
            line = self._lines.get((number, shown.contents[at])) if tells else None
            at += 1
            if line is None:
                continue
            place = line[0]
            while line is not None and at < len(shown.contents):
                line = self._behind(line, shown, at)
                at += line is not None
            run = Stretch(start, at, (place,))
            if _size(text, run) < RUN:
                continue
            if found and found[-1].end == start:
                before = found.pop()
                run = Stretch(before.start, at, tuple(sorted({*before.holders, place})))
            found.append(run)
        return found

    def _remember(self, place: int, text: Text, found: Sequence[Stretch]) -> None:
        shown = text.shown
        gone = {at for each in found for at in range(each.start, each.end)}
        self._gone[place] = gone
        holders = {holder for each in found for holder in each.holders}
        stays = len(gone) < len(shown.contents)
        older = any([each.older for each in found])
        stands = Stretch(0, 0, tuple(sorted(holders | {place} if stays else holders)), older)
        self._wholes.setdefault(shown.key, stands)
        for at, key in enumerate(shown.contents) if stays else ():
            if at not in gone:
                self._lines.setdefault((shown.numbers[at] if shown.numbers else NONE, key), (place, at))
        if text.path:
            self._sames.setdefault(text.same, stands)
            versions = self._paths.of(text.path)
            versions.contents.update(shown.contents)
            for at, number in enumerate(shown.numbers) if stays else ():
                if number != NONE and at not in gone:
                    versions.lines.setdefault(number, (place, at))


def _starts_alike(shown: Shown, newer: Shown) -> bool:
    """Whether two texts of one call are of the same part: the first numbers of their lines are the same."""
    firsts = [next((number for number in each.numbers if number != NONE), NONE) for each in (shown, newer)]
    return firsts[0] == firsts[1]


def _size(text: Text, stretch: Stretch) -> int:
    return sum(text.shown.sizes[stretch.start : stretch.end])


def _alike(text: Text, versions: Versions) -> float:
    """The share of a text's lines that stand in newer texts of its path."""
    tells = [key for key, size in zip(text.shown.contents, text.shown.sizes, strict=True) if size > PLAIN]
    return sum([key in versions.contents for key in tells]) / max(1, len(tells))


def _joined(found: Sequence[Stretch]) -> list[Stretch]:
    """Runs in one later text of the same path as one: what is between them is an older version of what is between them
    there."""
    made: list[Stretch] = []
    for each in found:
        if made and made[-1].holders == each.holders:
            made[-1] = Stretch(made[-1].start, each.end, each.holders, older=True)
        else:
            made.append(each)
    return made
