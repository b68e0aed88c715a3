"""Writes messages as plain text for the model that summarises them, with roles, calls and results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proxy.model.conversation import TEXTS, Block, Kind, Message, Part, PartKind
from proxy.model.ports import Meter

RESULT = "result of a tool"
LONGEST = 16  # characters of a token at most: bounds the text that is counted for one piece


def transcript(block: Block) -> str:
    """A block as text, one paragraph per message; empty if no message is readable."""
    return "\n\n".join(text for message in block.messages if (text := _text(message)))


def packed(texts: Iterable[str], room: int, meter: Meter) -> list[str]:
    """The texts joined into pieces of at most `room` tokens. A longer text is split."""
    pieces: list[str] = []
    piece: list[str] = []
    used = 0
    for part in (part for text in texts for part in _cut(text, room, meter)):
        tokens = meter.text(part) + 2  # plus the blank line
        if piece and used + tokens > room:
            pieces.append("\n\n".join(piece))
            piece, used = [], 0
        piece.append(part)
        used += tokens
    return [*pieces, "\n\n".join(piece)] if piece else pieces


def _cut(text: str, room: int, meter: Meter) -> Iterable[str]:
    """Splits a text into parts that fit into `room` tokens, in linear time. A text that cannot be cut stays whole."""
    while text:
        near = text[: LONGEST * room]
        head = near if meter.text(near) <= room - 2 else meter.cut(near, room - 2) or text
        yield head
        text = text[len(head) :]


def _text(message: Message) -> str:
    """A message as one line. Results and a user's text in the same message get separate lines."""
    parts = message.parts()
    if message.kind is Kind.RESULT or not message.answers:
        return _line(RESULT if message.answers else message.role, parts)
    results = [part for part in parts if part.kind is PartKind.RESULT]
    others = [part for part in parts if part.kind is not PartKind.RESULT]
    return "\n\n".join(filter(None, (_line(RESULT, results), _line(message.role, others))))


def _line(who: str, parts: Sequence[Part]) -> str:
    """One line: the texts, the types of the parts without text, and the calls with their arguments.

    Empty if there are no such parts.
    """
    text = "".join([part.text for part in parts if part.kind in TEXTS])
    calls = [f"[calls {p.name} with {p.text}]" for p in parts if p.kind is PartKind.CALL]
    types = [f"[{part.name}]" for part in parts if part.kind is not PartKind.CALL and part.name]
    said = [text, *types, *calls] if text else [*types, *calls]
    return f"{who}: {' '.join(said)}" if said else ""
