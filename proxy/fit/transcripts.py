"""Messages as plain text for a model that summarises them: who said what, calls and results included; in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proxy.model.conversation import TEXTS, Block, Kind, Message, Part, PartKind
from proxy.model.ports import Meter

RESULT = "result of a tool"
LONGEST = 16  # characters of a token: what is further on belongs to no piece that begins here


def transcript(block: Block) -> str:
    """A block as text, a paragraph a message; nothing where nothing of it can be read."""
    return "\n\n".join(told for message in block.messages if (told := _told(message)))


def packed(texts: Iterable[str], room: int, meter: Meter) -> list[str]:
    """Texts joined to pieces of at most `room` tokens; a text that is longer is cut."""
    pieces: list[str] = []
    piece: list[str] = []
    used = 0
    for part in (part for text in texts for part in _cut(text, room, meter)):
        tokens = meter.text(part) + 2  # and the blank line
        if piece and used + tokens > room:
            pieces.append("\n\n".join(piece))
            piece, used = [], 0
        piece.append(part)
        used += tokens
    return [*pieces, "\n\n".join(piece)] if piece else pieces


def _cut(text: str, room: int, meter: Meter) -> Iterable[str]:
    """A text in parts that fit, whatever its length in one pass; whole where it cannot be cut."""
    while text:
        near = text[: LONGEST * room]
        head = near if meter.text(near) <= room - 2 else meter.cut(near, room - 2) or text
        yield head
        text = text[len(head) :]


def _told(message: Message) -> str:
    """What a message says, on a line; results and what a user says beside them on lines of their own."""
    parts = message.parts()
    if message.kind is Kind.RESULT or not message.answers:
        return _line(RESULT if message.answers else message.role, parts)
    results = [part for part in parts if part.kind is PartKind.RESULT]
    others = [part for part in parts if part.kind is not PartKind.RESULT]
    return "\n\n".join(filter(None, (_line(RESULT, results), _line(message.role, others))))


def _line(who: str, parts: Sequence[Part]) -> str:
    """The texts of parts, other parts by their type alone, and calls with their arguments; nothing where there are
    none."""
    text = "".join([part.text for part in parts if part.kind in TEXTS])
    calls = [f"[calls {p.name} with {p.text}]" for p in parts if p.kind is PartKind.CALL]
    types = [f"[{part.name}]" for part in parts if part.kind is not PartKind.CALL and part.name]
    said = [text, *types, *calls] if text else [*types, *calls]
    return f"{who}: {' '.join(said)}" if said else ""
