"""One listening port: what all of its connections share, and how many of them an address may have."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from proxy.http.addresses import network_of
from proxy.http.callbacks import ErrorBody, Event, RateLimitedEvent, ignore

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class Connection(Protocol):
    """An open connection, as the server that stops sees it."""

    transport: asyncio.Transport

    @property
    def is_idle(self) -> bool:
        """Whether the connection is open for a request, and none is pending."""

    def shutdown(self) -> None:
        """Closes the connection when the port closes: immediately, or after the pending response."""

    def drain(self) -> None:
        """Drains the connection: a response that has not started is sent with `Connection: close`."""


class Port:
    """State shared by all connections of one listening port: the application, its lifespan state, the callbacks for
    error bodies and events, the open connections and the running tasks. `per_address`: connections that one address may
    have at once, 0: any number."""

    __slots__ = (
        "_addresses",
        "_too_many",
        "app",
        "connections",
        "error_body",
        "event",
        "per_address",
        "state",
        "tasks",
    )

    def __init__(
        self,
        app: Asgi,
        state: dict[str, Any],
        error_body: ErrorBody,
        event: Event = ignore,
        per_address: int = 0,
    ) -> None:
        self.app, self.state, self.error_body, self.event = app, state, error_body, event
        self.per_address = per_address
        self._addresses: Counter[str] = Counter()
        self._too_many = RateLimitedEvent(event, "an address has too many connections: further ones are closed")
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    def open_from(self, address: str) -> bool:
        """Counts a connection of an address. Returns whether the address may have it."""
        network = network_of(address)
        self._addresses[network] += 1
        if self._addresses[network] <= self.per_address:
            return True
        self._too_many(limit=self.per_address)
        return False

    def closed_from(self, address: str) -> None:
        """No longer counts a connection of an address."""
        network = network_of(address)
        self._addresses[network] -= 1
        if not self._addresses[network]:
            del self._addresses[network]
