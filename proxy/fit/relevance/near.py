"""Which lines of a very long text are read closely: its ends, and elsewhere those with the words of the question."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence, Set
from itertools import accumulate

from proxy.fit.relevance.priors import TROUBLE
from proxy.fit.relevance.splitting import every
from proxy.fit.relevance.words import STOP

SHARE = 1 / 3  # of the characters: at the beginning, at the end, and elsewhere


def near(sizes: Sequence[int], tokens: Sequence[Sequence[str]], wanted: Set[str], characters: int) -> Sequence[int]:
    """The places, in order, of lines that have together about so many characters, given the size of each line and its
    tokens: all where there are no more. Elsewhere than at the ends, lines come first in which the rarest of the wanted
    words or of those that tell of trouble stand as they are, each with the lines beside it."""
    upto = list(accumulate(sizes))
    if not upto or upto[-1] <= characters:
        return range(len(sizes))
    share = characters * SHARE
    head = bisect_left(upto, share) + 1
    tail = max(head, bisect_right(upto, upto[-1] - share))
    middle: set[int] = set()
    for place in _telling(tokens, range(head, tail), (wanted - STOP) | TROUBLE):
        more = {p for p in (place - 1, place, place + 1) if head <= p < tail} - middle
        share -= sum(sizes[p] for p in more)
        if share < 0:
            break
        middle |= more
    return [*range(head), *sorted(middle), *range(tail, len(sizes))]


def _telling(tokens: Sequence[Sequence[str]], places: range, wanted: Set[str]) -> list[int]:
    """Of these lines those that hold something wanted, the one with the rarest first."""
    said = every(tokens[place] for place in places)
    telling = {token for token in said if token.lower() in wanted}
    hits = {place: telling.intersection(tokens[place]) for place in places if not telling.isdisjoint(tokens[place])}
    times = Counter(token for held in hits.values() for token in held)
    return sorted(hits, key=lambda place: (-sum(1 / times[token] for token in sorted(hits[place])), place))
