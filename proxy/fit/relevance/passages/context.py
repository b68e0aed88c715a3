"""Finds the part of instructions that looks like retrieved context: a long section behind other text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate

from proxy.fit.relevance.passages.texts import Text
from proxy.fit.relevance.text.outline import TAG

RUN = 4  # like sections in a row that are retrieved chunks, and not one of each kind of instruction
COVERS = 0.5  # share of a section that an inner long section has, from which the inner one alone is the context
Section = tuple[int, int]  # the first passage and the one after the last, without the line that opens the section


def context_places(text: Text, least: float, names: Collection[str] = ()) -> frozenset[int]:
    """The indices of the passages that look like retrieved context.

    These are sections (under a heading, in a tag, in a fence) of at least `least` characters with some text before
    them, and sections that `names` names, whatever their length; where there are neither, the longest run of like
    sections, such as chunks in tags of one name. In a text without sections: what is between the first and the last
    paragraph.
    """
    upto = [0, *accumulate(len(passage.text) for passage in text.passages)]
    opened = sorted(_sections(text))
    if not opened:
        inner = set(range(len(text.passages))) - text.always
        return frozenset(inner if upto[-1] >= least else ())
    wanted, lead = {name.casefold() for name in names}, _lead(text)
    named = [(start, end) for start, end in opened if wanted and _name(text, start - 1) in wanted]
    long = [(start, end) for start, end in opened if upto[end] - upto[start] >= least and lead < start - 1]
    if not named and not long:
        runs = [run for run in _runs(text, opened) if _size(run, upto) >= least and lead < run[0]]
        long = [max(runs, key=lambda run: _size(run, upto))] if runs else []
    return frozenset(_places([*named, *_innermost(long, upto)]))


def _sections(text: Text) -> Iterator[Section]:
    """The sections under headings, in tags and in fences."""
    outline = text.outline
    for place, end in outline.ends.items():
        yield place + 1, end
    for place in outline.headings:
        yield place + 1, outline.until[place]


def _runs(text: Text, opened: Sequence[Section]) -> Iterator[Section]:
    """Runs of at least `RUN` sections that directly follow each other, with tags of one name, or with headings of one
    level; the lines that open and close them included. Headings of the first level are the instructions' own."""
    outline = text.outline
    kinds: dict[tuple[int, str | int], list[tuple[int, int]]] = {}
    for start, end in opened:
        place = start - 1
        tag = place in outline.ends
        if not tag and outline.headings[place] == 1:
            continue
        kind = outline.parents[place], _name(text, place) if tag else outline.headings[place]
        kinds.setdefault(kind, []).append((place, end + 1 if tag else end))
    for sections in kinds.values():
        first, count = sections[0][0], 0
        for (place, end), after in zip(sections, [*sections[1:], None], strict=True):
            count += 1
            if after is None or after[0] != end:
                if count >= RUN:
                    yield first, end
                first, count = (place if after is None else after[0]), 0


def _name(text: Text, place: int) -> str:
    """The title of a heading, or the name of a tag, in lower case."""
    line = text.passages[place].text
    match = TAG.match(line)
    title = line.strip("# \t\r\n") if place in text.outline.headings else ""
    return (match[1] if match else title).casefold()


def _lead(text: Text) -> int:
    """The first passage that is text, and not only a heading."""
    places = (p for p, passage in enumerate(text.passages) if passage.text.strip() and p not in text.outline.headings)
    return next(places, len(text.passages))


def _innermost(long: Sequence[Section], upto: Sequence[int]) -> Iterator[Section]:
    """The sections, in order of their starts, but those of which one inside covers most. `upto`: the characters before
    each passage. Sections are nested, so the largest one inside is directly inside."""
    around: list[Section] = []
    covered: set[Section] = set()
    for section in long:
        while around and around[-1][1] <= section[0]:
            around.pop()
        if around and _size(section, upto) >= COVERS * _size(around[-1], upto):
            covered.add(around[-1])
        around.append(section)
    return (section for section in long if section not in covered)


def _size(section: Section, upto: Sequence[int]) -> int:
    return upto[section[1]] - upto[section[0]]


def _places(sections: Iterable[Section]) -> Iterator[int]:
    """The passages of nested sections, each once."""
    after = 0
    for start, end in sorted(sections):
        yield from range(max(start, after), end)
        after = max(after, end)
