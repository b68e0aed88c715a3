"""When one connection is read, and when somebody may write to it."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import pytest

from proxy.http.server import flow as module
from proxy.http.server.flow import Flow
from tests.serving import eventually, run


class Transport:
    """What a flow does to its transport."""

    def __init__(self, connected: socket.socket | None = None) -> None:
        self.calls: list[str] = []
        self._connected = connected

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def abort(self) -> None:
        self.calls.append("abort")

    def is_closing(self) -> bool:
        return "abort" in self.calls

    def get_extra_info(self, name: str) -> object:
        return {"socket": self._connected}[name]


def flow_of(transport: Transport) -> Flow:
    return Flow(cast(asyncio.Transport, transport))


def test_reading_is_paused_and_resumed_once() -> None:
    flow = flow_of(transport := Transport())
    flow.resume_reading()
    flow.pause_reading()
    flow.pause_reading()
    flow.resume_reading()
    flow.resume_reading()
    assert transport.calls == ["pause", "resume"]


def test_what_is_held_is_not_read_before_it_is_released() -> None:
    async def check() -> None:
        flow = flow_of(transport := Transport())
        flow.pause_reading()
        flow.hold()
        flow.resume_reading()
        assert transport.calls == ["pause"] and flow.held
        flow.release()
        assert transport.calls == ["pause", "resume"] and not flow.held
        flow.close()

    run(check())


def test_a_client_that_leaves_while_the_flow_is_held_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DISCONNECT_POLL_SECONDS", 0.01)

    async def check() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            flow = flow_of(transport := Transport(ours))
            flow.hold()
            await asyncio.sleep(0.05)
            assert not transport.is_closing()
            theirs.shutdown(socket.SHUT_WR)
            await eventually(transport.is_closing)

    run(check())


def test_a_flow_that_is_released_or_closed_polls_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DISCONNECT_POLL_SECONDS", 0.0)

    async def check() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            flows = [(flow_of(transport), transport) for transport in (Transport(ours), Transport(ours))]
            for flow, _ in flows:
                flow.hold()
            theirs.shutdown(socket.SHUT_WR)
            flows[0][0].release()
            flows[1][0].close()
            for _ in range(5):
                await asyncio.sleep(0)
            assert not any(transport.is_closing() for _, transport in flows)

    run(check())


def test_who_writes_waits_while_the_client_does_not_read_and_not_for_one_that_has_left() -> None:
    async def check() -> None:
        for end in (Flow.resume_writing, Flow.close):
            flow = flow_of(Transport())
            await flow.drain()
            flow.pause_writing()
            waiting = [asyncio.create_task(flow.drain()) for _ in range(2)]
            await asyncio.sleep(0)
            assert not any(task.done() for task in waiting)
            end(flow)
            await asyncio.gather(*waiting)

    run(check())
