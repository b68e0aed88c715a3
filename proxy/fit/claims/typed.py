"""Finds what users typed in a run of an agent. It claims nothing."""

from __future__ import annotations

from proxy.fit.relevance.text.clauses import is_question
from proxy.fit.relevance.text.question import content_words
from proxy.model.conventions import Conventions
from proxy.model.conversation import Kind, Message

SHORT = 400  # tokens of a user's message that nobody pasted
FEW = 2  # content words up to which a message has no content of its own and answers the one before it


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
