"""Shortens a text or a message to a number of tokens. It does not choose the message."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.model.conversation import TEXTS, Message, Part
from proxy.model.ports import Meter

LEAST = 24  # tokens: a shorter text is not worth a marker
ENTRY = "\n\n"  # between the entries of a text, such as the turns of a transcript
FEW_ENTRIES = 4
SHORT_ENTRY = 100  # tokens that an entry keeps, if the oldest have to go, too
ASKED = 1_500  # tokens at the end of a transcript in which what is asked stands
OLDEST = 0.1  # of what is kept then, the share that the beginning gets
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


def spread(text: str, limit: int, meter: Meter, head: float = 0.7) -> str:
    """The text in at most about `limit` tokens: of its entries, with blank lines between them, the longest lose their
    middle, all down to one height; if that is not enough, the oldest go, but for the first. The last ones stay whole:
    there stands what is asked. It ranks nothing.

    Returns head and tail of a text that has hardly any entries.
    """
    whole, entries = meter.text(text), text.split(ENTRY)
    if whole <= limit or len(entries) < FEW_ENTRIES:
        return head_and_tail(text, limit, meter, head)
    costs = [meter.text(entry) + JOINTS for entry in entries]
    last = _last_entries(costs, min(ASKED, limit // 3))
    spare = sorted((cost - SHORT_ENTRY for cost in costs[:last] if cost > SHORT_ENTRY), reverse=True)
    height = SHORT_ENTRY + waterline(spare, sum(costs) - limit)
    made = [head_and_tail(e, height, meter, head) if c > height else e for e, c in zip(entries, costs, strict=True)]
    made[last:] = entries[last:]
    over, gone = sum(min(cost, height) for cost in costs[:last]) + sum(costs[last:]) - limit, 1
    while over > 0 and gone < last:
        over -= min(costs[gone], height)
        gone += 1
    noted = [marker(sum(costs[1:gone])).strip()] if gone > 1 else []
    return head_and_tail(ENTRY.join([made[0], *noted, *made[gone:]]), limit, meter, min(head, OLDEST))


def _last_entries(costs: Sequence[int], most: int) -> int:
    """The place of the first of the last entries that take at most so many tokens together; never of the very first."""
    place, left = len(costs), most
    while place > 1 and costs[place - 1] <= left:
        place -= 1
        left -= costs[place]
    return place


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
