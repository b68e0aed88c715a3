"""N2: the system's clock jumps an hour, there and back: nothing is lost by it, and nothing holds for ever."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.cache.accepted_callers import AcceptedCallers
from proxy.cache.keyring import SECRET_NAME, Keyring
from proxy.cache.model_records import ModelRecords
from proxy.cache.remote import Remote
from proxy.cache.stats import LookupStats
from proxy.config.reload import Reloader
from proxy.model.limits import LearnedLimits, Proof, Suspicion
from proxy.model.ports import ACCEPTED_S
from proxy.observe.recording.recording_files import PATTERN, RecordingFiles, lines
from proxy.upstreams.extra_calls import ExtraCalls
from tests.cache.shelf import Shelf, until

HOUR = 3_600.0
ALICE = b"a" * 16
PROOF = Proof(0, 0, "context_length", 5_000, 0, 5_100, "exact")
JUMPS = pytest.mark.parametrize("jump", [-HOUR, HOUR], ids=["back", "ahead"])


class Clocks:
    """A wall clock that one sets, and one that only goes on."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_700_000_000.0, 1_000.0

    def passes(self, seconds: float) -> None:
        """Time goes by."""
        self.wall += seconds
        self.steady += seconds


def callers(clocks: Clocks, remote: Remote | None = None) -> AcceptedCallers:
    keyring = Keyring(b"s" * 32)
    return AcceptedCallers("u", remote, keyring, LookupStats(), lambda: clocks.steady, lambda: clocks.wall)


def records(clocks: Clocks) -> ModelRecords:
    return ModelRecords("u", None, Keyring(None), LookupStats(), lambda: clocks.steady, lambda: clocks.wall)


async def exchanged(made: AcceptedCallers, remote: Remote) -> None:
    """What it knows has gone to the backend, and came back."""
    for _ in range(2):
        made.lookup(ALICE)
        await made.refresh()
        await until(lambda: not remote._queue)
        await asyncio.sleep(0.02)


def shared(check: Callable[[Clocks, AcceptedCallers, Remote], object]) -> None:
    async def whole() -> None:
        clocks, remote = Clocks(), Remote(Shelf(), SECRET_NAME)
        remote.start()
        made = callers(clocks, remote)
        try:
            made.accept(ALICE)
            await exchanged(made, remote)
            await check(clocks, made, remote)  # type: ignore[misc]
        finally:
            await remote.close()

    asyncio.run(whole())


@JUMPS
def test_N2_a_caller_that_is_accepted_after_a_jump_counts_although_the_backend_knows_a_later_time(jump: float) -> None:
    async def check(clocks: Clocks, made: AcceptedCallers, remote: Remote) -> None:
        clocks.wall += jump
        assert not made.has(ALICE)  # nobody's hour becomes longer
        for _ in range(3):
            made.accept(ALICE)
            await exchanged(made, remote)
            assert made.has(ALICE)
            clocks.passes(10)
        clocks.passes(ACCEPTED_S)
        assert not made.has(ALICE)

    shared(check)


@JUMPS
def test_N2_a_key_that_is_refused_after_a_jump_is_not_accepted_again_when_the_clock_is_back(jump: float) -> None:
    async def check(clocks: Clocks, made: AcceptedCallers, remote: Remote) -> None:
        clocks.wall += jump
        made.accept(ALICE)
        await exchanged(made, remote)
        clocks.wall -= jump
        made.refuse(ALICE)
        await exchanged(made, remote)
        other = callers(clocks, remote)
        for _ in range(200):
            lookup = other.lookup(ALICE)
            if lookup is not None:
                lookup.deliver((await remote.backend.get([lookup.name]))[0])
            assert not made.has(ALICE) and not other.has(ALICE)
            clocks.passes(61)

    shared(check)


@JUMPS
def test_N2_workers_agree_on_a_key_that_is_refused_after_a_jump(jump: float) -> None:
    clocks = Clocks()
    one, other = callers(clocks), callers(clocks)
    other._workers = one._workers
    one.accept(ALICE)
    other.accept(ALICE)
    clocks.wall += jump
    other.refuse(ALICE)
    for _ in range(200):
        assert not one.has(ALICE) and not other.has(ALICE)
        clocks.passes(61)
    one.accept(ALICE)
    assert one.has(ALICE) and other.has(ALICE)


