"""Lists of models (`GET /v1/models`) in the shape of each kind of server: their entries, and one list of several.

Unknown keys of entries and lists stay. It knows no upstream and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from proxy.model.lenient_json import UNREADABLE
from proxy.model.server import Entry, ModelList

ENTRIES = "data"
LISTED = (ENTRIES, "models")  # where a list of any kind of server has its entries
NAMED = ("id", "model", "name", "slug")  # where an entry has its model's name: the first of these
PREFIX = "models/"  # before the names of Gemini's
MORE = "has_more"


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


def entry_for(name: str, owner: str, shape: ModelList) -> Entry:
    """An entry for a model that no list has."""
    return shaped({"id": name}, owner, shape)


def shaped(entry: Entry, owner: str, shape: ModelList) -> Entry:
    """An entry with the fields that clients of the shape require; those that it has stay."""
    return {**shape.entry(entry["id"], owner), **entry}


def with_window(entry: Entry, tokens: int, max_output: int | None, shape: ModelList) -> Entry:
    """An entry with a window, and with the longest reply if it is known, in tokens."""
    figures = dict.fromkeys(shape.window_keys, tokens)
    if max_output is not None:
        figures |= dict.fromkeys(shape.output_keys, max_output)
    return {**entry, **figures}


def one_list(found: Entry | None, entries: Sequence[Entry], shape: ModelList) -> bytes:
    """The JSON of a list with these entries. What else `found` has stays."""
    fixed, usual = shape.frame([entry["id"] for entry in entries])
    written: Entry = {**(found or {}), **fixed}
    for key, value in usual.items():
        written.setdefault(key, value)
    return msgspec.json.encode({**written, ENTRIES: list(entries)})


def distinct(entries: Iterable[Entry]) -> list[Entry]:
    """The entries without those whose name stood before."""
    found: dict[str, Entry] = {}
    for entry in entries:
        found.setdefault(entry["id"], entry)
    return list(found.values())


def allowed_only(body: bytes, allows: Callable[[str], bool], shapes: Iterable[ModelList]) -> bytes:
    """A list of any kind of server without the entries of models that are not allowed; the same body if it is no list.
    What else it has stays, but for what names its first and its last entry, unless there are further pages."""
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE:
        return body
    keys = [key for key in LISTED if isinstance(found, dict) and isinstance(found.get(key), list)]
    if not keys:
        return body
    left = {key: [entry for entry in found[key] if allows(named(entry))] for key in keys}
    names = [named(entry) for entry in left[keys[0]]]
    ends = [] if found.get(MORE) else [shape.frame(names)[0] for shape in shapes]
    written = {key: value for fixed in ends for key, value in fixed.items() if key in found}
    return msgspec.json.encode({**found, **written, **left})


def named(entry: object) -> str:
    """The name of an entry's model; empty if it has none."""
    found = next((entry[key] for key in NAMED if key in entry), "") if isinstance(entry, dict) else ""
    return found.rpartition(PREFIX)[2] if isinstance(found, str) else ""
