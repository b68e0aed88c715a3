"""A fork of the process that has loaded everything runs as a start of its own does."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy import __version__
from tests import warm
from tests.hostile.harness import HELLO, Proxying, running, running_anew, upstream

KEPT = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


@pytest.mark.parametrize("start", [running, running_anew])
def test_a_start_has_its_own_environment_and_its_end_is_told(start: Callable[..., Proxying], tmp_path: Path) -> None:
    with (
        upstream() as there,
        start(there.url, PLIMSOLL_RECORD=str(tmp_path), PLIMSOLL_UPSTREEM="x") as one,
        start(there.url) as other,
    ):
        assert one.ask(HELLO).status == other.ask(HELLO).status == 200
        assert one.log("PLIMSOLL_UPSTREEM") and not other.log("PLIMSOLL_UPSTREEM", 0)
        assert one.process.poll() is None
        assert one.stop() == 0 == one.process.poll()
        other.process.kill()
        assert other.process.wait(60) == -signal.SIGKILL
    assert list(tmp_path.iterdir()), "it recorded where it was told to"


def test_what_it_prints_and_its_exit_code_are_those_of_the_command() -> None:
    for arguments, code, said in (
        (["--version"], 0, f"plimsoll {__version__}\n"),
        (["serve", "--speed", "9"], 2, "unrecognized arguments: --speed 9"),
        (["check", "/nonexistent"], 2, "plimsoll: no such folder: /nonexistent\n"),
    ):
        ended, told = warm.ran(arguments, KEPT)
        assert (ended, said in told) == (code, True), told


def test_who_is_waited_for_in_vain_is_waited_for_no_longer() -> None:
    started = warm.start(["simulate", "--port", "0"], KEPT)
    with started.stdout as out:
        assert "http://" in out.readline()
        before = time.monotonic()
        with pytest.raises(subprocess.TimeoutExpired):
            started.wait(0.1)
        assert time.monotonic() - before >= 0.1 and started.poll() is None
        started.terminate()
        assert started.wait(60) == -signal.SIGTERM or started.returncode == 0


def test_a_constant_is_another_in_one_start_alone_and_must_be_one() -> None:
    widths: list[int] = []
    narrow: dict[str, float] = {"proxy.cli.main.MAX_HELP_WIDTH": 70}
    for constants in ({}, narrow, {}):
        started = warm.start(["serve", "--help"], {**KEPT, "COLUMNS": "200"}, constants)
        with started.stdout as out:
            widths.append(max(map(len, out.read().splitlines())))
        assert started.wait(60) == 0
    assert widths[1] < widths[0] == widths[2]
    for name, value in (("proxy.cli.main.NO_SUCH", 1), ("proxy.cli.main.MAX_HELP_WIDTH", 0.5)):
        started = warm.start(["--version"], KEPT, {name: value})
        with started.stdout as out:
            assert "Error" in out.read() and started.wait(60) == 1
