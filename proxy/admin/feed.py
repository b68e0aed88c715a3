"""The live events of the page: one task asks all workers once a second, and every viewer gets the same bytes.

A viewer that reads slowly loses the oldest events. Without viewers nothing runs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from proxy.admin.peers import Peers
from proxy.observe.log import event

MAX_VIEWERS = 20
TICK_S = 1.0
OVERVIEW_TICKS = 2
WAIT_S = 0.25  # between two looks whether the proxy stops
MAX_NEW = 50  # requests in one event: more a second nobody reads
MAX_QUEUED = 8  # events
RETRY = b"retry: 2000\n\n"

Cursor = Mapping[str, int]  # by the name of a worker's process: the number of its last request that was sent


def encoded(name: str, data: Any, id: str = "") -> bytes:
    """A server-sent event (HTML standard, 9.2). JSON has no line breaks."""
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


def written(cursor: Cursor) -> str:
    """A cursor as the id of an event."""
    return ",".join(f"{name}.{number}" for name, number in sorted(cursor.items()))


def read(text: str) -> dict[str, int]:
    """The cursor in the id of an event; empty if it is none."""
    found: dict[str, int] = {}
    for one in text[:4096].split(","):
        name, _, number = one.rpartition(".")
        if name and number.isdecimal() and len(number) < 20:
            found[name] = int(number)
    return found


class Viewer:
    """The events that wait for one viewer: at most `MAX_QUEUED`."""

    def __init__(self) -> None:
        self._events: deque[bytes] = deque(maxlen=MAX_QUEUED)
        self._new = asyncio.Event()

    def offer(self, event: bytes) -> None:
        """Adds an event; the oldest of too many is dropped."""
        self._events.append(event)
        self._new.set()

    async def next(self) -> bytes:
        """All events that wait; empty if none comes within `WAIT_S`."""
        if not self._events:
            self._new.clear()
            try:
                async with asyncio.timeout(WAIT_S):
                    await self._new.wait()
            except TimeoutError:
                return b""
        found = b"".join(self._events)
        self._events.clear()
        return found


class Feed:
    """The viewers of this worker, and the task that serves them. `overview` returns the overview."""

    def __init__(self, peers: Peers, overview: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        self._peers, self._overview = peers, overview
        self.viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None
        self._cursor: dict[str, int] = {}

    async def join(self, after: str) -> tuple[Viewer, bytes]:
        """A new viewer, and its first events: the overview, and the requests after the event with the id `after`."""
        viewer = Viewer()
        self.viewers.add(viewer)
        try:
            if self._task is None:
                self._cursor = {}
                first, self._cursor = await self._requests(read(after))
                self._task = self._task or asyncio.create_task(self._run())
            else:
                first, _ = await self._requests(read(after))
            return viewer, RETRY + encoded("overview", await self._overview()) + first
        except BaseException:
            self.leave(viewer)
            raise

    def leave(self, viewer: Viewer) -> None:
        """Ends a viewer, and with the last one the task."""
        self.viewers.discard(viewer)
        if not self.viewers and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _requests(self, cursor: Cursor) -> tuple[bytes, dict[str, int]]:
        """The event with the requests after a cursor, and the next cursor; no event without a request."""
        answers = await self._peers.ask({"ask": "since", "after": dict(cursor), "limit": MAX_NEW})
        later = {answer["name"]: answer["count"] for answer in answers}
        entries = sorted(_entries(answers), key=lambda entry: entry["at"])
        skipped = sum(answer["skipped"] for answer in answers) + max(0, len(entries) - MAX_NEW)
        if not entries:
            return b"", later
        return encoded("requests", {"requests": entries[-MAX_NEW:], "skipped": skipped}, written(later)), later

    async def _run(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(TICK_S)
            ticks += 1
            try:
                found, self._cursor = await self._requests(self._cursor)
                if ticks % OVERVIEW_TICKS == 0:
                    found += encoded("overview", await self._overview())
            except Exception as error:  # the page must not end with it
                event("the page's events failed", error=type(error).__name__)
                continue
            for viewer in self.viewers if found else ():
                viewer.offer(found)

    def close(self) -> None:
        """Ends the task."""
        for viewer in tuple(self.viewers):
            self.leave(viewer)


def _entries(answers: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    for answer in answers:
        yield from answer["entries"]
