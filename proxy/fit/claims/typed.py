"""Finds what users typed in a run of an agent, and which of it holds for later answers. It claims nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from proxy.fit.relevance.text.clauses import clauses_in, is_question
from proxy.fit.relevance.text.question import content_words
from proxy.model.conventions import Conventions
from proxy.model.conversation import Kind, Message

SHORT = 400  # tokens of a user's message that nobody pasted
FEW = 2  # content words up to which a message has no content of its own and answers the one before it
QUOTED = re.compile(r"```.*?(?:```|\Z)|^[ \t]*>.*$|<([a-z][\w-]*)[^<>]*>.*?</\1>", re.S | re.M)


def is_typed(message: Message, conventions: Conventions) -> bool:
    """Whether somebody typed a message: it is short, it is the user's, and no client writes such ones."""
    if message.kind is not Kind.USER or message.index < 0 or message.answers or message.tokens > SHORT:
        return False
    text = message.own_text().strip()
    return bool(text) and not text.casefold().startswith(conventions.sent_by_client)


def is_reply(message: Message) -> bool:
    """Whether a message has no content of its own ("yes, delete it") and means nothing without what it answers."""
    text = message.own_text()
    return len(content_words(text)) <= FEW and not is_question(text)


def orders_in(text: str, signs: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yields the clauses of a text that hold for later answers, as (start, end). What is quoted gives no orders."""
    pattern = _signs(tuple(signs))
    if pattern is None:
        return
    hidden = [match.span() for match in QUOTED.finditer(text)]
    for start, end in clauses_in(text):
        if pattern.search(text, start, end) and not any(a <= start < b for a, b in hidden):
            yield start, end


@cache
def _signs(signs: tuple[str, ...]) -> re.Pattern[str] | None:
    return re.compile("|".join(signs), re.I) if signs else None
