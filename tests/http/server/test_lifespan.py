from __future__ import annotations

import asyncio
from typing import Any

from proxy.http.server.lifespan import Lifespan

Said = list[tuple[str, dict[str, object]]]


def lifespan(app: Any) -> tuple[Lifespan, Said]:
    """The lifespan of an application, and the events that it reports."""
    said: Said = []
    return Lifespan(app, lambda message, **figures: said.append((message, figures))), said


def answering(*kinds: str) -> Any:
    """An application that answers each message with one of these kinds."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["state"]["seen"] = True
        for kind in kinds:
            await receive()
            await send({"type": kind, "message": "the reason"})

    return app


def test_an_application_starts_and_ends_and_its_state_is_shared() -> None:
    async def check() -> None:
        made, said = lifespan(answering("lifespan.startup.complete", "lifespan.shutdown.complete"))
        assert await made.start() and made.state == {"seen": True}
        await made.stop()
        assert said == []

    asyncio.run(check())


def test_a_start_that_fails_is_reported_with_its_reason() -> None:
    async def check() -> None:
        made, said = lifespan(answering("lifespan.startup.failed"))
        assert not await made.start()
        await made.stop()
        assert said == [("the application failed", {"at": "lifespan.startup.failed", "reason": "the reason"})]

    asyncio.run(check())


def test_an_end_that_fails_is_reported_without_a_reason_that_could_hold_content() -> None:
    async def check() -> None:
        made, said = lifespan(answering("lifespan.startup.complete", "lifespan.shutdown.failed"))
        assert await made.start()
        await made.stop()
        assert said == [("the application failed", {"at": "lifespan.shutdown.failed", "reason": ""})]

    asyncio.run(check())


def test_an_application_without_a_lifespan_is_served() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("what a client wrote")

    async def check() -> None:
        made, said = lifespan(app)
        assert await made.start()
        await made.stop()
        assert said == []

    asyncio.run(check())
