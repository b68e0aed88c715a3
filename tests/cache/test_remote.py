from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from proxy.cache import breaker
from proxy.cache import remote as module
from proxy.cache.breaker import INITIAL_PAUSE_S
from proxy.cache.remote import MAX_ACTIVE_EXCHANGES, MAX_ACTIVE_READS, READ_BUDGET_S, Remote, Values
from proxy.cache.sealing import MAX_VALUE_BYTES
from proxy.observe.log import event
from tests.cache.shelf import Shelf, until

PROBE = b"probe"


def run(test: Callable[[Shelf, Remote], Awaitable[None]], started: bool = True) -> None:
    """Runs a test with a shelf and a remote over it."""

    async def whole() -> None:
        shelf = Shelf()
        remote = Remote(shelf, PROBE, event)
        if started:
            remote.start()
            await until(lambda: shelf.answered)
        try:
            await test(shelf, remote)
        finally:
            shelf.release()
            await remote.close()

    asyncio.run(whole())


@dataclass(slots=True)
class Taken:
    """What was handed over."""

    values: Values | None = None

    def __call__(self, values: Values) -> None:
        self.values = values


def test_values_are_read_and_handed_over() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.values[b"a"] = b"1"
        await remote.read([b"a", b"b"], taken := Taken())
        assert taken.values == [b"1", None]
        assert (remote.stats.reads, remote.stats.late) == (1, 0)

    run(test)


def test_a_request_waits_no_longer_than_its_budget_and_the_answer_still_serves_the_next() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.values[b"a"] = b"1"
        shelf.hold()
        await asyncio.wait_for(remote.read([b"a"], taken := Taken()), 30)  # though nobody answers
        assert (remote.stats.late, remote.available, taken.values) == (1, False, None)
        shelf.release()
        await until(lambda: taken.values == [b"1"])

    run(test)


def test_while_it_fails_no_request_asks_and_none_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "INITIAL_PAUSE_S", 60.0)  # no probe fails beside it

    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.fault = "ConnectionError"
        await remote.read([b"a"], Taken())
        asked = len(shelf.gets)
        for _ in range(100):
            await remote.read([b"a"], Taken())
        assert len(shelf.gets) == asked
        assert (remote.stats.errors, remote.stats.skipped) == (1, 100)

    run(test)


def test_it_comes_back_by_itself_without_a_request_that_tries() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.fault = "ConnectionError"
        await remote.read([b"a"], Taken())
        shelf.fault = ""
        await until(lambda: remote.read_breaker.closed)
        assert shelf.gets[-1] == [PROBE]
        await remote.read([b"a"], taken := Taken())
        assert taken.values == [None]

    run(test)


def test_probes_that_fail_come_ever_more_seldom() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.fault = "ConnectionError"
        await remote.read([b"a"], Taken())
        await until(lambda: remote.read_breaker.remaining > 1.2 * INITIAL_PAUSE_S)

    run(test)


def test_a_probe_that_is_answered_late_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBE_TIMEOUT_S", -1.0)

    async def test(shelf: Shelf, remote: Remote) -> None:
        await until(lambda: not remote.read_breaker.closed)
        assert shelf.gets == [[PROBE]]

    run(test)


def test_it_is_probed_when_it_starts_so_that_no_request_meets_a_dead_one_first() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.fault = "ConnectionError"
        remote.start()
        await until(lambda: not remote.available)
        assert shelf.gets == [[PROBE]]

    run(test, started=False)


def test_a_client_that_goes_away_cancels_its_waiting_and_no_command(patient: None) -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.hold()
        waiting = asyncio.create_task(remote.read([b"a"], taken := Taken()))
        await until(lambda: [b"a"] in shelf.gets)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        shelf.release()
        await until(lambda: taken.values is not None)
        assert remote.stats.errors == 0

    run(test)


