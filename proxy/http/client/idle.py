"""The idle connections of a pool, and the observed keep-alive behaviour of the upstream.

Some upstreams announce keep-alive and still close, after each response or only after streams. A POST sent at that
moment fails, because it is never retried. So a POST reuses a young connection only after earlier reuse has succeeded.
Until the first success, one POST at a time tries it. After a failed reuse, the upstream must prove its keep-alive
again, with connections that were idle for longer.
"""

from __future__ import annotations

from math import inf

from proxy.http.client.connection import Connection

# Seconds a connection must stay idle and open before it counts as kept alive. An upstream that closes after each
# response does so within milliseconds. Until the upstream is trusted, younger idle connections are not used for a POST:
# a new one is dialled, and a round trip takes most of this time.
MIN_IDLE_SECONDS = 0.1
LONGEST_IDLE_SECONDS = 3.2  # each failed reuse doubles the time, up to this: a busy upstream closes later
LATE_SECONDS = 0.8  # a connection that is closed at so young an age is closed behind its answer, and not for its age
INITIAL_REUSES = 1  # successful reuses of connections idle for MIN_IDLE_SECONDS or longer until the upstream is trusted
REUSES_AFTER_FAILURE = 1000  # the same after a failed reuse; it costs more idle connections, but no handshakes
SAFE_AGE_SHARE = 0.75  # of the idle age at which the upstream closed a connection: older ones are not used for a POST


class Idle:
    """The idle connections whose last response was of one kind (chunked or not). Times are the loop's.

    `_reuses_needed` is the number of successful reuses still needed until the upstream is trusted (0: trusted).
    `_shortest_idle_timeout` is the lowest idle age in seconds at which the upstream closed a connection. `_min_idle`
    are the seconds that a connection rests before a POST while the upstream is not trusted. `_proven`: no reuse failed
    since the last success. `_trial` is the connection whose POST tries an upstream that is not proven.
    """

    __slots__ = ("_connections", "_min_idle", "_proven", "_reuses_needed", "_shortest_idle_timeout", "_trial")

    def __init__(self) -> None:
        self._connections: dict[Connection, None] = {}  # the newest last
        self._reuses_needed = INITIAL_REUSES
        self._shortest_idle_timeout = inf
        self._min_idle = MIN_IDLE_SECONDS
        self._proven = False
        self._trial: Connection | None = None

    def __len__(self) -> int:
        """The number of idle connections."""
        return len(self._connections)

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The idle connections, the oldest first."""
        return tuple(self._connections)

    def put(self, connection: Connection) -> None:
        """Adds a connection whose response has just ended."""
        self._connections[connection] = None

    def take(self, now: float, repeatable: bool) -> Connection | None:
        """Removes and returns a connection for a request, or None. A `repeatable` request gets any open connection,
        another request only a trusted one. The newest comes first, or the oldest while the upstream is not trusted."""
        reuses_needed, max_age = self._reuses_needed, self._shortest_idle_timeout * SAFE_AGE_SHARE
        if self._trial is not None and not repeatable:
            return None
        for connection in self._connections if reuses_needed else reversed(self._connections):
            if not repeatable:
                age = now - connection.idle_since
                if reuses_needed and age < self._min_idle:
                    return None  # the remaining ones are younger
                if age > max_age:
                    continue
            if connection.usable:
                del self._connections[connection]
                if not (self._proven or repeatable):
                    self._trial = connection
                return connection
        return None

    def record_reuse(self, connection: Connection) -> None:
        """Records a response on a reused connection."""
        if self._reuses_needed:
            self._reuses_needed -= 1
            self._proven = True
            if not self._reuses_needed:
                self._min_idle = MIN_IDLE_SECONDS
            self.end_trial(connection)

    def record_failed_reuse(self) -> None:
        """Records a request that failed because the upstream closed a reused connection."""
        self._reuses_needed = REUSES_AFTER_FAILURE
        self._proven = False
        self._min_idle = min(2 * self._min_idle, LONGEST_IDLE_SECONDS)

    def end_trial(self, connection: Connection) -> None:
        """Lets another POST try the upstream, once the one on this connection has ended in any way."""
        if self._trial is connection:
            self._trial = None

    def record_close(self, connection: Connection, now: float) -> None:
        """Removes a connection that the upstream closed while idle, and records its age."""
        if connection in self._connections:
            del self._connections[connection]
            age = now - connection.idle_since
            if age < self._min_idle:
                self._reuses_needed = REUSES_AFTER_FAILURE
                self._proven = False
            else:
                if not self._proven and age < LATE_SECONDS:
                    self._min_idle = 2 * age
                self._shortest_idle_timeout = min(self._shortest_idle_timeout, age)

    def expire(self, now: float, seconds: float) -> list[Connection]:
        """Removes and returns the connections that were idle for at least `seconds`."""
        first = next(iter(self._connections), None)
        oldest = 0.0 if first is None or not first.usable else now - first.idle_since
        if SAFE_AGE_SHARE * oldest > self._shortest_idle_timeout:
            self._shortest_idle_timeout = inf  # an older one is open: the close had another cause, such as a restart
        expired = [c for c in self._connections if now - c.idle_since >= seconds]
        for connection in expired:
            del self._connections[connection]
        return expired
