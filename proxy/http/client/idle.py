"""The idle connections of a pool, and the observed keep-alive behaviour of the upstream.

Some upstreams announce keep-alive and still close, after each response or only after streams. A POST sent at that
moment fails, because it is never retried. So a POST reuses a young connection only after earlier reuse has succeeded.
After a failed reuse, the upstream must prove its keep-alive again.
"""

from __future__ import annotations

from math import inf

from proxy.http.client.connection import Connection

# Seconds a connection must stay idle and open before it counts as kept alive. An upstream that closes after each
# response does so within milliseconds. Until the upstream is trusted, younger idle connections are not used for a POST:
# a new one is dialled, and a round trip takes most of this time.
GRACE = 0.1
UNPROVEN = 1  # successful reuses of connections idle for at least GRACE before the upstream is trusted, at first
DISPROVED = 1000  # the same after a failed reuse; it costs more idle connections, but no handshakes
SHARE = 0.75  # of the idle age at which the upstream closed a connection: older ones are not used for a POST


class Idle:
    """The idle connections whose last response was of one kind (chunked or not). Times are the loop's.

    The state has two figures. `_doubts` is the number of successful reuses still needed until the upstream is trusted
    (0: trusted). `_ends` is the lowest idle age in seconds at which the upstream closed a connection.
    """

    __slots__ = ("_doubts", "_ends", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Connection, None] = {}  # the newest last
        self._doubts = UNPROVEN
        self._ends = inf

    def __len__(self) -> int:
        """The number of idle connections."""
        return len(self._waiting)

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The idle connections, the oldest first."""
        return tuple(self._waiting)

    def put(self, connection: Connection) -> None:
        """Adds a connection whose response has just ended."""
        self._waiting[connection] = None

    def take(self, now: float, repeatable: bool) -> Connection | None:
        """Removes and returns a connection for a request, or None. A `repeatable` request gets any open connection,
        another request only a trusted one. The newest comes first, or the oldest while the upstream is not trusted."""
        doubts, oldest = self._doubts, self._ends * SHARE
        for connection in self._waiting if doubts else reversed(self._waiting):
            if not repeatable:
                rested = now - connection.idle_since
                if doubts and rested < GRACE:
                    return None  # the remaining ones are younger
                if rested > oldest:
                    continue
            if connection.quiet:
                del self._waiting[connection]
                return connection
        return None

    def proved(self) -> None:
        """Records a response on a reused connection."""
        if self._doubts:
            self._doubts -= 1

    def disproved(self) -> None:
        """Records a request that failed because the upstream closed a reused connection."""
        self._doubts = DISPROVED

    def lost(self, connection: Connection, now: float) -> None:
        """Removes a connection that the upstream closed while idle, and records its age."""
        if connection in self._waiting:
            del self._waiting[connection]
            age = now - connection.idle_since
            if age < GRACE:
                self._doubts = DISPROVED
            else:
                self._ends = min(self._ends, age)

    def overdue(self, now: float, seconds: float) -> list[Connection]:
        """Removes and returns the connections that were idle for at least `seconds`."""
        first = next(iter(self._waiting), None)
        if first is not None and first.quiet and SHARE * (now - first.idle_since) > self._ends:
            self._ends = inf  # an older one is open: the close had another cause, such as a restart
        late = [c for c in self._waiting if now - c.idle_since >= seconds]
        for connection in late:
            del self._waiting[connection]
        return late
