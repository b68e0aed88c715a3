"""Which lines of a very long text are read closely: its ends, and elsewhere those with the words of the question."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from itertools import accumulate, chain

from proxy.fit.relevance.text.heuristics import outline_value, severity_of
from proxy.fit.relevance.text.query import Asked
from proxy.fit.relevance.text.short_text_bm25 import MISSES, NEIGHBOURS, literal_scores
from proxy.fit.relevance.text.splitting import distinct_tokens
from proxy.fit.relevance.text.words import STOP, parts, stem

SHARE = 1 / 6  # of the characters: at the beginning, at the end, and elsewhere
AROUND = len(NEIGHBOURS)  # lines beside one that tells: so far a match counts for its neighbours
OUTLINE = 0.2  # what a line stands for from which it is of the outline


def near(texts: Sequence[str], tokens: Sequence[Sequence[str]], asked: Asked, characters: int) -> Sequence[int]:
    """The places, in order, of the lines to read, given the text and the tokens of each: all where they have no more
    than so many characters, else lines of half as many. Elsewhere than at the ends those come first in which what was
    asked for or a word of trouble stands, the rarest before others, each with the lines beside it; then the outline."""
    sizes = [len(text) + 1 for text in texts]
    upto = list(accumulate(sizes))
    if upto[-1] <= characters:
        return range(len(texts))
    share = characters * SHARE
    head = bisect_left(upto, share) + 1
    tail = max(head, min(bisect_right(upto, upto[-1] - share), len(texts) - 1))
    middle = _within(share, sizes[head:tail], _telling(texts[head:tail], tokens[head:tail], asked))
    return [*range(head), *(head + place for place in middle), *range(tail, len(texts))]


def _within(room: float, sizes: Sequence[int], order: Iterable[tuple[int, int]]) -> list[int]:
    """Those places, the first of the order first, that have together no more than so many characters; each with so many
    lines beside it as the order says, else alone."""
    chosen: set[int] = set()
    misses = 0
    for place, around in order:
        for some in (range(max(0, place - around), min(len(sizes), place + around + 1)), (place,)):
            new = [p for p in some if p not in chosen]
            size = sum([sizes[p] for p in new])
            if size <= room:
                chosen.update(new)
                room, misses = room - size, 0
                break
        else:
            misses += 1
        if misses > MISSES:
            break
    return sorted(chosen)


def _telling(texts: Sequence[str], tokens: Sequence[Sequence[str]], asked: Asked) -> Iterator[tuple[int, int]]:
    """The places of the lines in which something tells, the rarest first, and how many lines beside it matter; then,
    as far as they are asked for, those of the outline."""
    wanted = asked.words.keys() - STOP
    telling = _wanted(distinct_tokens(tokens), wanted | set(map(stem, wanted)))
    held = {place: telling.intersection(said) for place, said in enumerate(tokens) if not telling.isdisjoint(said)}
    times = Counter(chain.from_iterable(held.values()))
    lines = {place: float(min(map(times.__getitem__, found))) for place, found in held.items()}  # that hold the same
    for place, score in enumerate(literal_scores(texts, asked.literals)):
        if score:
            lines[place] = min(score**-2, lines.get(place, math.inf))
    for place in sorted(lines, key=lambda place: (lines[place], place)):
        yield place, AROUND
    for place, text in enumerate(texts):
        if place not in lines and outline_value(text) >= OUTLINE:
            yield place, 0


def _wanted(said: Collection[str], wanted: Set[str]) -> set[str]:
    """Of these tokens those that are wanted, and those of trouble. A compound one in ASCII counts as a whole only: to
    know the parts of thousands would cost more than what is saved."""
    return {
        token
        for token in said
        if (lower := token.lower()) in wanted
        or (lower.isalpha() and stem(lower) in wanted)
        or severity_of(token)
        or not (token.isascii() or wanted.isdisjoint(parts(token)))
    }
