"""Finds the JSON values in a text: retrieved chunks, rows of a table. They are shortened by rows, as results are."""

from __future__ import annotations

import json
import re

import msgspec

from proxy.fit.nested import SIGNS, VALUES, decoded
from proxy.fit.relevance.results.rows import find_rows
from proxy.model.lenient_json import Json

Span = tuple[int, int]
LEAST = 1000  # characters of a value that is shortened by its rows; a shorter one is text
LONGEST = 2 << 20  # characters of a text that is searched: decoding holds the GIL
TRIES = 32  # places at which a value may begin
OPENS = re.compile(r"[\[{]\s*+[\[{\"\]}]")
BLANKS = 80  # before a value; it begins a line, or stands behind a label or a tag: `Orders: [{"id": 1}]`
DECODER = json.JSONDecoder()


def data_in(text: str) -> list[Span]:
    """The JSON lists and objects of at least `LEAST` characters in a text, as (start, end) in characters."""
    found: list[Span] = []
    if not LEAST <= len(text) <= LONGEST or sum(map(text.count, SIGNS)) > VALUES:
        return found
    after = tried = 0
    while tried < TRIES and (match := OPENS.search(text, after)):
        start = after = match.start()
        if text[max(0, start - BLANKS) : start].rstrip(" \t")[-1:] in ("", "\n", ":", ">"):
            tried += 1
            after = _end_of_value(text, start)
            if after - start >= LEAST:
                found.append((start, after))
        after = max(after, start + 1)
    return found


def _end_of_value(text: str, start: int) -> int:
    """Where the value that begins there ends; 0 if it is none, or nests too deep to be walked."""
    try:
        end = DECODER.raw_decode(text, start)[1]
        if end - start >= LEAST:
            decoded(text[start:end])
    except (ValueError, RecursionError, msgspec.DecodeError):
        return 0
    return end


def left_out(text: str) -> str:
    """The note that stands for a JSON value: how many rows it has."""
    listed = find_rows(_value(text))
    return f"[… JSON of {len(listed.rows)} results left out …]" if listed is not None else "[… JSON left out …]"


def _value(text: str) -> Json:
    try:
        return decoded(text)
    except msgspec.DecodeError:
        return None
