"""The ASGI lifespan protocol: starts an application before the first request and shuts it down after the last one."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from proxy.http.callbacks import Event

ASGI = {"version": "3.0", "spec_version": "2.0"}


class Lifespan:
    """The lifespan of one application. The application need not support the protocol. The scope of each request
    contains a copy of `state`."""

    def __init__(self, app: Any, event: Event) -> None:
        self.state: dict[str, Any] = {}
        self._app, self._event = app, event
        self._messages: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._started, self._stopped = asyncio.Event(), asyncio.Event()
        self._failed = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> bool:
        """Sends `lifespan.startup` and waits for the reply. Returns whether the application started."""
        self._task = asyncio.create_task(self._run())
        await self._messages.put({"type": "lifespan.startup"})
        await self._started.wait()
        return not self._failed

    async def stop(self) -> None:
        """Sends `lifespan.shutdown` and waits for the reply, unless the application has returned."""
        if self._task is not None and not self._stopped.is_set():
            await self._messages.put({"type": "lifespan.shutdown"})
            await self._stopped.wait()

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": ASGI, "state": self.state}
        try:
            await self._app(scope, self._messages.get, self._send)
        except Exception as error:
            if self._started.is_set():
                self._event("the application failed at shutdown", error=type(error).__name__)
            # Otherwise the application does not support the protocol: ASGI lets it raise.
        finally:
            self._started.set()
            self._stopped.set()

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        kind = message["type"]
        if kind.endswith(".failed"):
            self._failed = True
            # The message of a failed startup is for the operator. At shutdown it could contain what clients sent.
            reason = message.get("message", "") if kind == "lifespan.startup.failed" else ""
            self._event("the application failed", at=kind, reason=reason)
        (self._started if kind.startswith("lifespan.startup.") else self._stopped).set()
