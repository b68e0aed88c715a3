"""Marks of what a provider's prompt cache is to hold: those of dropped messages move to what stays before them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from proxy.model.conversation import Message

# The mark of Anthropic's API, which some APIs of others take, too.
KEY = "cache_control"
MARK = b'"cache_control"'
FIELD = rb'"cache_control"\s*:\s*(?:\{[^{}]*\}|null)'
WRITTEN = re.compile(rb",\s*%b|%b\s*,?\s*" % (FIELD, FIELD))  # with one of the commas around it

Marked = Callable[[Message, msgspec.Raw], Message | None]


def without_marks(raw: bytes) -> bytes:
    """The JSON of blocks without their marks, which no prompt has: for comparing prompts."""
    return WRITTEN.sub(b"", raw) if MARK in raw else raw


def moved(
    before: Iterable[Message],
    after: Sequence[Message],
    key: bytes,
    mark_in: Callable[[Message], msgspec.Raw | None],
    marked: Marked,
) -> list[Message]:
    """The messages that are sent, with the marks of those that are not, so that caching goes on.

    Each mark goes to the last message that stays before the dropped one and can have a mark. One that has a mark keeps
    it, so their number never grows. `key`: the field of a mark, in quotation marks. `mark_in`: the last mark of a
    message, None if it has none. `marked`: the message with this mark, itself if it can have none now, None if it never
    can.
    """
    sent = list(after)
    places = {message.index: place for place, message in enumerate(sent) if message.index >= 0}
    stays: list[int] = []
    for message in before:
        if message.index in places:
            stays.append(places[message.index])
        elif stays and key in message.raw and (mark := mark_in(message)) is not None:
            _mark(sent, stays, mark, key, marked)
            stays = []  # the last of them has one now, or can have none
    return sent


def _mark(sent: list[Message], stays: Sequence[int], mark: msgspec.Raw, key: bytes, marked: Marked) -> None:
    """Puts a mark on the last of the messages at these places that can have one, unless that has one."""
    for place in reversed(stays):
        if key in sent[place].raw:
            return
        made = marked(sent[place], mark)
        if made is not None:
            sent[place] = made
            return
