"""Whether an upstream knows a caller's key, asked before anything else is known of that caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy.config.key_checks import KeyCheck
from proxy.upstreams import key_probe
from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.internal_client import caller_of
from proxy.upstreams.key_checks import KeyChecks
from proxy.upstreams.key_probe import MOST_AT_ONCE, KeyProbe
from proxy.upstreams.upstream import Upstream
from proxy.wire.headers import Header
from tests.recorder import Peer, Recorder, Request, Script, answer, recording
from tests.serving import run

KNOWN = b"Bearer sk-known"
MINE: list[Header] = [(b"authorization", KNOWN), (b"content-length", b"7"), (b"cookie", b"a=b"), (b"accept", b"x")]
REFUSED = answer(b"{}", b"401 Unauthorized")


async def closed(request: Request, peer: Peer) -> None:
    """A list that only a known key can read."""
    await peer.send(answer(b"{}") if request.header(b"authorization") == [KNOWN] else REFUSED)


def other(number: int) -> list[Header]:
    return [(b"authorization", b"Bearer sk-%d" % number)]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is late, however busy the machine is, unless a test says so."""
    for patience in ("WAIT_S", "TIMEOUT_S"):
        monkeypatch.setattr(key_probe, patience, 30.0)


def probing(script: Script, check: Callable[[KeyProbe, Recorder], Awaitable[None]], probe: str = "/v1/models") -> None:
    async def ask() -> None:
        async with recording(script) as up:
            keys = KeyChecks("h")
            keys.use_rows([KeyCheck("h", ("h",), probe=probe)])
            upstream = Upstream(up.url)
            made = KeyProbe(upstream, keys, ExtraCalls(0))
            try:
                await check(made, up)
            finally:
                await made.close()
                await upstream.close()

    run(ask())


def accepted(probe: KeyProbe, headers: list[Header]) -> bool:
    return probe.extra_calls.has_accepted(caller_of(headers))


def test_a_key_that_the_upstream_knows_is_accepted_by_one_question_without_what_described_the_request() -> None:
    async def check(probe: KeyProbe, up: Recorder) -> None:
        await asyncio.gather(*(probe.ask(MINE) for _ in range(5)))
        assert accepted(probe, MINE) and not accepted(probe, other(1))
        mine = [request for request in up.requests if request.header(b"authorization") == [KNOWN]]
        assert len(mine) == 1 and len(up.requests) == 2 and mine[0].target == b"/v1/models"
        assert not any(mine[0].header(name) for name in (b"cookie", b"content-length"))
        assert probe.extra_calls.calls() == {("key", "ok"): 1}

    probing(closed, check)


def test_a_key_that_is_not_known_is_asked_for_once_in_a_while_and_nothing_is_learned() -> None:
    async def check(probe: KeyProbe, up: Recorder) -> None:
        for _ in range(3):
            await probe.ask(other(1))
        assert not accepted(probe, other(1)) and len(up.requests) == 2  # its own, and the invented one
        await probe.ask(other(2))
        assert len(up.requests) == 3

    probing(closed, check)


@pytest.mark.parametrize("status", [b"200 OK", b"404 Not Found", b"429 Too Many Requests", b"500 Oops"])
def test_a_path_that_does_not_refuse_an_invented_key_accepts_nobody(status: bytes) -> None:
    async def open_path(request: Request, peer: Peer) -> None:
        await peer.send(answer(b"{}", b"200 OK" if request.header(b"authorization") == [KNOWN] else status))

    async def check(probe: KeyProbe, up: Recorder) -> None:
        await probe.ask(MINE)
        assert not accepted(probe, MINE)

    probing(open_path, check)


def test_without_a_path_or_a_key_in_a_header_nobody_is_asked_for() -> None:
    async def check(probe: KeyProbe, up: Recorder) -> None:
        await probe.ask([(b"accept", b"x")])
        probe.keys.use_rows([])
        await probe.ask(MINE)
        assert not up.requests

    probing(closed, check)


def test_a_late_answer_serves_the_next_request_and_few_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_probe, "WAIT_S", 0.0)

    async def check(probe: KeyProbe, up: Recorder) -> None:
        go = asyncio.Event()

        async def late(request: Request, peer: Peer) -> None:
            await go.wait()
            await closed(request, peer)

        up.script = late
        await probe.ask(MINE)
        for number in range(MOST_AT_ONCE + 4):
            await probe.ask(other(number))
        assert probe.extra_calls.calls() == {("key", "busy"): 5} and not accepted(probe, MINE)
        go.set()
        async with asyncio.timeout(30):
            while not accepted(probe, MINE):
                await asyncio.sleep(0.01)

    probing(closed, check)


def test_an_upstream_that_cannot_be_reached_accepts_nobody() -> None:
    async def check(probe: KeyProbe, up: Recorder) -> None:
        nowhere = Upstream("http://127.0.0.1:9/v1")
        probe.upstream = nowhere
        await probe.ask(MINE)
        assert not accepted(probe, MINE)
        await nowhere.close()

    probing(closed, check)
