"""Renders the passages of a text that stay, with notes that say which lines are missing. It chooses none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from proxy.fit.relevance.passages.splitting import Passage

GAP = 5  # tokens of a short note
FIRST = 14  # tokens of the first note, which says what the short ones mean
SHORT = 16  # characters of a passage that is as short as the note that it is missing
NOTHING: Mapping[tuple[int, int], str] = {}


def render(
    passages: Sequence[Passage],
    chosen: Collection[int],
    counted: str = "",
    instead: Mapping[tuple[int, int], str] = NOTHING,
) -> str:
    """The chosen passages in order, word for word, with a note wherever some are missing.

    The first note is a sentence, the others are ranges of lines: a text has dozens of gaps, and each costs tokens.
    `counted`: how many of how many are shown, for the first note. `instead`: what stands for all passages of a span.
    """
    return "".join(_rendered(passages, chosen, counted, instead))


def _rendered(
    passages: Sequence[Passage], chosen: Collection[int], counted: str, instead: Mapping[tuple[int, int], str]
) -> Iterator[str]:
    total = passages[-1].line + max(0, passages[-1].starts - 1)
    opened = {start: (end, text) for (start, end), text in instead.items()}
    within = {place for span in instead for place in range(*span)}
    after, noted, broken = 0, False, True
    for place in (*sorted({*opened, *(p for p in chosen if p not in within)}), len(passages)):
        if place > after:
            if place == after + 1 and len(passages[after].text) <= SHORT:
                note = passages[after].text
            else:
                note = _note(passages, after, place, total, not noted, counted)
                note = note if broken or note.startswith(" ") else "\n" + note
                noted = True
            yield note if place < len(passages) else note.removesuffix("\n")
        after = place + 1
        if place in opened:
            after, text = opened[place]
            last = passages[after - 1].text
            yield text + last[len(last.rstrip("\r\n")) :]
            broken = last.endswith("\n")
        elif place < len(passages):
            yield passages[place].text
            broken = passages[place].text.endswith("\n")


def _note(passages: Sequence[Passage], start: int, end: int, total: int, first: bool, counted: str) -> str:
    """The note that the passages from `start` up to `end` are missing."""
    missing = sum(passage.starts for passage in passages[start:end])
    if total == 1 or not missing:
        gone = sum(len(passage.text) for passage in passages[start:end])
        return f" [… {gone} characters left out …] " if first else " […] "
    low = passages[start].line if passages[start].starts else passages[start].line + 1
    high = low + missing - 1
    if first:
        lines = f"lines {low} to {high}" if missing > 1 else f"line {low}"
        return f"[… {lines} of {total} left out{f'; {counted}' if counted else ''} …]\n"
    return f"[…{low}-{high}]\n" if missing > 1 else f"[…{low}]\n"
