"""Finds the part of instructions that looks like retrieved context: a long section behind other text."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from proxy.fit.relevance.passages.outline import HEADING, TAG
from proxy.fit.relevance.passages.texts import Text

COVERS = 0.5  # share of a section that an inner long section has, from which the inner one alone is the context
Section = tuple[int, int]  # the first passage and the one after the last, without the line that opens the section


def context_places(text: Text, least: float, names: Collection[str] = ()) -> frozenset[int]:
    """The indices of the passages that look like retrieved context.

    These are sections (under a heading, in a tag, in a fence) of at least `least` characters with some text before
    them, and sections that `names` names, whatever their length. In a text without sections: what is between the first
    and the last paragraph.
    """
    opened = dict(_sections(text))
    if not opened:
        inner = set(range(len(text.passages))) - text.always
        return frozenset(inner if _size(text, (0, len(text.passages))) >= least else ())
    wanted = {name.casefold() for name in names}
    named = [section for place, section in opened.items() if _name(text.passages[place].text) in wanted]
    long = [section for place, section in opened.items() if _size(text, section) >= least and _has_lead(text, place)]
    found = [*named, *(section for section in long if not _inner(text, section, long))]
    return frozenset(place for start, end in found for place in range(start, end))


def _sections(text: Text) -> Iterator[tuple[int, Section]]:
    """(the line that opens it, section) of every heading, tag and fence."""
    count, levels = len(text.passages), text.outline.headings
    for place, end in text.outline.ends.items():
        yield place, (place + 1, end)
    for place, level in levels.items():
        end = next((p for p in range(place + 1, count) if levels.get(p, level + 1) <= level), count)
        above = text.outline.parents[place]
        while above >= 0:
            end, above = min(end, text.outline.ends.get(above, end)), text.outline.parents[above]
        yield place, (place + 1, end)


def _name(line: str) -> str:
    """The title of a heading, or the name of a tag, in lower case."""
    match = TAG.match(line) or HEADING.match(line)
    return "" if match is None else (match[1] if match.re is TAG else line.strip("# \t\r\n")).casefold()


def _size(text: Text, section: Section) -> int:
    return sum(len(passage.text) for passage in text.passages[section[0] : section[1]])


def _has_lead(text: Text, place: int) -> bool:
    """Whether there is text, and not only a heading, before a section."""
    return any(
        passage.text.strip() and p not in text.outline.headings for p, passage in enumerate(text.passages[:place])
    )


def _inner(text: Text, section: Section, long: Collection[Section]) -> bool:
    """Whether a long section inside this one covers most of it."""
    inside = [other for other in long if other != section and section[0] <= other[0] and other[1] <= section[1]]
    return any(_size(text, other) >= COVERS * _size(text, section) for other in inside)
