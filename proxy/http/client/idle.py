"""Connections that wait for their next request, and what the upstream has shown of keeping them open.

Some announce keep-alive and close all the same, after each answer or only after streams. A POST on its way then is
lost, for it is never repeated: so nothing is trusted that has not been proven, and what was disproved is proven anew.
"""

from __future__ import annotations

from math import inf

from proxy.http.client.connection import Connection

# Seconds that a connection has survived its answer where the upstream does not close after each. One that closes does
# so within milliseconds; an unproven upstream is thus dialled anew for so long, and a round trip takes most of it.
GRACE = 0.1
UNPROVEN = 1  # requests that must be answered on connections that rested for so long, at first
DISPROVED = 1000  # and after one was closed sooner; that costs resting connections, and no handshakes
SHARE = 0.75  # of the age at which the upstream closed an idle connection: until then others are used


class Idle:
    """The idle connections whose last answer was of one kind; times are the loop's.

    A state of two figures: `_doubts`, how many more proofs are needed until a connection is used at once (0: it is
    trusted), and `_ends`, the age in seconds at which the upstream was seen to close what nobody used.
    """

    __slots__ = ("_doubts", "_ends", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Connection, None] = {}  # the newest last
        self._doubts = UNPROVEN
        self._ends = inf

    def __len__(self) -> int:
        """How many connections wait."""
        return len(self._waiting)

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Those that wait, the oldest first."""
        return tuple(self._waiting)

    def put(self, connection: Connection) -> None:
        """Keeps a connection whose answer has just ended."""
        self._waiting[connection] = None

    def take(self, now: float, repeatable: bool) -> Connection | None:
        """A connection for a request: any that is open for one that may be `repeatable`, else one that may be trusted.
        The newest, or where there are doubts the one that rested longest."""
        doubts, oldest = self._doubts, self._ends * SHARE
        for connection in self._waiting if doubts else reversed(self._waiting):
            if not repeatable:
                rested = now - connection.idle_since
                if doubts and rested < GRACE:
                    return None  # the others are younger
                if rested > oldest:
                    continue
            if connection.quiet:
                del self._waiting[connection]
                return connection
        return None

    def proved(self) -> None:
        """A request was answered on a connection that was taken from here."""
        if self._doubts:
            self._doubts -= 1

    def disproved(self) -> None:
        """A request was lost on one."""
        self._doubts = DISPROVED

    def lost(self, connection: Connection, now: float) -> None:
        """The upstream closed a connection, if it is one of these."""
        if connection in self._waiting:
            del self._waiting[connection]
            age = now - connection.idle_since
            if age < GRACE:
                self._doubts = DISPROVED
            else:
                self._ends = min(self._ends, age)

    def overdue(self, now: float, seconds: float) -> list[Connection]:
        """Lets go of the connections that waited for so long."""
        first = next(iter(self._waiting), None)
        if first is not None and first.quiet and SHARE * (now - first.idle_since) > self._ends:
            self._ends = inf  # what closed one was not its age: a restart perhaps
        late = [c for c in self._waiting if now - c.idle_since >= seconds]
        for connection in late:
            del self._waiting[connection]
        return late
