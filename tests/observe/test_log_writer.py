"""Lines to readers that are quick, slow, stuck or gone."""

from __future__ import annotations

import errno
import io
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.observe import log_writer
from proxy.observe.log_writer import LogWriter


def eventually(true: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_lines_are_written_in_their_order_and_soon() -> None:
    out = io.StringIO()
    log_lines = LogWriter(out)
    for i in range(100):
        log_lines.write(f"{i}\n")
    eventually(lambda: out.getvalue() == "".join(f"{i}\n" for i in range(100)))
    log_lines.write("later\n")
    eventually(lambda: out.getvalue().endswith("later\n"))
    log_lines.close()


def test_what_waits_is_written_at_the_end(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as out:
        log_lines = LogWriter(out)
        log_lines.write("ünd\n")
        log_lines.close()
        assert (tmp_path / "log").read_text(encoding="utf-8") == "ünd\n", "past the stream's own buffer"


def test_closing_what_never_wrote_is_nothing() -> None:
    LogWriter(io.StringIO()).close()
    LogWriter(None).close()


def test_nowhere_takes_everything() -> None:
    """Python's standard output is None where whoever started it closed it."""
    log_lines = LogWriter(None)
    log_lines.write("gone\n")
    assert log_lines._thread is None
    log_lines.close()


def test_a_reader_that_is_stuck_holds_nobody_up_and_is_told_what_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "MAX_QUEUED", 1000)
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as out, os.fdopen(reader, "rb", buffering=0) as pipe:
        log_lines = LogWriter(out, "{} lost\n".format)
        line = "x" * 199 + "\n"
        began = time.monotonic()
        for _ in range(5_000):
            log_lines.write(line)  # a pipe holds 65,536 bytes: 327 of these
        assert time.monotonic() - began < 30
        took = time.monotonic()
        log_lines.close(0.1)
        assert time.monotonic() - took < 30, "a stop does not wait for it either"
        got, kept, lost = b"", 0, 0
        while kept + lost < 5_000:  # the thread may wake while lines are still written: then it tells more than once
            got += pipe.read(65536)
            *whole, got = got.split(b"\n")
            for found in whole:
                if found == line[:-1].encode():
                    kept += 1
                else:
                    lost += int(found.removesuffix(b" lost"))
        assert (kept + lost, got) == (5_000, b"") and lost


def test_a_reader_that_is_gone_ends_it_without_a_sound() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as out:
        log_lines = LogWriter(out)
        log_lines.write("nobody\n")
        eventually(lambda: log_lines._thread is not None and not log_lines._thread.is_alive())
        log_lines.write("at all\n")
        assert not log_lines._queue
        log_lines.close()


def test_a_line_that_cannot_be_made_is_lost_alone() -> None:
    def broken() -> str:
        raise ValueError("canary")

    began, go = threading.Event(), threading.Event()

    def held() -> str:
        began.set()
        return "" if go.wait(60) else "late"

    out = io.StringIO()
    log_lines = LogWriter(out, "{} lost\n".format)
    log_lines.write(held)
    assert began.wait(60)
    for line in ("a\n", broken, lambda: "b\n"):
        log_lines.write(line)
    go.set()  # the three are written together, however slowly this wrote them
    eventually(lambda: out.getvalue() == "a\nb\n")
    log_lines.write("c\n")
    eventually(lambda: out.getvalue() == "a\nb\nc\n1 lost\n")
    log_lines.close()


class Full(io.StringIO):
    """A disk that has no room for a while."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_a_full_disk_may_be_emptied() -> None:
    out = Full()
    log_lines = LogWriter(out, "{} lost\n".format)
    log_lines.write("one\n")
    log_lines.write("two\n")
    eventually(lambda: log_lines._failed == 2)
    out.full = False
    log_lines.write("three\n")
    eventually(lambda: out.getvalue() == "three\n2 lost\n")
    log_lines.write("four\n")
    eventually(lambda: out.getvalue().endswith("lost\nfour\n"))
    log_lines.close()


def test_a_pipe_that_does_not_block_is_waited_for() -> None:
    """Node, for one, gives its children such pipes."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with os.fdopen(writer, "w") as out, os.fdopen(reader, "rb", buffering=0) as pipe:
        log_lines = LogWriter(out)
        for _ in range(1_000):
            log_lines.write("x" * 199 + "\n")
        got = 0
        while got < 200_000:
            got += len(pipe.read(65536))
        log_lines.close()


def test_text_that_is_no_unicode_is_written_all_the_same(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as out:
        log_lines = LogWriter(out)
        log_lines.write("\ud800\n")
        log_lines.close()
    assert (tmp_path / "log").read_text() == "?\n"
