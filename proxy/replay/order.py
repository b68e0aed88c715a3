"""Recorded requests of several files in the order of their times, in bounded memory.

Theory of operation. A file is open from the time of its first request on, and closed at its end. Of all open files the
earliest request comes next: files that are in order within themselves are merged exactly. Files without any time are
read one after another: a system allows about a thousand open files. Within a file, and over all of them, a request may
come late: the last `MAX_WAITING` requests, or `MAX_WAITING_BYTES` of them, wait and are sorted. One that comes later
than that is passed on out of order, and counted. Requests without a time keep their place behind the one before them in
their file.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

from proxy.model.lenient_json import raw_fields
from proxy.replay.files import Source
from proxy.replay.readers import readers
from proxy.replay.recorded import Found, Read, Recorded, Skipped

MAX_WAITING = 20_000
MAX_WAITING_BYTES = 64 << 20
MAX_REASONS = 100  # that are told apart
NOT_JSON = Skipped("a line that is no JSON object")
NOTHING = Skipped("a request whose body cannot be written")
BUG = Skipped("an entry that its reader failed on")


@dataclass(slots=True)
class Coverage:
    """What was understood of the input. `formats`: requests by format. `skipped`, `other`: by reason, what could not be
    used, and what is none. `late`: requests that came out of order. `timed`: those that have a time."""

    files: int = 0
    unreadable: list[str] = field(default_factory=list)
    requests: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    late: int = 0
    timed: int = 0
    redacted: int = 0

    def skip(self, found: Skipped) -> None:
        """Counts what was not used."""
        reasons = self.other if found.other else self.skipped
        reasons[found.why if found.why in reasons or len(reasons) < MAX_REASONS else "other reasons"] += 1

    def add(self, found: Recorded, format: str) -> None:
        """Counts a request."""
        self.requests += 1
        self.formats[format] += 1
        self.missing.update(found.missing)
        self.timed += found.at is not None
        self.redacted += found.redacted


class Placed(NamedTuple):
    """A request with what orders it: its time, its file, and its place among the requests of its file. `entry` is the
    number of the line, item or row, from 1."""

    at: float
    file: int
    place: int
    entry: int
    recorded: Recorded


@dataclass(slots=True)
class File:
    """One file while it is read: its number, and its requests in the file's own order."""

    number: int
    source: Source
    coverage: Coverage

    def requests(self) -> Iterator[Placed]:
        """Its requests, each with the place that orders it."""
        last = float("-inf")
        for place, (entry, found) in enumerate(self._requests()):
            last = last if found.at is None else found.at
            yield Placed(last, self.number, place, entry, found)

    def _requests(self) -> Iterator[tuple[int, Recorded]]:
        reading: dict[str, Read] = {}
        number = 0
        try:
            for number, entry in enumerate(self.source.entries(), 1):
                for found, format in self._found(entry, reading):
                    if self._counts(found, format):
                        yield number, found
        except OSError as error:
            self.coverage.unreadable.append(f"{self.source.name}: {error.strerror or 'cannot be read'}")
        for name, read in reading.items():
            yield from ((number, found) for found in read.end() if self._counts(found, name))

    def _found(self, entry: bytes | Skipped, reading: dict[str, Read]) -> Iterator[tuple[Found, str]]:
        if isinstance(entry, Skipped):
            yield entry, ""
            return
        fields = raw_fields(entry)
        if not fields:
            yield NOT_JSON, ""
            return
        name = ""
        try:
            reader = next(one for one in readers() if one.recognises(fields))
            name = reader.name
            read = reading.get(name) or reading.setdefault(name, reader.start())
            yield from ((found, name) for found in read(entry, fields))
        except Exception:  # a bug of a reader: a line of somebody else's must not end the run
            yield BUG, name

    def _counts(self, found: Found, format: str) -> TypeGuard[Recorded]:
        """Counts it. True if it is a request."""
        if isinstance(found, Skipped):
            self.coverage.skip(found)
        elif not found.body and found.figures is None:
            self.coverage.skip(NOTHING)
        else:
            self.coverage.add(found, format)
            return True
        return False


def in_order(files: Sequence[Source], coverage: Coverage) -> Iterator[Placed]:
    """The requests of all files, in the order of their times."""
    last = float("-inf")
    for one in _sorted(_merged(files, coverage)):
        coverage.late += one.at < last
        last = max(last, one.at)
        yield one


def _sorted(requests: Iterator[Placed]) -> Iterator[Placed]:
    waiting: list[Placed] = []
    size = 0
    for one in requests:
        heapq.heappush(waiting, one)
        size += len(one.recorded.body)
        while len(waiting) > MAX_WAITING or size > MAX_WAITING_BYTES:
            earliest = heapq.heappop(waiting)
            size -= len(earliest.recorded.body)
            yield earliest
    while waiting:
        yield heapq.heappop(waiting)


def _merged(files: Sequence[Source], coverage: Coverage) -> Iterator[Placed]:
    """The files' requests, by the earliest next one. A file whose first request is not earlier than those of all open
    files is closed until it is its turn."""
    coverage.files = len(files)
    if len(files) == 1:
        yield from File(0, files[0], coverage).requests()
        return
    closed = sorted((_first(source, number), number) for number, source in enumerate(files))
    opened: list[tuple[Placed, Iterator[Placed]]] = []
    turn = 0
    while opened or turn < len(closed):
        while turn < len(closed) and (not opened or closed[turn][0] < opened[0][0].at):
            number = closed[turn][1]
            _advance(opened, File(number, files[number], coverage).requests())
            turn += 1
        if opened:
            found, rest = heapq.heappop(opened)
            yield found
            _advance(opened, rest)


def _advance(opened: list[tuple[Placed, Iterator[Placed]]], rest: Iterator[Placed]) -> None:
    found = next(rest, None)
    if found is not None:
        heapq.heappush(opened, (found, rest))


def _first(source: Source, number: int) -> float:
    """The time of a file's first request that has one; it is read again when it is its turn."""
    looked = Source(source.path)
    return next((one.at for one in File(number, looked, Coverage()).requests()), float("-inf"))
