"""Ranks the turns of a chat for a question, and chooses turns within a budget of tokens. It counts no tokens itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import accumulate
from operator import mul

from proxy.fit.relevance.history.embedding_scores import mixed
from proxy.fit.relevance.text.bm25 import acquire_index, release_index
from proxy.fit.relevance.text.dates import date_match, first_date
from proxy.fit.relevance.text.question import Question
from proxy.fit.relevance.text.reading import Reading, read_text, speakers_of

NEIGHBOURS = (0.5, 0.3, 0.2, 0.1)  # shares of a turn's score that turns 1, 2, 3, 4 away get too (measured)
WINDOW = 20  # turns on either side whose mean score ...
WINDOW_WEIGHT = 1.0  # ... has this weight: an answer is found where its subject is discussed (measured)
MEETING_WEIGHT = 10.0  # the same among more than two: turns are shorter, subjects last longer (measured: 10 to 14)
ONE_OF_TWO = 1.3  # factor for turns of the speaker that a question names; a larger one harms if that is the wrong one
ONE_OF_MANY = 1.5  # the same in a meeting, applied before smoothing
DATED = 0.5  # of the best score, for turns of the month (and day) that a question names
COST_EXPONENT = 0.1  # preference for short turns: score / tokens ** this
NONE: Mapping[int, int] = {}
EXCHANGE = 2  # the newest turns, which stay if they fit: they contain what "it" in a question refers to


def rank_turns(
    turns: Sequence[Sequence[Reading]],
    question: Question,
    *,
    meaning: bool = True,
    alike: Sequence[float] | None = None,
) -> list[float]:
    """The relevance of each turn (a message, or a block as one) for the question: 1 for the best, 0 for an irrelevant
    one. What is asked for itself is ranked apart, and shares the room. `meaning`: words of similar meaning count too.
    `alike`: each turn's similarity to the question by embeddings, from 0 to 1."""
    index = acquire_index(turns)
    rows = [mixed(index.scores(each.query(index), meaning=meaning), alike) for each in question.apart]
    release_index(index)
    found = [
        _of_best(_with_priors(row, turns, read_text(each.text), each.text))
        for row, each in zip(rows, question.apart, strict=True)
    ]
    return found[0] if len(found) == 1 else _of_best(shared(found))


def _of_best(scores: Sequence[float]) -> list[float]:
    best = max(scores, default=0.0) or 1.0
    return [score / best for score in scores]


def shared(rows: Sequence[Sequence[float]]) -> list[float]:
    """One row of scores of several rows for the same turns, in which the best turns of each row stand equally high: the
    n-th best of a row gets the mean of all n-th best, and a turn its best of these."""
    orders = [sorted(range(len(row)), key=[-score for score in row].__getitem__) for row in rows]
    found = [0.0] * len(rows[0])
    for number in range(len(found)):
        mean = sum(row[order[number]] for row, order in zip(rows, orders, strict=True)) / len(rows)
        for row, order in zip(rows, orders, strict=True):
            place = order[number]
            found[place] = max(found[place], mean) if row[place] > 0 else found[place]
    return found


def _with_priors(scores: list[float], turns: Sequence[Sequence[Reading]], asked: Reading, question: str) -> list[float]:
    speakers = [turn[0].speaker for turn in turns]
    known = speakers_of(speakers)
    words = asked.words.keys()
    named = {name for name in known if _is_named(name, words)}
    if len(known) > 2:
        scores = [s * ONE_OF_MANY if who in named else s for s, who in zip(scores, speakers, strict=True)]
    scores = smoothed(scores, MEETING_WEIGHT if len(known) > 2 else WINDOW_WEIGHT)
    if len(known) == 2 and len(named) == 1:
        scores = [s * ONE_OF_TWO if who in named else s for s, who in zip(scores, speakers, strict=True)]
    return _dated(scores, turns, question)


def _is_named(name: str, words: Set[str]) -> bool:
    wanted = {word for word in read_text(name).words if len(word) > 2}
    return bool(wanted) and wanted <= words


def smoothed(scores: Sequence[float], weight: float = WINDOW_WEIGHT) -> list[float]:
    """Each score plus shares of its neighbours' scores and of the mean of its window. Linear time."""
    edge = [0.0] * WINDOW
    padded = [*edge, *scores, *edge]
    near = [
        padded[WINDOW + step : len(padded) - WINDOW + step] for step in range(-len(NEIGHBOURS), len(NEIGHBOURS) + 1)
    ]
    sums = [0.0, *accumulate(padded)]
    mean = weight / (2 * WINDOW + 1)
    around = (mean * (high - low) for low, high in zip(sums, sums[2 * WINDOW + 1 :], strict=False))
    shares = (*reversed(NEIGHBOURS), 1.0, *NEIGHBOURS)
    return [sum(map(mul, shares, row)) + wide for row, wide in zip(zip(*near, strict=True), around, strict=True)]


def _dated(scores: list[float], turns: Sequence[Sequence[Reading]], question: str) -> list[float]:
    day = first_date(question)
    if day is None:
        return scores
    gain = DATED * max(scores, default=0.0)
    return [score + gain * date_match(day, turn[0].day) for score, turn in zip(scores, turns, strict=True)]


def choose_turns(
    scores: Sequence[float],
    costs: Sequence[int],
    room: int,
    *,
    newest: float = 0.0,
    exchange: int = EXCHANGE,
    closing: Mapping[int, int] = NONE,
) -> dict[int, float]:
    """The indices of the chosen turns, which fit into `room` tokens together, with the score of each (newest turns: 0).

    First the newest turns, for a share `newest` of the room and at least `exchange` of them; then the best for their
    cost; then the newest again for what is left. `closing` maps a turn to another one that must be kept with it, and
    so on, in no circle.
    """
    chosen: dict[int, float] = {}
    left = room - _add_newest(chosen, costs, int(room * newest), len(costs))
    left -= _add_newest(chosen, costs, left, exchange - len(chosen))
    for place in by_worth(scores, costs, COST_EXPONENT):
        if costs[place] > left or place in chosen:
            continue
        wanted = [place]
        while (after := closing.get(wanted[-1], -1)) >= 0 and after not in chosen:
            wanted.append(after)
        cost = sum(costs[each] for each in wanted)
        if cost <= left:
            chosen |= {each: scores[each] for each in wanted}
            left -= cost
    _add_newest(chosen, costs, left, len(costs))
    return chosen


def _add_newest(chosen: dict[int, float], costs: Sequence[int], room: int, most: int) -> int:
    used = 0
    for place in range(len(costs) - 1, -1, -1):
        if place in chosen:
            continue
        if used + costs[place] > room or most <= 0:
            break
        chosen[place] = 0.0
        used += costs[place]
        most -= 1
    return used


def by_worth(scores: Sequence[float], costs: Sequence[int], exponent: float) -> list[int]:
    """The indices with a score above 0, the best score for its cost first, of equals the older."""
    keys = [(-score / max(1, costs[place]) ** exponent, place) for place, score in enumerate(scores) if score > 0]
    return [place for _, place in sorted(keys)]
