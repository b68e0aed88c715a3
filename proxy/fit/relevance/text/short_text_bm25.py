"""BM25 over many short texts (rows or lines) for one query, and selection of the best within a limit. No caches.

`bm25` is the other implementation: an index over messages that is kept between requests.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from proxy.fit.relevance.text.splitting import distinct_tokens
from proxy.fit.relevance.text.words import containing, terms

K1, B = 1.2, 0.4  # measured on rows and lines (proxy/fit/relevance/README.md)
MAX_LITERALS = 32  # literals of a query that are searched for
COMMON = 0.5  # a literal in more than this share of the texts is ignored
MISSES = 10  # consecutive texts that do not fit after which `fill` stops (24 find no more)
NEIGHBOURS = (0.35, 0.175, 0.0875)  # shares of a line's score that lines 1, 2, 3 away get too (measured)


def bm25_scores(
    texts: Sequence[Sequence[str]],
    wanted: Mapping[str, float],
    english: bool,
    vocabulary: Collection[str] = (),
    *,
    k1: float = K1,
    b: float = B,
) -> list[float]:
    """The BM25 score of each text, given as its tokens, for the terms `wanted` (words, or stems if `english`) and their
    weights. `vocabulary`: all tokens of the texts, if the caller has them."""
    postings: dict[str, list[int]] = {term: [] for term in wanted}
    _post(texts, 0, _matching(vocabulary or distinct_tokens(texts), postings, english))
    return _weighted(postings, wanted, list(map(len, texts)), k1, b)


def bm25_scores_of_batches(
    batches: Iterable[Sequence[Sequence[str]]], wanted: Mapping[str, float], english: bool
) -> list[float]:
    """The same for texts that come in batches, of which only the lengths are kept. No token is cached."""
    postings: dict[str, list[int]] = {term: [] for term in wanted}
    lengths: list[int] = []
    for texts in batches:
        likely = containing(distinct_tokens(texts), postings.keys(), english)
        _post(texts, len(lengths), _matching(likely, postings, english))
        lengths += map(len, texts)
    return _weighted(postings, wanted, lengths, K1, B)


def _post(texts: Sequence[Sequence[str]], first: int, matching: Mapping[str, Sequence[list[int]]]) -> None:
    """Adds the places of the tokens that match to their posting lists. `first`: the place of the first text."""
    for place, found in enumerate(texts, first):
        for token in filter(matching.__contains__, found):
            for places in matching[token]:
                places.append(place)


def _matching(tokens: Collection[str], postings: Mapping[str, list[int]], english: bool) -> dict[str, list[list[int]]]:
    """The tokens that match a wanted term, each with the posting lists to which its places are added."""
    misses = postings.keys().isdisjoint
    each = zip(tokens, terms(tokens, english), strict=True)  # terms are dropped at once: a text has a million pairs
    return {token: [postings[term] for term in found if term in postings] for token, found in each if not misses(found)}


def _weighted(
    postings: Mapping[str, Sequence[int]], wanted: Mapping[str, float], lengths: Sequence[int], k1: float, b: float
) -> list[float]:
    count, mean = len(lengths), sum(lengths) / max(1, len(lengths)) or 1.0
    result, norms = [0.0] * count, [k1 * (1 - b + b * length / mean) for length in lengths]
    for key, found in postings.items():
        if not found:
            continue
        places = {found[0]: 1} if len(found) == 1 else Counter(found)
        gain = wanted[key] * (k1 + 1) * math.log(1 + (count - len(places) + 0.5) / (len(places) + 0.5))
        for place, times in places.items():
            result[place] += gain * times / (times + norms[place])
    return result


def literal_scores(texts: Sequence[str], literals: Sequence[str]) -> list[float]:
    """For each text the number of literals that it contains as whole words; a literal that n texts contain counts
    1/sqrt(n)."""
    found = [0.0] * len(texts)
    together = "\n".join(texts).casefold() if literals else ""  # one search excludes most literals
    present = [literal for literal in literals[:MAX_LITERALS] if literal in together]
    if not present:
        return found
    folded = together.split("\n")
    if len(folded) != len(texts):  # the texts contain line breaks
        folded = [text.casefold() for text in texts]
    for literal in present:
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
    along: Callable[[int], Sequence[int]] = lambda place: (),
) -> list[int]:
    """Chooses places greedily, in order of preference, as long as their costs fit into `room`.

    `cost(place, chosen)` may depend on what was chosen before. `least(place)` is a cheap lower bound of the cost; if it
    is over the room left, `cost` is not called. `along(place)`: places that come along and stand before it in the
    result. Stops after `MISSES` places in a row that do not fit.
    """
    chosen: dict[int, None] = {}
    misses = 0
    for place in order:
        if place in chosen:
            continue
        more = [other for other in along(place) if other not in chosen and other != place]
        if least(place) > room:
            misses += 1
        elif (needed := cost(place, chosen.keys()) + sum([cost(other, chosen.keys()) for other in more])) <= room:
            chosen |= dict.fromkeys((*more, place))
            room -= needed
            misses = 0
        else:
            misses += 1
        if room <= 0 or misses > MISSES:
            break
    return list(chosen)


def largest_fitting(render: Callable[[int], str], count: int, fits: Callable[[str], bool]) -> str | None:
    """The text `render(n)` for the largest n from 1 to `count` that fits (binary search, starting at `count`); None if
    none fits."""
    best, low, high, middle = None, 1, count, count
    while low <= high:
        text = render(middle)
        if fits(text):
            best, low = text, middle + 1
        else:
            high = middle - 1
        middle = (low + high) // 2
    return best
