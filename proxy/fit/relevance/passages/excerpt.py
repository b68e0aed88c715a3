"""Shortens one text to its passages that bear on a question, within a number of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.fit.relevance.passages.data import left_out
from proxy.fit.relevance.passages.ranking import rank_passages
from proxy.fit.relevance.passages.texts import Shortened, Span, choose, read
from proxy.fit.relevance.results.results import shorten_json
from proxy.fit.relevance.text.query import ResultQuery
from proxy.fit.relevance.text.question import Question
from proxy.model.ports import Meter

TRIES = 4  # choices with better estimates of what passages cost
FULL = 0.95  # share of the limit from which an excerpt is not made again
SLACK = 8  # tokens by which each further choice is smaller


def shortened_for(question: Question, meter: Meter) -> Shortened:
    """What shortens a JSON value in a text to the rows that bear on the question. A note where none fits."""
    query = ResultQuery(question.text)

    def shortened(text: str, limit: int) -> str:
        return shorten_json(text, limit, query, meter) or left_out(text)

    return shortened


def excerpt(text: str, limit: int, question: Question, meter: Meter, spans: Sequence[Span] = ()) -> str | None:
    """At most `limit` tokens of a text: its passages that bear on the question, with notes of what is missing.

    None if no passage bears on it, or if not even what must stay fits: the ends, and the `spans` of the question.
    """
    found = read(text, meter.text(text) / max(1, len(text)), spans)
    scores = rank_passages([found], question)
    if not any(scores[0]):
        return None
    shortened = shortened_for(question, meter)
    best, most, goal = None, limit, float(limit)
    for slack in range(TRIES):
        choice = choose([found], scores, goal)
        made = found.rendered(choice.chosen[0], shortened)
        spare = limit - meter.text(made)
        if 0 <= spare < most:
            best, most = made, spare
        if choice.whole or 0 <= spare <= (1 - FULL) * limit:
            break
        goal += spare - slack * SLACK
    return best
