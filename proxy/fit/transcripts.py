"""Messages as plain text for a model that is to sum them up: who said what, calls and results included; in pieces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from proxy.model.conversation import Block, Message, text_of
from proxy.model.lenient_json import Json
from proxy.model.ports import Meter

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
    try:
        fields = message.fields()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    content = fields.get("content")
    said = [text for text in (text_of(content), *_others(content)) if text]
    said += [f"[calls {name} with {arguments}]" for name, arguments in _calls(fields)]
    who = "result of a tool" if message.answers is not None else message.role
    return f"{who}: {' '.join(said)}" if said else ""


def _others(content: Json) -> list[str]:
    """The parts that are no text, by their kind alone."""
    parts = content if isinstance(content, list) else []
    return [f"[{part['type']}]" for part in parts if isinstance(part, dict) and part.get("type") not in (None, "text")]


def _calls(fields: dict[str, Any]) -> list[tuple[Json, Json]]:
    """Names and arguments of the functions that a message calls, in the new shape or the old one."""
    asked = [call.get("function") or call.get("custom") for call in fields.get("tool_calls") or []]
    found = [call for call in (*asked, fields.get("function_call")) if isinstance(call, dict)]
    return [(call.get("name", ""), call.get("arguments", call.get("input", ""))) for call in found]
