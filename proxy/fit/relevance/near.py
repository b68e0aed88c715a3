"""Which lines of a very long text are read closely: its ends, and elsewhere those with the words of the question."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from proxy.fit.relevance.asked import Asked
from proxy.fit.relevance.matching import match_literally
from proxy.fit.relevance.priors import NAMES_TROUBLE, TROUBLE
from proxy.fit.relevance.splitting import every
from proxy.fit.relevance.words import STOP

SHARE = 1 / 3  # of the characters: at the beginning, at the end, and elsewhere


def near(texts: Sequence[str], tokens: Sequence[Sequence[str]], asked: Asked, characters: int) -> Sequence[int]:
    """The places, in order, of lines that have together about so many characters, given the text and the tokens of each
    line: all where there are no more. Elsewhere than at the ends those come first in which what was asked for or a word
    of trouble stands as it is, the rarest before others, each with the lines beside it."""
    sizes = [len(text) + 1 for text in texts]
    upto = list(accumulate(sizes))
    if upto[-1] <= characters:
        return range(len(texts))
    share = characters * SHARE
    head = bisect_left(upto, share) + 1
    tail = max(head, bisect_right(upto, upto[-1] - share))
    middle: set[int] = set()
    for place in _telling(texts[head:tail], tokens[head:tail], asked):
        more = {p for p in range(head + place - 1, head + place + 2) if head <= p < tail} - middle
        middle |= more
        share -= sum(sizes[p] for p in more)
        if share < 0:
            break
    return [*range(head), *sorted(middle), *range(tail, len(texts))]


def _telling(texts: Sequence[str], tokens: Sequence[Sequence[str]], asked: Asked) -> list[int]:
    """The places of the lines in which something tells, the rarest first."""
    wanted = (asked.words.keys() - STOP) | TROUBLE
    telling = {token for token in every(tokens) if token.lower() in wanted or token.endswith(NAMES_TROUBLE)}
    held = {place: telling.intersection(said) for place, said in enumerate(tokens) if not telling.isdisjoint(said)}
    times = Counter(token for found in held.values() for token in found)
    worth = {place: sum(1 / times[token] for token in sorted(found)) for place, found in held.items()}
    for place, score in enumerate(match_literally(texts, asked.literals)):
        if score:
            worth[place] = worth.get(place, 0.0) + score
    return sorted(worth, key=lambda place: (-worth[place], place))
