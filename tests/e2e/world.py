"""A simulator and a proxy before it on real sockets, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvloop

from proxy.apis import error_body
from proxy.app import create_app
from proxy.config.settings import read_settings
from proxy.http.server.port import Asgi
from proxy.http.server.serve import Config, Server
from proxy.model.outcome import Outcome
from proxy.services import build
from proxy.simulator.app import RecordedRequest, Simulator, SimulatorConfig, simulator


@dataclass(slots=True)
class World:
    """Where to ask (`straight` at the simulator, or `through` the proxy), and what was seen there."""

    simulator: Simulator
    straight: str
    through: str
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def ways(self) -> tuple[str, str]:
        """Both URLs, the straight one first."""
        return self.straight, self.through

    def seen(self, tag: str) -> list[RecordedRequest]:
        """The requests that reached the simulator with this x-scenario header, oldest first."""
        return [r for r in tuple(self.simulator.received) if r.header(b"x-scenario") == tag.encode()]

    def has_lost(self, clients: int) -> bool:
        """Whether so many clients have hung up on the simulator, and it is at nothing any more."""
        return self.simulator.disconnects == clients and self.simulator.in_flight == 0


def eventually(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits until something is so. Raises TimeoutError when it does not become so in time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.005)


@contextmanager
def world(config: SimulatorConfig | None = None, **environment: str) -> Iterator[World]:
    """Both, running; `environment` is the proxy's."""
    app = simulator(config)
    with listening(app) as upstream:
        straight = f"http://127.0.0.1:{upstream}/v1"
        outcomes: list[Outcome] = []
        services = build(read_settings({"PLIMSOLL_UPSTREAM": straight, **environment}), outcomes.append)
        with listening(create_app(services)) as port:
            yield World(app, straight, f"http://127.0.0.1:{port}/v1", outcomes)


@contextmanager
def listening(app: Asgi) -> Iterator[int]:
    """An application on a free port, which is given; it ends with the block."""
    server = Server(Config(app, "127.0.0.1", 0, error_body, drain=1))

    def serve() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started or not thread.is_alive(), 30)
        yield server.ports[0]
    finally:
        server.should_exit = True
        thread.join(10)