def test_when_too_many_questions_are_under_way_further_requests_go_on_alone(patient: None) -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.hold()
        waiting = [asyncio.create_task(remote.read([b"%d" % n], Taken())) for n in range(MAX_ACTIVE_READS)]
        await until(lambda: len(shelf.gets) == 1 + MAX_ACTIVE_READS)
        await remote.read([b"more"], Taken())
        assert (remote.stats.skipped, len(shelf.gets)) == (1, 1 + MAX_ACTIVE_READS)
        shelf.release()
        await asyncio.gather(*waiting)

    run(test)


def test_an_answer_that_came_while_our_own_event_loop_was_busy_is_in_time() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.hold()
        loop = asyncio.get_running_loop()
        loop.call_later(READ_BUDGET_S / 4, time.sleep, 3 * READ_BUDGET_S)  # a long count, say
        loop.call_later(READ_BUDGET_S / 2, shelf.release)
        await remote.read([b"a"], taken := Taken())
        assert taken.values == [None]
        assert (remote.stats.late, remote.read_breaker.closed) == (0, True)

    run(test)


def test_writes_are_gathered_and_the_last_of_a_name_wins() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        for number in range(50):
            remote.write(b"%d" % (number % 10), b"%d" % number, 60.0)
        await until(lambda: shelf.puts)
        assert len(shelf.puts) == 1
        assert shelf.values == {b"%d" % (number % 10): b"%d" % number for number in range(40, 50)}

    run(test)


def test_many_writes_go_in_batches() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        for number in range(module.BATCH_SIZE + 1):
            remote.write(b"%d" % number, b"x", 60.0)
        await until(lambda: len(shelf.values) == module.BATCH_SIZE + 1)
        assert [len(put) for put in shelf.puts] == [module.BATCH_SIZE, 1]

    run(test)


def test_a_backend_that_takes_no_writes_is_still_read() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.full = True
        remote.write(b"a", b"1", 60.0)
        await until(lambda: not remote.write_breaker.closed)
        assert remote.stats.lost == 1
        await remote.read([b"a"], taken := Taken())
        assert taken.values == [None]
        shelf.full = False
        remote.write(b"a", b"2", 60.0)
        await until(lambda: remote.write_breaker.closed)
        assert shelf.values == {b"a": b"2"}

    run(test)


def test_B3_an_error_that_nobody_expects_loses_a_batch_and_writing_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        async def broken(shelf: Shelf, batch: object) -> None:
            raise TypeError

        with monkeypatch.context() as patch:
            patch.setattr(Shelf, "put", broken)
            remote.write(b"a", b"1", 60.0)
            await until(lambda: remote.stats.lost == 1)
        remote.write(b"a", b"2", 60.0)
        await until(lambda: shelf.values == {b"a": b"2"})

    run(test)


def test_what_is_too_much_to_keep_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUEUED_WRITES", 2)

    async def test(shelf: Shelf, remote: Remote) -> None:
        remote.write(b"large", bytes(MAX_VALUE_BYTES + 1), 60.0)
        for name in (b"a", b"b", b"c", b"b"):
            remote.write(name, b"x", 60.0)
        assert remote.stats.lost == 2
        await until(lambda: shelf.values)
        assert set(shelf.values) == {b"a", b"b"}

    run(test)


def test_a_value_too_large_to_be_ours_is_removed_so_that_it_stops_nobody_again() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.values = {b"poison": bytes(MAX_VALUE_BYTES + 1), b"good": b"1"}
        shelf.hold()
        await remote.read([b"good", b"poison"], Taken())
        shelf.release()
        await until(lambda: remote.read_breaker.closed)
        assert shelf.values == {b"good": b"1"}
        assert remote.stats.oversize == 1

    run(test)


def test_a_slow_answer_removes_nothing_that_may_be_ours() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.values = {b"good": b"1"}
        shelf.hold()
        await remote.read([b"good"], Taken())
        shelf.release()
        await until(lambda: remote.read_breaker.closed)
        assert (shelf.values, remote.stats.oversize) == ({b"good": b"1"}, 0)

    run(test)


