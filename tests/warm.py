"""Starts of `plimsoll serve` that skip what every start repeats: one process has imported the proxy and read its
tables, and forks for each start.

A fork has the environment, the output and the folder of its own start, and runs the command from its first line. What
a real start does before that (the interpreter, imports) is tried by the tests of `proxy.cli`, of packaging and of the
image, and by `running(..., warm=False)`. A test process has one such process, from its first start to its end.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NoReturn

ROOT = Path(__file__).parents[1]  # the checkout whose proxy runs
MESSAGE = 1 << 20  # bytes; more than any environment of a test has


class Started:
    """A process that was forked, with what tests use of `subprocess.Popen`."""

    def __init__(self, pid: int, stdout: IO[str], ended: socket.socket) -> None:
        self.pid, self.stdout = pid, stdout
        self.returncode: int | None = None
        self._ended = ended

    def poll(self) -> int | None:
        """The exit code, negated if a signal ended it; None while it runs."""
        return self._code(0)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end. Raises `subprocess.TimeoutExpired`."""
        code = self._code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("plimsoll", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Asks it to stop."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def _code(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            told = self._ended.recv(64)
            self.returncode = int(told) if told else 1  # nothing was told: the process that forks is gone
            self._ended.close()
        return self.returncode


def start(
    arguments: Sequence[str], environment: Mapping[str, str], constants: Mapping[str, float] = MappingProxyType({})
) -> Started:
    """Runs `plimsoll` with these arguments and exactly this environment; standard error goes to its output.

    `constants` have other values in this start: by their names, as `proxy.http.tunnel.Tunnel.closing_seconds`.
    """
    read, write = os.pipe()
    ended, teller = socket.socketpair()
    control = _source()
    told = {"arguments": list(arguments), "environment": dict(environment), "constants": dict(constants)}
    sent = json.dumps(told).encode()
    control.sendmsg([sent], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [write, teller.fileno()]))])
    os.close(write)
    teller.close()
    return Started(int(control.recv(64)), os.fdopen(read, encoding="utf-8", errors="replace"), ended)


def ran(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Runs `plimsoll` to its end; gives its exit code, and what it printed on both streams."""
    started = start(arguments, environment)
    with started.stdout as out:
        told = out.read()
    return started.wait(60), told


@functools.cache
def _source() -> socket.socket:
    """The connection to the process that forks; that process ends with it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        ours.setsockopt(socket.SOL_SOCKET, option, MESSAGE)
        its.setsockopt(socket.SOL_SOCKET, option, MESSAGE)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", str(its.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,  # as a fork has one: a stream finds out once whether it is a file
        stderr=subprocess.STDOUT,
        pass_fds=[its.fileno()],
        env=kept,
        cwd=ROOT,
    )
    its.close()
    atexit.register(_finish, process, ours)
    return ours


def _finish(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    if process.stdout is not None:
        process.stdout.close()
    process.wait(30)


def _load() -> None:
    """Imports and reads what every start does; the rules at last, for the expressions that `re` keeps."""
    import proxy.bootstrap
    import proxy.cli.main  # noqa: F401
    from proxy.config.rules import load_rules
    from proxy.config.windows import load_windows
    from proxy.services import FIRST_ENCODING, SECOND_ENCODING
    from proxy.tokens.encodings import encoding

    for name in (FIRST_ENCODING, SECOND_ENCODING):
        encoding(name)
    load_windows(load_rules(None).windows)


def _fork_on_demand(control: socket.socket) -> None:
    """Forks for each message, and tells the end of each fork to the one who asked; until the connection is closed."""
    asked: dict[int, int] = {}  # by process id: where its end is told
    woken, wakes = socket.socketpair()
    for end in (woken, wakes):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    while True:
        for ready in select.select([control, woken], [], [])[0]:
            if ready is woken:
                with contextlib.suppress(BlockingIOError):
                    woken.recv(4096)
                _tell_ends(asked)
                continue
            told, rights, _, _ = control.recvmsg(MESSAGE, socket.CMSG_SPACE(8))
            if not told:
                return
            out, teller = array.array("i", rights[0][2])
            pid = os.fork()
            if not pid:
                _become(json.loads(told), out, [*asked.values(), teller, control.fileno(), woken.fileno()])
            os.close(out)
            asked[pid] = teller
            control.send(str(pid).encode())


def _tell_ends(asked: dict[int, int]) -> None:
    for pid in list(asked):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            teller = asked.pop(pid)
            with contextlib.suppress(OSError):  # who asked may be gone
                os.write(teller, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(teller)


def _become(told: dict[str, Any], out: int, closed: list[int]) -> NoReturn:
    """Runs the command in this fork as its interpreter would, and exits."""
    code = 1
    try:
        wakes = signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (1, 2):
            os.dup2(out, descriptor)
        for descriptor in (*closed, out, wakes):
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(told["environment"])
        time.tzset()
        for name, value in told["constants"].items():
            owner, _, attribute = name.rpartition(".")
            found = pkgutil.resolve_name(owner)
            assert isinstance(getattr(found, attribute), type(value)), name
            setattr(found, attribute, value)
        sys.argv = ["plimsoll", *told["arguments"]]
        from proxy.cli.main import main

        code = main(sys.argv[1:])
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        _end(code)


def _end(code: int) -> NoReturn:
    """Ends the fork as an interpreter ends: it waits for threads, and runs what was registered for the end."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    _load()
    _fork_on_demand(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(0)
