"""The measurement of rolling restarts, small; and that it notices what is lost."""

from __future__ import annotations

import asyncio
import os
import shutil

import pytest

from tests.bench.rolling import ROOT, Load, Replica, rolled, unread
from tests.ports import reserved_port
from tests.recorder import EVENTS, Peer, Request, answer, chunk, recording

needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")


@needs_nginx
def test_no_request_and_no_stream_is_lost_while_two_replicas_are_restarted() -> None:
    done = rolled(requests=200, streams=12, rate=20, seconds=8, pre_stop=2)
    assert done.problems == []
    counts = done.load.counts
    assert counts["request"] == counts["request begun"] >= 200
    assert counts["stream"] == counts["stream begun"] == 12
    assert len(done.notes) == 2 and not any(note.startswith("0 requests under way") for note in done.notes)


def test_two_replicas_of_this_version_read_each_others_records() -> None:
    assert unread(ROOT) == []


def test_replicas_with_different_secrets_do_not_and_that_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Replica.start

    def apart(self: Replica, *args: object) -> None:
        self.settings = {**self.settings, "PLIMSOLL_SECRET": os.urandom(8).hex()}
        start(self, ROOT)

    monkeypatch.setattr(Replica, "start", apart)
    monkeypatch.setattr("tests.bench.rolling.KNOWN", 1.0)
    assert len(unread(ROOT)) == 4


@pytest.mark.parametrize("what", ["request", "stream"])
@pytest.mark.parametrize(
    "broken", [b"", answer(b"{}", b"502 Bad Gateway"), answer(b"{}"), EVENTS + chunk(b"data: x\n\n")]
)
def test_an_answer_that_is_missing_wrong_or_broken_off_is_lost(what: str, broken: bytes) -> None:
    async def script(request: Request, peer: Peer) -> None:
        if broken:
            await peer.send(broken)
        peer.close()

    async def check() -> None:
        async with recording(script) as up:
            load = Load(up.port, 3)
            await load.send(what)
            assert (len(load.lost), load.counts[what]) == (1, 0)

    asyncio.run(check())


def test_a_balancer_that_is_not_there_loses_everything() -> None:
    load = Load(reserved_port(), 3)
    asyncio.run(load.send("request"))
    assert len(load.lost) == 1
