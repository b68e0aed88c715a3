"""Reads entries with one reader, as a file does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from proxy.model.lenient_json import raw_fields
from proxy.replay.readers import readers
from proxy.replay.recorded import Found, Recorded, Skipped


def found(name: str, *entries: Any) -> list[Found]:
    """What these entries hold, all read by the reader of this name, which must recognise each of them."""
    reader = next(one for one in readers() if one.name == name)
    read = reader.start()
    collected: list[Found] = []
    for entry in entries:
        raw = entry if isinstance(entry, bytes) else json.dumps(entry).encode()
        fields = raw_fields(raw)
        assert next(one for one in readers() if one.recognises(fields)).name == name
        collected += read(raw, fields)
    return [*collected, *read.end()]


def requests(name: str, *entries: Any) -> list[Recorded]:
    """The requests in these entries."""
    return [one for one in found(name, *entries) if isinstance(one, Recorded)]


def request(name: str, *entries: Any) -> Recorded:
    """The only request in these entries."""
    (one,) = requests(name, *entries)
    return one


def skipped(name: str, *entries: Any) -> list[str]:
    """Why entries were not used."""
    return [one.why for one in found(name, *entries) if isinstance(one, Skipped)]


def body(one: Recorded) -> Any:
    """The body of a request."""
    return json.loads(one.body)


# A value of each kind of JSON, among them those that break careless code.
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e308,
    10**30,
    "",
    "\0\x1b[2J",
    "<script>alert(1)</script>",
    "nan",
    [],
    [None],
    [[]],
    {},
    {"": None},
    [{"role": 1, "parts": 7, "content": {"a": []}, "type": {}}],
)


def changed(entry: dict[str, Any]) -> Iterator[bytes]:
    """The entry with each of its fields, down to two levels, in each of the wrong types."""
    for key in entry:
        for strange in STRANGE:
            yield json.dumps({**entry, key: strange}).encode()
        if isinstance(inner := entry[key], dict):
            for name in inner:
                for strange in STRANGE:
                    yield json.dumps({**entry, key: {**inner, name: strange}}).encode()


def survives(name: str, entry: dict[str, Any]) -> None:
    """Reads the entry with wrong types in each of its fields: nothing may be raised."""
    reader = next(one for one in readers() if one.name == name)
    for raw in changed(entry):
        fields = raw_fields(raw)
        if reader.recognises(fields):
            read = reader.start()
            assert all(isinstance(one, (Recorded, Skipped)) for one in [*read(raw, fields), *read.end()])
