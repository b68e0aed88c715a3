"""Preselects lines of a very long text for `lines`: its two ends, and elsewhere the lines that match the query.

Ranking every line would take too long. This pass only looks up tokens; it does not score.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from itertools import accumulate, chain

from proxy.fit.relevance.results.shapes import shapes_of
from proxy.fit.relevance.text.heuristics import outline_value
from proxy.fit.relevance.text.query import ResultQuery
from proxy.fit.relevance.text.severity import severities_of_lines
from proxy.fit.relevance.text.short_text_bm25 import MISSES, NEIGHBOURS, literal_scores
from proxy.fit.relevance.text.splitting import distinct_tokens
from proxy.fit.relevance.text.words import STOP, parts, severities, stem

ENDS = 1 / 6  # share of the characters for the beginning, and for the end; the rest is for the lines between
AROUND = len(NEIGHBOURS)  # lines on either side of a match: a match raises the scores of so many neighbours
OUTLINE = 0.2  # `outline_value` from which a line belongs to the outline


def candidate_lines(
    texts: Sequence[str], tokens: Sequence[Sequence[str]], query: ResultQuery, characters: int
) -> Sequence[int]:
    """The indices, ascending, of the lines to rank, given the text and the tokens of each line.

    All lines if they have at most `characters` together, else lines with about as many characters: the two ends, and
    between them those with words of the query, of trouble or of a rare shape, the rarest first, those with words of the
    query with their neighbours; then lines of the outline.
    """
    sizes = [len(text) + 1 for text in texts]
    upto = list(accumulate(sizes))
    if upto[-1] <= characters:
        return range(len(texts))
    share = characters * ENDS
    head = bisect_left(upto, share) + 1
    tail = max(head, min(bisect_right(upto, upto[-1] - share), len(texts) - 1))
    middle = _within(characters - 2 * share, sizes[head:tail], _matches(texts[head:tail], tokens[head:tail], query))
    return [*range(head), *(head + place for place in middle), *range(tail, len(texts))]


def _within(room: float, sizes: Sequence[int], order: Iterable[tuple[int, int]]) -> list[int]:
    """The indices from `order`, of (index, neighbours), that fit into `room` characters: each with its neighbours if
    those fit, else alone."""
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


def _matches(texts: Sequence[str], tokens: Sequence[Sequence[str]], query: ResultQuery) -> Iterator[tuple[int, int]]:
    """Yields (index, neighbours to include) of the lines that match, the rarest first; then those of the outline."""
    wanted = query.words.keys() - STOP
    said = distinct_tokens(tokens)
    matching = _wanted(said, wanted | set(map(stem, wanted)))
    held = {place: matching.intersection(line) for place, line in enumerate(tokens) if not matching.isdisjoint(line)}
    times = Counter(chain.from_iterable(held.values()))
    # How rare a line is: the number of lines that contain its rarest word.
    lines = {place: float(min(map(times.__getitem__, found))) for place, found in held.items()}
    for place, score in enumerate(literal_scores(texts, query.literals)):
        if score:
            lines[place] = min(score**-2, lines.get(place, math.inf))
    found = [(rare, AROUND, place) for place, rare in lines.items()] + _unusual(texts, tokens, said)
    for _, around, place in sorted(found, key=lambda each: (each[0], -each[1], each[2])):
        yield place, around
    for place, text in enumerate(texts):
        if place not in lines and outline_value(text) >= OUTLINE:
            yield place, 0


def _unusual(
    texts: Sequence[str], tokens: Sequence[Sequence[str]], said: Collection[str]
) -> list[tuple[float, int, int]]:
    """(number of lines like it, neighbours to include, index) of the lines with a severity, and of those with a shape,
    that few others have: at most the square root of all."""
    shapes, troubles = shapes_of(tokens, said), severities_of_lines(texts, tokens, said, severities(said))
    alike, severe = Counter(shapes), Counter(troubles.values())
    found = [(float(severe[severity]), AROUND, place) for place, severity in troubles.items()]
    found += [(float(alike[shape]), 0, place) for place, shape in enumerate(shapes)]
    return [each for each in found if each[0] ** 2 <= len(texts)]


def _wanted(said: Collection[str], wanted: Set[str]) -> set[str]:
    """The tokens that match a wanted word. A compound ASCII token matches as a whole only: splitting thousands of them
    would cost more than this pass saves."""
    return {
        token
        for token in said
        if (lower := token.lower()) in wanted
        or (lower.isalpha() and stem(lower) in wanted)
        or not (token.isascii() or wanted.isdisjoint(parts(token)))
    }
