"""BM25 over many short texts, rows or lines, that are read once for one question; it remembers none of them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from proxy.fit.relevance.text.splitting import every
from proxy.fit.relevance.text.words import found_by

K1, B = 1.2, 0.4  # measured on rows and lines (facts)
LITERALS = 32  # of what a question quotes, so much is looked for
COMMON = 0.5  # share of the texts from which a literal that stands in more tells nothing
MISSES = 10  # texts too long for what is left that are passed over before the rest is given up (24 find no more)
NEIGHBOURS = (0.35, 0.175, 0.0875)  # of a line's score that those 1, 2, 3 lines away get too (measured)


def match(
    texts: Sequence[Sequence[str]],
    wanted: Mapping[str, float],
    english: bool,
    said: Collection[str] = (),
    *,
    k1: float = K1,
    b: float = B,
) -> list[float]:
    """How well each text, given as its tokens, answers a query: what is `wanted` (words, or in `english` their stems)
    and what each weighs. A token that is met again costs one look-up. `said`: all their tokens, where they are known.
    """
    held: dict[str, list[int]] = {key: [] for key in wanted}
    telling = _telling(said or every(texts), held, english)
    for place, found in enumerate(texts):
        for token in filter(telling.__contains__, found):
            for places in telling[token]:
                places.append(place)
    return _summed(held, wanted, list(map(len, texts)), k1, b)


def _telling(tokens: Collection[str], held: Mapping[str, list[int]], english: bool) -> dict[str, list[list[int]]]:
    """The tokens in which something stands that is wanted, and the lists of where that is held."""
    misses = held.keys().isdisjoint
    telling = [pair for pair in zip(tokens, found_by(tokens, english), strict=True) if not misses(pair[1])]
    return {token: [held[form] for form in forms if form in held] for token, forms in telling}


def _summed(
    held: Mapping[str, Sequence[int]], wanted: Mapping[str, float], lengths: Sequence[int], k1: float, b: float
) -> list[float]:
    count, mean = len(lengths), sum(lengths) / max(1, len(lengths)) or 1.0
    scores, norms = [0.0] * count, [k1 * (1 - b + b * length / mean) for length in lengths]
    for key, found in held.items():
        if not found:
            continue
        places = {found[0]: 1} if len(found) == 1 else Counter(found)
        gain = wanted[key] * (k1 + 1) * math.log(1 + (count - len(places) + 0.5) / (len(places) + 0.5))
        for place, times in places.items():
            scores[place] += gain * times / (times + norms[place])
    return scores


def match_literally(texts: Sequence[str], literals: Sequence[str]) -> list[float]:
    """For each text, how many of the literals stand in it as a whole; one that stands in many counts less in each."""
    found = [0.0] * len(texts)
    together = "\n".join(texts).casefold() if literals else ""  # one look tells of most that they stand nowhere
    standing = [literal for literal in literals[:LITERALS] if literal in together]
    if not standing:
        return found
    folded = together.split("\n")
    if len(folded) != len(texts):  # there are line breaks in them
        folded = [text.casefold() for text in texts]
    for literal in standing:
        whole = re.compile(rf"(?<![^\W_]){re.escape(literal)}(?![^\W_])")
        places = [place for place, text in enumerate(folded) if literal in text and whole.search(text)]
        for place in places if len(places) <= COMMON * len(texts) else ():
            found[place] += len(places) ** -0.5
    return found


def fill(
    order: Iterable[int],
    cost: Callable[[int, Collection[int]], int],
    room: int,
    least: Callable[[int], int] = lambda place: 0,
) -> list[int]:
    """Those places, in their order of preference, whose costs together fit into the room; a cost may depend on what
    was chosen before. It is asked for only once it matters, so of a list of thousands few are counted; not at all
    where `least`, which no cost is under, is too much."""
    chosen: dict[int, None] = {}
    misses = 0
    for place in order:
        if least(place) <= room and (needed := cost(place, chosen.keys())) <= room:
            chosen[place] = None
            room -= needed
            misses = 0
        else:
            misses += 1
        if room <= 0 or misses > MISSES:
            break
    return list(chosen)


def most(render: Callable[[int], str], count: int, fits: Callable[[str], bool]) -> str | None:
    """What is rendered of the first so many of `count` things, the most that fits; None where not even one does."""
    best, low, high, middle = None, 1, count, count
    while low <= high:
        text = render(middle)
        if fits(text):
            best, low = text, middle + 1
        else:
            high = middle - 1
        middle = (low + high) // 2
    return best
