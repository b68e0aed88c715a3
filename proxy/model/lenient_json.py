"""Lenient reading and writing of JSON from clients: a value that cannot be decoded is kept as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

Json = Any
# Created once: a call with `type=` takes up to four times as long.
FIELDS = msgspec.json.Decoder(dict[str, Any])
RAWS = msgspec.json.Decoder(dict[str, msgspec.Raw])

KEY = re.compile(rb'[\s,{]*("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)  # of a field, with what stands before it

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


def raw_places(raw: bytes) -> Mapping[str, tuple[int, int]]:
    """Where the values of an object's fields stand in its JSON, from and to; none where it is no object, or has a field
    twice. Never raises."""
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for name, value in raw_fields(raw).items():
        key = KEY.match(raw, end)
        if key is None or read(key[1]) != name or not raw.startswith(bytes(value), key.end()):
            return {}
        end = key.end() + len(bytes(value))
        places[name] = key.end(), end
    return places if raw[end:].strip() == b"}" else {}


def changed_at(raw: bytes, path: Sequence[str], change: Callable[[bytes], bytes]) -> bytes:
    """The JSON of an object with another value at a path of keys; all its other bytes stay. The same bytes if there is
    no such value. Never raises unless `change` does."""
    if not path:
        return change(raw)
    place = raw_places(raw).get(path[0])
    if place is None:
        return raw
    before = raw[place[0] : place[1]]
    after = changed_at(before, path[1:], change)
    return raw if after == before else raw[: place[0]] + after + raw[place[1] :]


def raw_value(raw: bytes | msgspec.Raw) -> Json:
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
