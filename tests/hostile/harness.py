"""The proxy as a user starts it, for attacks: real processes and sockets; its memory and processor time are seen."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests import warm
from tests.recorder import Peer, Recorder, Request, Script, answer, recording

ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
}
HELLO = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"
ROOT = Path(__file__).parents[2]  # the checkout whose proxy runs
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer as a client sees it; names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


@dataclass(slots=True)
class Running:
    """A running proxy: its ports, and what the system says of its processes."""

    process: subprocess.Popen[str] | warm.Started
    port: int = 0
    admin_port: int = 0
    lines: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None

    @property
    def pids(self) -> list[int]:
        """The process that was started and all that came of it."""
        found = [self.process.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    found += [int(child) for child in (task / "children").read_text().split()]
        return found

    @property
    def workers(self) -> list[int]:
        """The processes that serve."""
        return self.pids[1:] or self.pids

    def memory_mb(self, peak: bool = False) -> float:
        """Resident memory of all its processes in MB, now or at its peak (of each; shared pages count in each)."""
        key = "VmHWM" if peak else "VmRSS"
        total = 0
        for pid in self.pids:
            with contextlib.suppress(OSError):
                found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
                total += int(found[1]) if found else 0
        return total / 1024

    def forget_peak(self) -> None:
        """From now on the peak is counted anew."""
        for pid in self.pids:
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def settled_mb(self) -> float:
        """Resident memory once nothing changes it any more, as loading does after a start; its peak is counted anew."""
        seen = [self.memory_mb()]
        while len(seen) < 100 and not (len(seen) > 5 and max(seen[-5:]) - min(seen[-5:]) < 0.5):
            time.sleep(0.1)
            seen.append(self.memory_mb())
        self.forget_peak()
        return seen[-1]

    def cpu_seconds(self) -> float:
        """Processor time of all its processes so far."""
        total = 0
        for pid in self.pids:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
        return total / TICKS

    @contextlib.contextmanager
    def working(self, most: float) -> Iterator[None]:
        """What is done inside takes less processor time of all its processes than so many seconds."""
        before = self.cpu_seconds()
        yield
        took = self.cpu_seconds() - before
        assert took < most, f"{took:.2f} s of {most}"

    def files(self) -> int:
        """Open file descriptors of all its processes."""
        total = 0
        for pid in self.pids:
            with contextlib.suppress(OSError):
                total += len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return total

    def ask(
        self,
        body: Any = None,
        path: str = CHAT,
        method: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: float = 60,
        admin: bool = False,
        key: str | None = "sk-test",
        on: http.client.HTTPConnection | None = None,
    ) -> Answered:
        """One request on a connection of its own, or on an open one; a body that is no bytes is sent as JSON; None is
        no key."""
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = {} if raw is None else {"content-type": "application/json"}
        connection = on or self.connection(timeout, admin)
        try:
            connection.request(
                method or ("GET" if raw is None else "POST"),
                path,
                raw,
                {**given, **({} if key is None else {"authorization": f"Bearer {key}"}), **(headers or {})},
            )
            got = connection.getresponse()
            return Answered(got.status, {n.lower(): v for n, v in got.getheaders()}, got.read())
        finally:
            if connection is not on:
                connection.close()

    def connection(self, timeout: float = 60, admin: bool = False) -> http.client.HTTPConnection:
        """A connection to the proxy: all requests on it meet the same worker."""
        port = self.admin_port if admin else self.port
        if any('"at":"https://' in line for line in self.lines):
            unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
            return http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=unverified)
        return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def worker_of(self, connection: http.client.HTTPConnection) -> int:
        """The process that has accepted an open connection, by its socket; 0 as long as none has."""
        assert connection.sock is not None
        ends = f":{self.port:04X}", f":{connection.sock.getsockname()[1]:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        sockets = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(ends[0]) and row[2].endswith(ends[1])}
        for pid in self.workers:
            with contextlib.suppress(OSError):
                for file in Path(f"/proc/{pid}/fd").iterdir():
                    with contextlib.suppress(OSError):
                        if os.readlink(file) in sockets:
                            return pid
        return 0

    @contextlib.contextmanager
    def each_worker(self) -> Iterator[list[http.client.HTTPConnection]]:
        """A connection to each worker: which of them accepts one is chance, and one that waits for a processor accepts
        none."""
        found: dict[int, http.client.HTTPConnection] = {}
        with contextlib.ExitStack() as stack:

            def met() -> bool:
                one = self.connection()
                stack.callback(one.close)
                one.connect()
                eventually(lambda: self.worker_of(one))
                found.setdefault(self.worker_of(one), one)
                return len(found) == len(self.workers)

            eventually(met)
            yield list(found.values())

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        text = self.ask(path="/metrics", admin=bool(self.admin_port)).body.decode()
        total = 0.0
        for line in text.splitlines():
            head, _, value = line.rpartition(" ")
            bare, _, rest = head.partition("{")
            if bare == name and all(f'{key}="{wanted}"' in rest for key, wanted in labels.items()):
                total += float(value)
        return total

    def log(self, text: str = "", seconds: float = 30.0) -> list[str]:
        """The lines of its log that hold a text; waits until there is one."""
        deadline = time.monotonic() + seconds
        while not (found := [line for line in list(self.lines) if text in line]) and time.monotonic() < deadline:
            time.sleep(0.01)
        return found

    def stop(self, seconds: float = 60.0) -> int:
        """Sends SIGTERM and waits for the end, and until `lines` has all that it said; gives the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(seconds)
        if self.reader is not None:
            self.reader.join(seconds)
        return code