def test_trouble_is_told_once_a_minute_and_only_by_its_kind(capfd: pytest.CaptureFixture[str]) -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.fault = "AuthenticationError"
        await remote.read([b"name"], Taken())
        remote.write(b"name", b"value", 60.0)
        await until(lambda: not remote.write_breaker.closed)
        assert remote.stats.errors >= 2

    run(test)
    told = capfd.readouterr().err
    assert told.count("the shared cache fails") == 1
    assert "server=shelf:1 trouble=AuthenticationError" in told
    assert "name" not in told


def test_work_aside_is_done_while_it_answers() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        assert await remote.attempt(lambda backend: backend.get([b"a"])) == [None]
        shelf.fault = "TimeoutError"
        assert await remote.attempt(lambda backend: backend.get([b"a"])) is None
        shelf.fault = ""
        asked = len(shelf.gets)
        assert await remote.attempt(lambda backend: backend.get([b"a"])) is None
        assert len(shelf.gets) == asked

    run(test)


def test_closing_writes_what_waits_and_then_nothing_is_asked() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        remote.write(b"a", b"1", 60.0)
        await remote.close()
        assert (shelf.values, shelf.closed) == ({b"a": b"1"}, True)
        await remote.read([b"a"], taken := Taken())
        assert taken.values is None
        assert await remote.attempt(lambda backend: backend.get([b"a"])) is None

    run(test)


def test_closing_does_not_wait_for_a_backend_that_hangs() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.hold()
        remote.write(b"a", b"1", 60.0)
        await asyncio.wait_for(remote.close(), 30)

    run(test)


def test_closing_does_not_mind_a_backend_that_fails() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.fault = "ConnectionError"
        remote.write(b"a", b"1", 60.0)
        await remote.close()
        assert remote.stats.lost == 1

    run(test)


def test_an_answer_that_is_late_for_a_read_is_in_time_for_accounts() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.hold()
        await remote.read([b"a"], Taken())
        assert (remote.available, remote.account_breaker.closed) == (False, True)
        shelf.release()
        assert await remote.exchange(lambda backend: backend.get([b"a"])) == [None]

    run(test)


def test_a_backend_that_is_gone_is_asked_for_no_account_until_it_answers() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.fault = "ConnectionError"
        await remote.read([b"a"], Taken())
        asked = len(shelf.gets)
        assert await remote.exchange(lambda backend: backend.get([b"a"])) is None
        assert (len(shelf.gets), remote.account_breaker.closed) == (asked, False)
        shelf.fault = ""
        await until(lambda: remote.account_breaker.closed and remote.read_breaker.closed)
        assert await remote.exchange(lambda backend: backend.get([b"a"])) == [None]

    run(test)


def test_a_slow_backend_that_was_gone_is_asked_for_accounts_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        monkeypatch.setattr(module, "PROBE_TIMEOUT_S", -1.0)
        shelf.fault = "ConnectionError"
        assert await remote.exchange(lambda backend: backend.get([b"a"])) is None
        assert not remote.account_breaker.closed
        shelf.fault = ""
        await until(lambda: remote.account_breaker.closed)
        assert not remote.read_breaker.closed

    run(test)


def test_accounts_wait_for_each_other_and_not_for_connections() -> None:
    async def test(shelf: Shelf, remote: Remote) -> None:
        shelf.hold()
        before = len(shelf.gets)
        asked = [asyncio.create_task(remote.exchange(lambda backend: backend.get([b"a"]))) for _ in range(100)]
        await until(lambda: len(shelf.gets) == before + MAX_ACTIVE_EXCHANGES)
        await asyncio.sleep(0.02)
        assert len(shelf.gets) == before + MAX_ACTIVE_EXCHANGES
        shelf.release()
        assert await asyncio.gather(*asked) == [[None]] * 100

    run(test)
