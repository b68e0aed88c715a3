"""JSON rows of equal shape as a table with one header, and back. Lossless."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proxy.model.lenient_json import Json

COLUMNS, ROWS = "columns", "rows"
DEPTH = 64  # levels that are converted; deeper values stay as they are

Raws = dict[str, msgspec.Raw]


class Ambiguous(ValueError):
    """The JSON itself contains an object that looks like a table, so the conversion could not be undone."""


def without_white_space(text: str | bytes) -> bytes:
    """The JSON without white space between its values. Raises msgspec.DecodeError if `text` is not JSON."""
    return msgspec.json.format(text if isinstance(text, bytes) else text.encode(), indent=-1)


def compacted(text: str | bytes) -> bytes:
    """The JSON without white space, with rows of equal shape as `{"columns": [...], "rows": [[...], ...]}` wherever
    that is shorter. Numbers and strings keep their bytes. Raises msgspec.DecodeError if `text` is not JSON."""
    small = without_white_space(text)
    try:
        return _compact(small, DEPTH)
    except Ambiguous:
        return small


def expanded(value: Json) -> Json:
    """The value with every such table as the list of objects that it represents: the inverse of `compacted`."""
    if isinstance(value, list):
        return [expanded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if is_table(value):
        names, rows = value[COLUMNS], value[ROWS]
        return [dict(zip(names, map(expanded, row), strict=True)) for row in rows]
    return {key: expanded(item) for key, item in value.items()}


def is_table(value: Json) -> bool:
    """Whether a value is a table: an object of columns and rows of equal length."""
    if not (isinstance(value, dict) and value.keys() == {COLUMNS, ROWS}):
        return False
    names, rows = value[COLUMNS], value[ROWS]
    if not (isinstance(names, list) and isinstance(rows, list) and all(isinstance(n, str) for n in names)):
        return False
    return all(isinstance(row, list) and len(row) == len(names) for row in rows)


def _compact(small: bytes, depth: int) -> bytes:
    if depth == 0 or small[:1] not in (b"[", b"{"):
        return small
    if small[:1] == b"[":
        return _list(small, depth)
    fields = _fields(small)
    if fields is None:
        return small
    return msgspec.json.encode({key: msgspec.Raw(_compact(bytes(raw), depth - 1)) for key, raw in fields.items()})


def _fields(small: bytes) -> Raws | None:
    """The fields of an object; None if a dict cannot represent it exactly: a repeated or an escaped key."""
    fields = msgspec.json.decode(small, type=Raws)
    if fields.keys() == {COLUMNS, ROWS}:
        raise Ambiguous
    return fields if len(msgspec.json.encode(fields)) == len(small) else None


def _list(small: bytes, depth: int) -> bytes:
    items = [bytes(raw) for raw in msgspec.json.decode(small, type=list[msgspec.Raw])]
    plain = _encoded([_compact(item, depth - 1) for item in items])
    table = _table(items, depth) if len(items) > 1 and all(item[:1] == b"{" for item in items) else None
    return table if table is not None and len(table) < len(plain) else plain


def _table(items: Sequence[bytes], depth: int) -> bytes | None:
    rows: list[Raws] = []
    for item in items:
        fields = _fields(item)
        if fields is None or not fields or (rows and list(fields) != list(rows[0])):
            return None
        rows.append(fields)
    cells = (_encoded([_compact(bytes(cell), depth - 2) for cell in row.values()]) for row in rows)
    header = msgspec.json.encode(list(rows[0]))
    return b'{"%b":%b,"%b":[%b]}' % (COLUMNS.encode(), header, ROWS.encode(), b",".join(cells))


def _encoded(items: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"
