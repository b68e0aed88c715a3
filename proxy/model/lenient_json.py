"""Lenient reading and writing of JSON from clients: a value that cannot be decoded is kept as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

Json = Any
# Created once: a call with `type=` takes up to four times as long.
FIELDS = msgspec.json.Decoder(dict[str, Any])
RAWS = msgspec.json.Decoder(dict[str, msgspec.Raw])


RawFields = Mapping[str, msgspec.Raw]  # an object whose values are not decoded
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # what msgspec's decoders raise
BROKEN = (ValueError, OverflowError, msgspec.MsgspecError, RecursionError)


def read(raw: bytes) -> Json:
    """The value, or the text itself if it is not JSON. Never raises; keeps lone surrogates."""
    try:
        return msgspec.json.decode(raw)
    except BROKEN:
        return read_text(raw.decode("utf-8", "replace"))


def read_text(text: str) -> Json:
    """The same for a text, with numbers and constants as Python's `json` reads them."""
    try:
        return json.loads(text)
    except BROKEN:
        return text


def mapping(value: Json) -> Mapping[str, Json]:
    """The value if it is an object, else an empty mapping."""
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
    """The value if it is a text, else an empty text."""
    return value if isinstance(value, str) else ""


def compact(value: Json) -> str:
    """The JSON of a value, without spaces and optional escapes. Raises `RecursionError` for one that nests too deep."""
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, OverflowError, msgspec.MsgspecError):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def compacted(text: str) -> str:
    """A JSON text without optional spaces; any other text unchanged. Never raises."""
    try:
        return compact(msgspec.json.decode(text))
    except BROKEN:
        return text


def object_of(pairs: Iterable[tuple[str, bytes]]) -> bytes:
    """The JSON of an object with these keys and values; the values are JSON, and keep their bytes."""
    written: list[bytes] = []
    for key, raw in pairs:
        written += [b"," if written else b"{", msgspec.json.encode(key), b":", raw]
    return b"".join((*written, b"}")) if written else b"{}"