Proxying = AbstractContextManager[Running]
Start = Callable[[Sequence[str], Mapping[str, str]], subprocess.Popen[str] | warm.Started]


def running(upstream: str, *, workers: int = 1, admin: bool = False, **environment: str) -> Proxying:
    """`plimsoll serve` before the upstream at a URL, as processes of their own; `environment` is its own. It begins
    where the proxy is loaded (`tests.warm`)."""
    return _running(warm.start, upstream, workers, admin, environment)


def running_anew(upstream: str, *, workers: int = 1, admin: bool = False, **environment: str) -> Proxying:
    """As `running`, with an interpreter of its own, as a user starts it: eight times the processor time. For tests
    that measure memory closely: a fork has not yet touched the pages of libraries that it shares."""
    return _running(_start_anew, upstream, workers, admin, environment)


def running_with(
    constants: Mapping[str, float], upstream: str, *, workers: int = 1, admin: bool = False, **environment: str
) -> Proxying:
    """As `running`, with other constants: what the product waits for half a minute is then waited for a second."""
    return _running(partial(warm.start, constants=constants), upstream, workers, admin, environment)


@contextlib.contextmanager
def _running(
    start: Start, upstream: str, workers: int, admin: bool, environment: Mapping[str, str]
) -> Iterator[Running]:
    settings = {
        "PLIMSOLL_UPSTREAM": upstream,
        "PLIMSOLL_PORT": "0",
        "PLIMSOLL_WORKERS": str(workers),
        "PLIMSOLL_LOG": "json",
        "PLIMSOLL_DRAIN": "2",
        **({"PLIMSOLL_ADMIN_PORT": "0"} if admin else {}),
        **environment,
    }
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # for the files that a killed process leaves
    process = start(["serve"], {**kept, "TMPDIR": folder.name, **settings})
    made = Running(process)
    made.reader = reader = threading.Thread(target=_read, args=(made,), daemon=True)
    reader.start()
    try:
        _until_ready(made, admin)
        yield made
    finally:
        for pid in made.pids if process.poll() is None else ():  # only tests of a stop need its delays
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        folder.cleanup()
        reader.join(5)
        assert process.stdout is not None
        process.stdout.close()


def _start_anew(arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "proxy.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(environment),
        cwd=ROOT,
    )


def _read(made: Running) -> None:
    assert made.process.stdout is not None
    with contextlib.suppress(ValueError):
        for line in made.process.stdout:
            made.lines.append(line.rstrip("\n"))


def _until_ready(made: Running, admin: bool) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and made.process.poll() is None:
        ports = [int(found[1]) for line in list(made.lines) if (found := re.search(r"https?://[^/ ]*:(\d+)/", line))]
        if len(ports) > admin:
            made.port, made.admin_port = ports[0], ports[1] if admin else 0
            with contextlib.suppress(OSError, http.client.HTTPException):
                if made.ask(path="/readyz", admin=admin, timeout=5).status == 200:
                    return
        time.sleep(0.02)
    raise TimeoutError("the proxy did not become ready:\n" + "\n".join(made.lines[-20:]))


def ok(usage: int | None = None, text: str = "ok", model: str = "gpt-4o") -> bytes:
    """A whole chat answer; `usage` is the prompt that it reports."""
    message = {"role": "assistant", "content": text}
    told = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    counts = (
        {} if usage is None else {"usage": {"prompt_tokens": usage, "completion_tokens": 1, "total_tokens": usage + 1}}
    )
    return answer(json.dumps({**ANSWER, "model": model, **told, **counts}).encode())


def refused(message: str, status: bytes = b"400 Bad Request", code: str | None = "context_length_exceeded") -> bytes:
    """An error in OpenAI's shape."""
    error = {"message": message, "type": "invalid_request_error", "param": "messages", "code": code}
    return answer(json.dumps({"error": error}).encode(), status)


async def friendly(request: Request, peer: Peer) -> None:
    """The script of an upstream that answers every chat, and lists one model."""
    if request.method == b"GET":
        await peer.send(answer(b'{"object":"list","data":[{"id":"gpt-4o","object":"model"}]}'))
    else:
        await peer.send(ok())


@contextlib.contextmanager
def upstream(script: Script = friendly, streaming: bool = False, port: int = 0) -> Iterator[Recorder]:
    """A scripted upstream in a thread with an event loop of its own."""
    loop = asyncio.new_event_loop()
    opened: list[Recorder] = []
    ready, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with recording(script, streaming, port=port) as made:
            opened.append(made)
            ready.set()
            await over.wait()

    failed: list[BaseException] = []

    def work() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:  # told where it belongs, not where pytest looks at threads next
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    if not ready.wait(20):
        raise TimeoutError("the upstream did not start")
    try:
        yield opened[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(20)
        loop.close()
    if failed:
        raise failed[0]


def eventually(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits until something is so. Raises TimeoutError when it does not become so in time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)
