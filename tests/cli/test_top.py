"""`plimsoll top` in a terminal, in a pipe, and while the proxy is away."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.main import main
from proxy.cli.top import ESCAPE, pressed
from proxy.cli.top_view import Screen
from tests.cli.admin_server import OVERVIEW, Admin, admin_server
from tests.hostile.harness import HELLO, running, upstream

ROOT = Path(__file__).parents[2]
SCREEN = Screen("http://127.0.0.1:1", keys=True)


@dataclass(slots=True)
class Terminal:
    """`plimsoll top` on a terminal of its own, whose modes were `before` it began."""

    process: subprocess.Popen[bytes]
    master: int
    slave: int
    before: list[Any]
    seen: str = ""

    def wait_for(self, pattern: str) -> None:
        """Reads until the terminal got something that matches, from here on."""
        until = time.monotonic() + 30
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < until, f"{pattern} is not in {self.seen[-2000:]!r}"
            if select.select((self.master,), (), (), 0.1)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        self.seen = self.seen[found.end() :]

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ended(self) -> int:
        """The exit code. Reads on until then, as a terminal does: a process waits for one that does not."""
        until = time.monotonic() + 30
        while self.process.poll() is None:
            assert time.monotonic() < until, "it does not end"
            if select.select((self.master,), (), (), 0.05)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        return self.process.returncode


@contextmanager
def terminal(url: str, columns: int = 120) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    modes = termios.tcgetattr(slave)
    environment = {**os.environ, "TERM": "xterm-256color", "PLIMSOLL_ADMIN_TOKEN": "", "COLUMNS": "", "LINES": ""}
    command = [sys.executable, "-m", "proxy.cli", "top", "--url", url]
    # A shell's background job ignores SIGINT, and so do the processes that it starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=environment)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        yield Terminal(process, master, slave, modes)
    finally:
        process.kill()
        process.wait(20)
        os.close(master)
        os.close(slave)


def test_it_is_live_filters_and_leaves_the_terminal_as_it_was() -> None:
    with admin_server(Admin()) as admin, terminal(admin.url) as there:
        there.wait_for("o3-mini")
        there.wait_for("q: quit")
        admin.overview = {**OVERVIEW, "requests": {**OVERVIEW["requests"], "in_flight": 77}}
        there.wait_for(r"77\S*.* in flight")
        there.type("/o3")
        there.wait_for("filter: o3_")
        there.type("\r")
        there.wait_for("filter: o3   ")
        there.type("q")
        assert there.ended() == 0
        assert termios.tcgetattr(there.slave) == there.before
        there.wait_for(re.escape("\x1b[?1049l"))  # the screen from before is back


def test_a_proxy_that_restarts_is_shown_again() -> None:
    admin = Admin()
    with admin_server(admin):
        pass
    with terminal(admin.url, 60) as there:
        there.wait_for("no proxy responds")
        with admin_server(admin):
            there.wait_for("o3-mini")
        there.wait_for("no proxy responds")
        with admin_server(admin):
            there.wait_for("in flight")
        before = termios.tcgetattr(there.slave)
        there.process.send_signal(signal.SIGINT)
        assert there.ended() == 130
        assert termios.tcgetattr(there.slave) != before, "keys are shown again"


def test_a_pipe_gets_one_snapshot_without_colours() -> None:
    with admin_server(Admin()) as admin:
        command = [sys.executable, "-m", "proxy.cli", "top", "--url", admin.url]
        environment = {**os.environ, "COLUMNS": "60"}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1.2k requests" in done.stdout and "o3-mini" in done.stdout and "\x1b" not in done.stdout
    assert max(len(line.rstrip()) for line in done.stdout.splitlines()) <= 60


def test_json_is_what_the_admin_port_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with admin_server(Admin()) as admin:
        assert main(["top", "--json", "--url", admin.url]) == 0
    overview = {name: value for name, value in OVERVIEW.items() if name != "token"}
    assert json.loads(capsys.readouterr().out) == {"overview": overview, "requests": admin.requests}


def test_the_data_port_is_never_asked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It would pass the request on to the provider."""
    monkeypatch.delenv("PLIMSOLL_ADMIN_URL", raising=False)
    monkeypatch.setenv("PLIMSOLL_PORT", "8080")
    assert main(["top", "--once"]) == 2
    assert "set PLIMSOLL_ADMIN_PORT" in capsys.readouterr().err
    with admin_server(Admin()) as admin:
        monkeypatch.setenv("PLIMSOLL_ADMIN_PORT", str(admin.port))
        assert main(["top", "--once"]) == 0


def test_a_proxy_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    admin = Admin()
    with admin_server(admin):
        pass
    assert main(["top", "--once", "--url", admin.url]) == 1
    assert "no proxy responds" in capsys.readouterr().err
    assert main(["top", "--once", "--url", "ftp://x"]) == 2
    assert "--url must be the URL" in capsys.readouterr().err


def test_the_token_of_the_settings_is_sent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with admin_server(Admin(token="a-token-of-32-characters-or-more")) as admin:
        monkeypatch.setenv("PLIMSOLL_ADMIN_URL", admin.url)
        assert main(["top", "--once"]) == 1
        assert "The token is missing or wrong. Set PLIMSOLL_ADMIN_TOKEN" in capsys.readouterr().err
        monkeypatch.setenv("PLIMSOLL_ADMIN_TOKEN", admin.token)
        assert main(["top", "--once"]) == 0
        assert admin.asked[-1] == ("/api/requests?limit=20", admin.token)


@pytest.mark.parametrize("typed", ["q", "/x\rq", "\x03", "/\x03"])
def test_keys_that_quit(typed: str) -> None:
    assert pressed(SCREEN, typed) is None


@pytest.mark.parametrize(
    ("typed", "after"),
    [
        ("/gpt 4", replace(SCREEN, typing=True, filter="gpt 4")),
        ("fquit\n", replace(SCREEN, filter="quit")),
        ("/ab\x7f\b\b", replace(SCREEN, typing=True)),
        ("x\t", SCREEN),
        ("\x1b[A", SCREEN),
    ],
)
def test_keys_that_filter(typed: str, after: Screen) -> None:
    assert pressed(SCREEN, typed) == after


def test_escape_ends_the_filter() -> None:
    assert pressed(replace(SCREEN, typing=True, filter="x"), ESCAPE) == SCREEN


def test_the_figures_are_those_of_a_running_proxy(capsys: pytest.CaptureFixture[str]) -> None:
    with upstream() as up, running(up.url, admin=True) as proxy:
        assert proxy.ask({**HELLO, "model": "gpt-4o"}).status == 200
        url = f"http://127.0.0.1:{proxy.admin_port}"
        for _ in range(200):
            assert main(["top", "--json", "--url", url]) == 0
            shown = json.loads(capsys.readouterr().out)
            if shown["overview"]["requests"]["measured"]:
                break
            time.sleep(0.1)
        assert [request["model"] for request in shown["requests"] if request["endpoint"] == "chat"] == ["gpt-4o"]
        assert "token" not in shown["overview"]
        assert main(["top", "--once", "--url", url]) == 0
        assert "gpt-4o" in capsys.readouterr().out