@JUMPS
def test_N2_what_refusals_proved_stays_and_ends(jump: float) -> None:
    clocks = Clocks()
    made = records(clocks)
    made.record_proof("m", ALICE, LearnedLimits(5_000), PROOF)
    made.record_refusal("n", ALICE, (), Suspicion(10_000, 7_000, "x"), 7_000)
    clocks.wall += jump
    assert made.learned("m", ALICE).window == 5_000 and made.learned("n", ALICE).window is not None
    made.record_proof("m", ALICE, LearnedLimits(4_000), PROOF)
    assert made.learned("m", ALICE).window == 4_000, "the later one holds, although its time may be earlier"
    made.record_answer("m", ALICE, 4_500, 0, agrees=True, probed=True)
    assert made.learned("m", ALICE).window is None, "and it is withdrawn as ever"
    clocks.passes(30 * 24 * HOUR)
    assert made.learned("n", ALICE).window is None


@JUMPS
def test_N2_what_the_operator_forgets_after_a_jump_is_forgotten_and_learned_anew(jump: float) -> None:
    clocks = Clocks()
    made = records(clocks)

    def teach() -> None:
        made.record_proof("m", ALICE, LearnedLimits(5_000), PROOF)
        made.record_refusal("m", b"b" * 16, (), Suspicion(10_000, 7_000, "x"), 7_000)

    def known() -> tuple[object, object]:
        return made.learned("m", ALICE).window, made.learned("m", b"b" * 16).window

    teach()
    clocks.wall += jump
    made.forget("m")
    assert known() == (None, None)
    clocks.wall -= jump
    teach()
    assert None not in known()


@JUMPS
def test_N2_the_budget_of_a_day_is_neither_given_twice_nor_kept_back(
    monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    clocks, calls = Clocks(), ExtraCalls(1_000)
    monkeypatch.setattr(time, "time", lambda: clocks.wall)
    monkeypatch.setattr(time, "monotonic", lambda: clocks.steady)
    calls.charge(1_000)
    clocks.wall += 25 * jump
    assert calls.left == 0
    clocks.passes(24 * HOUR)
    assert calls.left == 1_000


@JUMPS
def test_N2_a_recording_goes_on_in_a_file_of_another_name_and_its_folder_stays_bounded(
    tmp_path: Path, jump: float
) -> None:
    clocks = Clocks()
    files = RecordingFiles(tmp_path, 1 << 20, lambda: clocks.wall)
    for number in range(20):
        files.append(b'{"n":%d}\n' % number)
        clocks.wall += jump if number % 2 else -jump
    files.close()
    found = sorted(line for path in tmp_path.glob(PATTERN) for line in lines(path))
    assert found == sorted(b'{"n":%d}' % number for number in range(20))
    small = RecordingFiles(tmp_path, 4_000, lambda: clocks.wall)
    for number in range(60):
        small.append(b"".join(b'{"x":"%b"}\n' % bytes(str(hash((number, at))), "ascii") for at in range(20)))
        clocks.wall += jump
        assert sum(path.stat().st_size for path in tmp_path.glob(PATTERN)) < 8_000
    small.close()


@JUMPS
def test_N2_a_file_of_rules_that_changes_is_read_whatever_time_it_bears(tmp_path: Path, jump: float) -> None:
    async def check() -> None:
        clocks, told = Clocks(), list[str]()
        path = tmp_path / "windows.toml"
        path.write_text("a")
        made: Reloader[str] = Reloader(
            [tmp_path], path.read_text, told.append, lambda *_, **__: None, lambda: clocks.wall
        )
        await made.poll()
        clocks.wall += jump
        path.write_text("b")

        os.utime(path, (clocks.wall, clocks.wall))
        await made.poll()
        await made.poll()
        assert told == ["b"] and made.loaded_at == clocks.wall

    asyncio.run(check())
