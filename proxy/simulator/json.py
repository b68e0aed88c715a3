"""The simulator's own JSON helpers. They share nothing with the proxy's, whose bugs would otherwise stay hidden."""

from __future__ import annotations

from typing import Any

import msgspec

Json = Any


def decode_object(raw: bytes) -> dict[str, Json] | None:
    """The fields of a JSON object. Never raises; returns None for anything else."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def text_of(content: Json) -> str:
    """The text of a message's content: a string, or the text parts of a list, joined. Never raises."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "".join(p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str))
