"""Several processes: they are started, replaced, stopped, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

# Workers that say who they are, become ready unless told otherwise, and wait for their end;
# the parent says who is gone, and its exit code.
PROGRAM = """
import os, signal, sys, time
from proxy.http.server import workers
from proxy.observe.log import event
workers.CRASH_LOOP_S = float(sys.argv[1])
parent = os.getpid()

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def work(number, ready):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(int(sys.argv[2])))
    signal.signal(signal.SIGHUP, lambda *_: say("hangup", os.getpid()))
    if sys.argv[3] == "wait":
        ready()  # before the test hears of it: a worker that is killed earlier has died during startup
    say("born", os.getpid(), os.getppid() == parent)
    if sys.argv[3] == "fail":
        raise ValueError("a secret")
    while True:
        time.sleep(60)

code = workers.run(2, work, lambda pid: say("gone", pid), event=event, hangup_stops=sys.argv[4] == "True")
say("end", code)
"""


@contextmanager
def crew(
    young: float = 0.0, code: int = 0, work: str = "wait", hangup_stops: bool = False
) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A parent with two workers, and what they say."""
    command = [sys.executable, "-c", PROGRAM, str(young), str(code), work, str(hangup_stops)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        finally:
            process.kill()


def born(out: IO[str], count: int = 2) -> list[int]:
    """The process ids of the workers that begin now."""
    lines = [out.readline().split() for _ in range(count)]
    assert [(line[0], line[2]) for line in lines] == [("born", "True")] * count
    return [int(line[1]) for line in lines]


def eventually(true: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def state_of(pid: int) -> str:
    """The letter of a process's state, as ps shows it; that of a zombie if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter: it went while it was read
        return "Z"


def is_alive(pid: int) -> bool:
    """Whether a process is there and is no zombie that an idle init has not buried yet."""
    return state_of(pid) != "Z"


def is_told(pid: int, number: signal.Signals) -> bool:
    """Whether a signal waits for a process that stands still."""
    status = Path(f"/proc/{pid}/status").read_text()
    (pending,) = (line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:"))
    return bool(int(pending, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_passed_on_and_waited_for(stop: signal.Signals) -> None:
    with crew() as (process, out):
        pids = born(out)
        process.send_signal(stop)
        assert sorted(out.readline() for _ in range(2)) == sorted(f"gone {pid}\n" for pid in pids)
        assert out.readline() == "end 0\n"
        assert process.wait(60) == 0
        assert not any(map(is_alive, pids))


def test_a_worker_that_did_not_end_well_is_told_in_the_exit_code() -> None:
    with crew(code=3) as (process, out):
        born(out)
        process.terminate()
        assert [out.readline() for _ in range(3)][-1] == "end 3\n"


def test_a_worker_that_dies_is_replaced() -> None:
    with crew() as (process, out):
        first, second = born(out)
        os.kill(first, signal.SIGKILL)
        assert out.readline() == f"gone {first}\n"
        (third,) = born(out, 1)
        process.terminate()
        assert {out.readline() for _ in range(2)} == {f"gone {second}\n", f"gone {third}\n"}
        assert out.readline() == "end 0\n"
        assert process.stderr is not None
        assert "a worker exited and is replaced status=-9" in process.stderr.read()


def test_a_worker_that_cannot_begin_ends_all_and_its_reason_stays_private() -> None:
    with crew(young=60, work="fail") as (process, out):
        assert out.read().endswith("end 1\n")
        assert process.stderr is not None
        told = process.stderr.read()
        assert "a worker failed kind=ValueError" in told and "a worker exited during startup" in told
        assert "secret" not in told


def test_a_young_death_is_the_end_only_before_any_worker_was_ready() -> None:
    with crew(young=60) as (process, out):
        old = born(out)
        for pause in ("0.25", "0.5", "1.0"):
            os.kill(old[0], signal.SIGKILL)
            assert out.readline() == f"gone {old[0]}\n"
            old = [old[1], *born(out, 1)]
            assert process.stderr is not None
            assert f"a worker exited and is replaced status=-9 pause_seconds={pause}" in process.stderr.readline()
        process.terminate()
        assert {out.readline() for _ in range(2)} == {f"gone {pid}\n" for pid in old}
        assert out.readline() == "end 0\n"


def test_a_stop_while_a_place_is_empty_fills_it_no_more() -> None:
    with crew(young=60) as (process, out):
        pids = born(out)
        process.send_signal(signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not any(map(is_alive, pids)))
        process.terminate()
        process.send_signal(signal.SIGCONT)
        lines = out.read().splitlines()
        assert [line for line in lines if not line.startswith(("gone", "born"))] == ["end 0"]
        assert process.wait(60) == 0


def test_workers_that_fail_at_the_same_moment_are_all_buried() -> None:
    with crew(young=60, work="unready") as (process, out):
        pids = born(out)
        process.send_signal(signal.SIGSTOP)  # the parent hears of both ends at once
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not any(map(is_alive, pids)))
        process.send_signal(signal.SIGCONT)
        assert sorted(out.read().splitlines()) == sorted([*(f"gone {pid}" for pid in pids), "end 1"])
        assert process.wait(60) == 0


def test_a_second_stop_does_not_wait() -> None:
    with crew() as (process, out):
        pids = born(out)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # they will not hear the first one
        eventually(lambda: {state_of(pid) for pid in pids} == {"T"})
        process.terminate()
        eventually(lambda: all(is_told(pid, signal.SIGTERM) for pid in pids))  # two that wait at once would be one
        process.terminate()
        assert [out.readline() for _ in range(3)][-1] == "end 0\n"
        assert not any(map(is_alive, pids))


def test_workers_do_not_outlive_their_parent() -> None:
    with crew() as (process, out):
        pids = born(out)
        process.kill()
        eventually(lambda: not any(map(is_alive, pids)))


def test_SIGHUP_goes_to_every_worker_and_ends_none() -> None:
    with crew() as (process, out):
        pids = born(out)
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            assert {out.readline() for _ in pids} == {f"hangup {pid}\n" for pid in pids}
        process.terminate()
        assert sorted(out.readline() for _ in range(2)) == sorted(f"gone {pid}\n" for pid in pids)


def test_a_closed_terminal_is_a_stop() -> None:
    with crew(hangup_stops=True) as (process, out):
        pids = born(out)
        process.send_signal(signal.SIGHUP)
        assert sorted(out.readline() for _ in range(2)) == sorted(f"gone {pid}\n" for pid in pids)
        assert out.readline() == "end 0\n"
