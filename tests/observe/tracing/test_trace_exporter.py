"""Traces leave in batches; a collector that is slow, dead or picky costs traces, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from proxy.model.outcome import Outcome
from proxy.model.trace import Trace
from proxy.observe.tracing import trace_exporter
from proxy.observe.tracing.trace_exporter import MAX_BATCH, MAX_QUEUED, TraceExporter
from tests.serving import eventually, run

TRACED = Outcome("chat", "passed", 200, trace=Trace("c" * 32, "a" * 16, "POST", 1, 2))


def encode(outcomes: Sequence[Outcome]) -> bytes:
    """A body that says how many outcomes it has."""
    return b"%d" % len(outcomes)


@dataclass(slots=True)
class Stub:
    """A collector that answers with these statuses, the last one again and again, and an exporter to it."""

    statuses: list[int]
    encode: Callable[[Sequence[Outcome]], bytes] = encode
    bodies: list[bytes] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    hold: Callable[[], Awaitable[object]] | None = None

    async def post(self, body: bytes) -> int:
        self.bodies.append(body)
        if self.hold is not None:
            await self.hold()
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    def exporter(self) -> TraceExporter:
        return TraceExporter(self.encode, self.post, lambda message, **figures: self.events.append(message))


def results(exporter: TraceExporter) -> tuple[int, ...]:
    """Exported, dropped and failed requests."""
    found = exporter.results()
    return tuple(found[name,] for name in ("exported", "dropped", "failed"))


async def told(exporter: TraceExporter, count: int) -> None:
    """Waits until it is known what became of so many requests."""
    await eventually(lambda: sum(results(exporter)) == count, 30)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses of seconds are shorter."""
    monkeypatch.setattr(trace_exporter, "BATCH_DELAY_S", 0.01)
    monkeypatch.setattr(trace_exporter, "RETRY_PAUSES_S", (0.01, 0.01))


def test_known_results_begin_at_zero() -> None:
    assert results(Stub([200]).exporter()) == (0, 0, 0)


def test_traces_are_exported_in_batches_and_later_ones_too() -> None:
    async def check() -> None:
        stub = Stub([200])
        exporter = stub.exporter()
        for count, total in ((MAX_BATCH + 1, MAX_BATCH + 1), (3, MAX_BATCH + 4)):
            for _ in range(count):
                exporter(TRACED)
            await told(exporter, total)
        await exporter.close()
        assert stub.bodies == [b"%d" % MAX_BATCH, b"1", b"3"]
        assert results(exporter) == (MAX_BATCH + 4, 0, 0) and stub.events == []

    run(check())


def test_what_is_not_traced_is_not_exported() -> None:
    async def check() -> None:
        stub = Stub([200])
        exporter = stub.exporter()
        exporter(Outcome("chat", "passed", 200))
        await exporter.close()
        assert stub.bodies == [] and results(exporter) == (0, 0, 0)

    run(check())


def test_an_exit_exports_what_is_queued_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_exporter, "BATCH_DELAY_S", 3600.0)

    async def check() -> None:
        stub = Stub([200])
        exporter = stub.exporter()
        for _ in range(2 * MAX_BATCH - 1):
            exporter(TRACED)
        await eventually(lambda: len(stub.bodies) == 1, 30)
        await exporter.close()
        assert results(exporter) == (2 * MAX_BATCH - 1, 0, 0)

    run(check())


def test_an_exit_does_not_wait_for_a_collector_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_exporter, "FLUSH_S", 0.05)

    async def check() -> None:
        stub = Stub([200], hold=asyncio.Event().wait)
        exporter = stub.exporter()
        exporter(TRACED)
        await eventually(lambda: stub.bodies, 30)
        await exporter.close()
        assert len(stub.bodies) == 1 and results(exporter) == (0, 0, 0)

    run(check())


def test_an_exit_does_not_retry() -> None:
    async def check() -> None:
        stub = Stub([503])
        exporter = stub.exporter()
        exporter(TRACED)
        await exporter.close()
        assert len(stub.bodies) == 1 and results(exporter) == (0, 0, 1)

    run(check())


@pytest.mark.parametrize("status", [0, 429, 502, 503, 504])
def test_what_may_pass_is_retried(status: int) -> None:
    async def check() -> None:
        stub = Stub([status, status, 200])
        exporter = stub.exporter()
        exporter(TRACED)
        await eventually(lambda: results(exporter) == (1, 0, 0), 30)
        assert len(stub.bodies) == 3 and stub.events == []

    run(check())


def test_retries_end() -> None:
    async def check() -> None:
        stub = Stub([503])
        exporter = stub.exporter()
        exporter(TRACED)
        await eventually(lambda: results(exporter) == (0, 0, 1), 30)
        assert len(stub.bodies) == 3

    run(check())


@pytest.mark.parametrize("status", [301, 400, 401, 404, 413, 500])
def test_what_is_final_is_not_retried(status: int) -> None:
    async def check() -> None:
        stub = Stub([status])
        exporter = stub.exporter()
        exporter(TRACED)
        await eventually(lambda: results(exporter) == (0, 0, 1), 30)
        assert len(stub.bodies) == 1

    run(check())


def test_a_failure_is_told_once_and_so_is_its_end() -> None:
    async def check() -> None:
        stub = Stub([400, 400, 200])
        exporter = stub.exporter()
        for count in range(1, 5):
            exporter(TRACED)
            await told(exporter, count)
        assert stub.events == ["traces are not exported", "traces are exported again"]
        assert results(exporter) == (2, 0, 2)

    run(check())


def test_the_queue_is_bounded_while_the_collector_hangs() -> None:
    async def check() -> None:
        go = asyncio.Event()
        stub = Stub([200], hold=go.wait)
        exporter = stub.exporter()
        exporter(TRACED)
        await eventually(lambda: stub.bodies, 30)
        for _ in range(MAX_QUEUED + 7):
            exporter(TRACED)
        assert results(exporter) == (0, 7, 0)
        go.set()
        await eventually(lambda: results(exporter) == (MAX_QUEUED + 1, 7, 0), 30)

    run(check())


def test_a_bug_in_the_encoder_loses_its_batch_and_the_next_one_is_exported() -> None:
    calls: list[int] = []

    def broken(outcomes: Sequence[Outcome]) -> bytes:
        calls.append(len(outcomes))
        if len(calls) == 1:
            raise ValueError("a secret")
        return encode(outcomes)

    async def check() -> None:
        stub = Stub([200], broken)
        exporter = stub.exporter()
        for count in (1, 2):
            exporter(TRACED)
            await told(exporter, count)
        assert results(exporter) == (1, 0, 1) and len(stub.events) == 2

    run(check())
