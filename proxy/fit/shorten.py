"""Shortens a text or a message to a number of tokens. It does not choose the message."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.model.conversation import TEXTS, Message, Part
from proxy.model.ports import Meter

LEAST = 24  # tokens: a shorter text is not worth a marker
JOINTS = 2  # tokens: head, marker and tail may cost one more at each joint than they cost separately

Shorten = Callable[[str, int], str]


def marker(tokens: int) -> str:
    """The text that reports how many tokens are missing. It is not an instruction, and it is deterministic."""
    return f"\n[… {tokens} tokens left out …]\n"


def marked_by_proxy(tokens: int) -> str:
    """The same, which says who left them out."""
    return f"\n[… {tokens} tokens left out by a proxy …]\n"


def head_and_tail(text: str, limit: int, meter: Meter, head: float = 0.7, marker: Callable[[int], str] = marker) -> str:
    """The beginning and the end of a text with a marker between them, at most `limit` tokens.

    Returns the marker alone if the limit has no room for more. Returns the same text if it fits the limit, or if the
    marker would cost no less.
    """
    whole = meter.text(text)
    if whole <= limit:
        return text
    frame = meter.text(marker(whole)) + JOINTS  # the marker's tokens differ between meters
    if whole <= frame:
        return text
    kept = max(0, limit - frame)
    front = int(kept * head)
    start = meter.cut(text, front)
    rest = meter.cut(text[len(start) :], kept - front, tail=True)
    return start + marker(whole - kept) + rest


def shortened(parts: Sequence[Part], meter: Meter, limit: int, shorten: Shorten) -> list[tuple[Part, str]]:
    """These parts, each with its new text: `limit` tokens in total, the largest texts first."""
    if len(parts) == 1 and parts[0].whole:
        return [(parts[0], shorten(parts[0].text, limit))]
    costs = [meter.text(part.text) for part in parts]
    over = sum(costs) - limit
    edits = []
    for i in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        room = max(min(LEAST, costs[i]), costs[i] - max(0, over))
        edits.append((parts[i], shorten(parts[i].text, room)))
        over -= costs[i] - room
    return edits


def shorten_message(message: Message, meter: Meter, limit: int, shorten: Shorten, why: str) -> Message:
    """The message with all its text shortened to `limit` tokens. Media and other parts are unchanged, and so is text
    that may not change, which counts towards the limit."""
    texts = [part for part in message.parts() if part.kind in TEXTS]
    kept = sum(meter.text(part.text) for part in texts if not part.editable)
    editable = [part for part in texts if part.editable]
    return message.edit(shortened(editable, meter, max(0, limit - kept), shorten), why)


def waterline(costs: Sequence[int], excess: int) -> int:
    """The largest height that frees `excess` tokens if every larger cost is lowered to it.

    `costs` must be in descending order. 0 if their sum is less than `excess`.
    """
    freed = 0
    for i, cost in enumerate(costs):
        lower = costs[i + 1] if i + 1 < len(costs) else 0
        if freed + (i + 1) * (cost - lower) >= excess:
            return cost - -(-(excess - freed) // (i + 1))
        freed += (i + 1) * (cost - lower)
    return 0
