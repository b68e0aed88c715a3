"""The question of a conversation: what its last user turn asks, as weighted clauses. Everything that ranks uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.model.conversation import Block

# Characters read at either end of a long message, where a question is (measured: more adds noise).
USER_HEAD, USER_TAIL = 1200, 300


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of a user's text. `weight`: its share in what is asked, over 0 and at most 1. `start`, `end`: where it
    stands in `own_text()` of the last user message, in characters; both -1 if it is from an earlier message."""

    text: str
    weight: float = 1.0
    start: int = -1
    end: int = -1


@dataclass(frozen=True, slots=True)
class Question:
    """What the last user turn asks. `clauses`: those of the last user message in their order, then those of earlier
    ones, if it is a follow-up. `place`: the index of its block; -1 if it was formed from a text."""

    clauses: tuple[Clause, ...]
    place: int = -1

    @property
    def text(self) -> str:
        """The clauses as one text: for embeddings, and to find names, dates and literals."""
        return "\n".join(clause.text for clause in self.clauses)

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Where the clauses of the last user message stand in its `own_text()`, as (start, end) in characters. Whatever
        shortens that message must keep them."""
        return tuple((clause.start, clause.end) for clause in self.clauses if clause.start >= 0)


def question_of(blocks: Sequence[Block]) -> Question | None:
    """The question of the last user turn in these blocks. None if the client sent no user message in them.

    It depends on these blocks alone: of the same blocks it is always the same.
    """
    for place in range(len(blocks) - 1, -1, -1):
        user = blocks[place].user
        if user is not None and user.index >= 0:
            return Question(question_in(user.own_text()).clauses, place)
    return None


def question_in(text: str) -> Question:
    """The question in one text, without a conversation."""
    if len(text) <= USER_HEAD + USER_TAIL:
        return Question((Clause(text, 1.0, 0, len(text)),))
    tail = len(text) - USER_TAIL
    return Question((Clause(text[:USER_HEAD], 1.0, 0, USER_HEAD), Clause(text[tail:], 1.0, tail, len(text))))


def ends(text: str) -> str:
    """The beginning and the end of a long text, where a question is."""
    return question_in(text).text
