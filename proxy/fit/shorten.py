"""Shortening one text to a number of tokens, and one message by its largest text; it chooses no message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from proxy.model.conversation import Message
from proxy.model.lenient_json import Json
from proxy.model.ports import Meter

LEAST = 24  # tokens: what is shorter is not worth a marker
JOINTS = 2  # tokens: head, marker and tail may cost one more at each joint than they cost apart

Shorten = Callable[[str, int], str]


def marker(tokens: int) -> str:
    """Says how much is missing, in words that are no instruction and never change for the same text."""
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


def content_of(message: Message) -> Json:
    """A message's content; None where it cannot be read (text that is no UTF-8), and so cannot be shortened either."""
    try:
        return message.fields().get("content")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def shorten_content(message: Message, meter: Meter, limit: int, shorten: Shorten, why: str) -> Message:
    """The message with its text brought down to `limit` tokens; in a list of parts the largest texts give way first.
    Images and other parts stay as they are. The same message where there is nothing to shorten."""
    content = content_of(message)
    if isinstance(content, str):
        short = shorten(content, limit)
        return message if short == content else message.with_content(short, why)
    if not isinstance(content, list):
        return message
    parts = _shorten_parts(content, meter, limit, shorten)
    return message if parts == content else message.with_content(parts, why)


def _shorten_parts(parts: list[Json], meter: Meter, limit: int, shorten: Shorten) -> list[Json]:
    costs = {i: meter.text(p["text"]) for i, p in enumerate(parts) if _is_text(p)}
    over = sum(costs.values()) - limit
    changed: dict[int, dict[str, Any]] = {}
    for i in sorted(costs, key=lambda i: (-costs[i], i)):
        room = max(min(LEAST, costs[i]), costs[i] - max(0, over))
        changed[i] = {**parts[i], "text": shorten(parts[i]["text"], room)}
        over -= costs[i] - room
    return [changed.get(i, part) for i, part in enumerate(parts)]


def _is_text(part: Json) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)
