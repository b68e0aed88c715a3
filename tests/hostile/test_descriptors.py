"""N1: descriptors used up: nothing crashes, it is told, and all works again once there are some."""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import socket
from pathlib import Path
from typing import Any

from proxy.observe.recording.recording_files import PATTERN, lines
from tests.e2e.services import sentence
from tests.hostile.harness import HELLO, Running, eventually, running, upstream
from tests.redis_server import redis_server


def chat(number: int) -> dict[str, Any]:
    """A chat near the line, whose counts are worth a question to Redis."""
    said = [{"role": "user", "content": sentence(10 * number + i, 2_500)} for i in range(3)]
    return {"model": "gpt-4", "messages": said}


def status(proxy: Running, on: http.client.HTTPConnection, body: Any) -> int:
    """The status of an answer on a connection that is open; 0 where it is closed."""
    try:
        return proxy.ask(body, on=on).status
    except (OSError, http.client.HTTPException):
        return 0


def test_N1_without_descriptors_what_has_a_connection_is_answered_and_all_recovers(
    workers: int, tmp_path: Path
) -> None:
    """Connections to the upstream, files of the recording and connections to Redis are missing too: clients that are
    connected get an answer, or a 502 or 503 that says so."""
    with redis_server() as redis, upstream() as there, contextlib.ExitStack() as stack:
        settings: dict[str, Any] = {
            "PLIMSOLL_REDIS": redis.url,
            "PLIMSOLL_SECRET": "s" * 32,
            "PLIMSOLL_RECORD": str(tmp_path / "r"),
        }
        with running(there.url, workers=workers, **settings) as proxy:
            connected = [proxy.connection() for _ in range(8 * workers)]
            for one in connected:
                assert status(proxy, one, HELLO) == 200
            for pid in proxy.workers:
                most = len(list(Path(f"/proc/{pid}/fd").iterdir())) + 3
                allow(pid, most)
            held: list[socket.socket] = []

            def told() -> bool:
                held.append(stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port))))
                return len(held) >= 16 * workers and bool(proxy.log("no file descriptor is free", 0))

            eventually(told)
            for path in tmp_path.glob(f"r/{PATTERN}"):
                path.unlink()  # the next batch needs a new file
            found = [status(proxy, one, chat(number)) for number, one in enumerate(connected)]
            assert set(found) <= {200, 502, 503, 0} and 0 not in found[:1]
            assert proxy.process.poll() is None and not proxy.log("Traceback", 0)
            workers_before = proxy.workers
            for extra in held:
                extra.close()
            for pid in proxy.workers:
                allow(pid, 1024)
            eventually(lambda: recovered(proxy))
            assert proxy.workers == workers_before, "no worker has died of it"
            eventually(lambda: [proxy.ask(chat(100)), recorded(tmp_path / "r")][1])
            eventually(lambda: [proxy.ask(chat(200 + len(redis.names()))), "count" in str(redis.names())][1])
            for one in connected:
                one.close()
        assert recorded(tmp_path / "r")


def allow(pid: int, files: int) -> None:
    """Sets how many descriptors a process may have; the hard limit stays, so that it can be raised again."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, hard))


def recovered(proxy: Running) -> bool:
    try:
        return proxy.ask(HELLO).status == 200
    except (OSError, http.client.HTTPException):
        return False


def recorded(folder: Path) -> bool:
    """Whether a request is in a file of the recording, whole."""
    found = [json.loads(line) for path in folder.glob(PATTERN) for line in lines(path)]
    return len(found) > 0
