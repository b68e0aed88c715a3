"""JSON that somebody else wrote, read and written leniently: whatever it holds can still be counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

Json = Any
# Made once: naming the type in every call costs up to four times more.
FIELDS = msgspec.json.Decoder(dict[str, Any])
RAWS = msgspec.json.Decoder(dict[str, msgspec.Raw])


RawFields = Mapping[str, msgspec.Raw]  # an object whose values are not decoded
BROKEN = (ValueError, OverflowError, msgspec.MsgspecError, RecursionError)


def read(raw: bytes) -> Json:
    """The value; what is no JSON at all as the text it is. Lone surrogates stay."""
    try:
        return msgspec.json.decode(raw)
    except BROKEN:
        return read_text(raw.decode("utf-8", "replace"))


def read_text(text: str) -> Json:
    """The same from a text, with numbers and constants as Python reads them."""
    try:
        return json.loads(text)
    except BROKEN:
        return text


def mapping(value: Json) -> Mapping[str, Json]:
    """An object's fields; none where it is no object."""
    return value if isinstance(value, dict) else {}


def raw_fields(raw: bytes | msgspec.Raw) -> RawFields:
    """An object's fields with their values not decoded; none where it is no object. Never raises."""
    try:
        return RAWS.decode(raw)
    except BROKEN:
        return {}


def raw_value(raw: msgspec.Raw) -> Json:
    """The value of a field of `raw_fields`; None where it cannot be decoded. Never raises."""
    try:
        return msgspec.json.decode(raw)
    except BROKEN:
        return None


def string(value: Json) -> str:
    """A text; empty where it is none."""
    return value if isinstance(value, str) else ""


def compact(value: Json) -> str:
    """A value without blanks, nothing escaped that need not be. Raises `RecursionError` for what nests too deep."""
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, OverflowError, msgspec.MsgspecError):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def compacted(text: str) -> str:
    """A JSON text without blanks; anything else as it is."""
    try:
        return compact(msgspec.json.decode(text))
    except BROKEN:
        return text
