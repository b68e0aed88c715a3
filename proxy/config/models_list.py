"""Lists of models (`GET /v1/models`) in the shapes of OpenAI and of Anthropic: their entries, and one list of several.

Unknown keys of entries and lists stay. It knows no upstream and sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from proxy.model.lenient_json import UNREADABLE

Entry = dict[str, Any]
ENTRIES = "data"
# Where clients look for a window and for the longest reply, in OpenAI's shape and in Anthropic's. OpenAI's has no such
# field: these are those of OpenRouter, vLLM and Groq.
WINDOW_KEYS = {False: ("context_length", "max_model_len"), True: ("max_input_tokens",)}
OUTPUT_KEYS = {False: ("max_completion_tokens",), True: ("max_tokens",)}
EPOCH = "1970-01-01T00:00:00Z"


def read_list(body: bytes) -> Entry | None:
    """A list with its entries; None if the body is none. Never raises."""
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE:
        return None
    if not isinstance(found, dict) or not isinstance(found.get(ENTRIES), list):
        return None
    return found


def entries_of(found: Entry | None) -> list[Entry]:
    """The entries of a list that have a name."""
    entries = [] if found is None else found[ENTRIES]
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def entry_for(name: str, owner: str, anthropic: bool) -> Entry:
    """An entry for a model that no list has."""
    return shaped({"id": name}, owner, anthropic)


def shaped(entry: Entry, owner: str, anthropic: bool) -> Entry:
    """An entry with the fields that clients of the shape require; those that it has stay."""
    name = entry["id"]
    if anthropic:
        return {"type": "model", "id": name, "display_name": name, "created_at": EPOCH, **entry}
    return {"id": name, "object": "model", "created": 0, "owned_by": owner, **entry}


def with_window(entry: Entry, tokens: int, max_output: int | None, anthropic: bool) -> Entry:
    """An entry with a window, and with the longest reply if it is known, in tokens."""
    figures = dict.fromkeys(WINDOW_KEYS[anthropic], tokens)
    if max_output is not None:
        figures |= dict.fromkeys(OUTPUT_KEYS[anthropic], max_output)
    return {**entry, **figures}


def one_list(found: Entry | None, entries: Sequence[Entry], anthropic: bool) -> bytes:
    """The JSON of a list with these entries. What else `found` has stays."""
    names = [entry["id"] for entry in entries]
    written: Entry = {**(found or {})}
    if anthropic:
        written |= {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        written.setdefault("has_more", False)
    else:
        written.setdefault("object", "list")
    return msgspec.json.encode({**written, ENTRIES: list(entries)})


def distinct(entries: Iterable[Entry]) -> list[Entry]:
    """The entries without those whose name stood before."""
    found: dict[str, Entry] = {}
    for entry in entries:
        found.setdefault(entry["id"], entry)
    return list(found.values())
