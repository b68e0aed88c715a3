"""Shortens one text to a number of tokens, and one message by its largest texts; it chooses no message."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.model.conversation import TEXTS, Message, Part
from proxy.model.ports import Meter

LEAST = 24  # tokens: what is shorter is not worth a marker
JOINTS = 2  # tokens: head, marker and tail may cost one more at each joint than they cost apart

Shorten = Callable[[str, int], str]


def marker(tokens: int) -> str:
    """The text that says how much is missing. It is no instruction, and the same for the same number."""
    return f"\n[… {tokens} tokens left out …]\n"


def head_and_tail(text: str, limit: int, meter: Meter, head: float = 0.7) -> str:
    """At most `limit` tokens of a text: its beginning and its end, and between them what is missing. The bare marker
    where the limit holds no more, and the same text where that would cost no less."""
    whole = meter.text(text)
    if whole <= limit:
        return text
    frame = meter.text(marker(whole)) + JOINTS  # counted: a meter with a ratio makes more of it than another
    if whole <= frame:
        return text
    kept = max(0, limit - frame)
    front = int(kept * head)
    start = meter.cut(text, front)
    rest = meter.cut(text[len(start) :], kept - front, tail=True)
    return start + marker(whole - kept) + rest


def shorten_texts(
    message: Message, parts: Sequence[Part], meter: Meter, limit: int, shorten: Shorten, why: str
) -> Message:
    """The message with these texts of its parts brought down to `limit` tokens together; of several the largest give
    way first. The same message where there is nothing to shorten."""
    if len(parts) == 1 and parts[0].whole:
        return message.edit([(parts[0], shorten(parts[0].text, limit))], why)
    costs = [meter.text(part.text) for part in parts]
    over = sum(costs) - limit
    edits = []
    for i in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        room = max(min(LEAST, costs[i]), costs[i] - max(0, over))
        edits.append((parts[i], shorten(parts[i].text, room)))
        over -= costs[i] - room
    return message.edit(edits, why)


def shorten_message(message: Message, meter: Meter, limit: int, shorten: Shorten, why: str) -> Message:
    """The message with all its text brought down to `limit` tokens. Media and other parts stay as they are."""
    return shorten_texts(message, [p for p in message.parts() if p.kind in TEXTS], meter, limit, shorten, why)
