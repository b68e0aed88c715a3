"""Rules and keys change under a running proxy: on SIGHUP, and as Kubernetes changes what it has mounted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.services import talk
from tests.hostile.harness import HELLO, Running, friendly, ok, running_with, upstream
from tests.hostile.raw import Wire, post
from tests.mounts import Mount
from tests.recorder import EVENTS, Peer, Request, chunk

LADDER = '[[step]]\nname = "prune_history"\n\n[[use]]\nmodel = "gpt-4"\nladder = "{}"\n'
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
LONG = {"model": "gpt-4", "messages": talk(300)}
STREAM = json.dumps({**HELLO, "stream": True}).encode()


# A proxy that looks for changes ten times as often as those of users do.
running = partial(running_with, {"proxy.config.reload.POLL_S": 0.2})


def until(true: Callable[[], object], seconds: float = 40) -> None:
    """Waits until something is so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(params=[1, 2], ids=["one_worker", "two_workers"])
def workers(request: pytest.FixtureRequest) -> int:
    """How many processes serve."""
    count: int = request.param
    return count


@pytest.fixture
def rules(tmp_path: Path) -> Mount:
    return Mount(tmp_path / "rules", **{"ladder.toml": LADDER.format("chat")})


def handles_hangup(pid: int) -> bool:
    """Whether a process has a handler for SIGHUP (Linux: the signals that it catches, as bits)."""
    caught = re.search(r"^SigCgt:\t(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) & 1 << signal.SIGHUP - 1)


def reloads(proxy: Running, result: str = "success") -> float:
    return proxy.metric("plimsoll_rules_reloads_total", result=result)


def ladder(proxy: Running) -> str:
    """The ladder that a request is planned with now."""
    before = len(proxy.lines)
    proxy.ask(LONG)
    until(lambda: any('"ladder"' in line for line in proxy.lines[before:]))
    found: str = json.loads(next(line for line in proxy.lines[before:] if '"ladder"' in line))["ladder"]
    return found


@contextlib.contextmanager
def streaming() -> Iterator[tuple[str, asyncio.Event, asyncio.AbstractEventLoop]]:
    """An upstream whose streams end when they are let go; other requests are answered at once."""
    going = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def script(request: Request, peer: Peer) -> None:
        loops.append(asyncio.get_running_loop())
        if request.method == b"GET" or b'"stream"' not in request.body:
            await friendly(request, peer)
            return
        await peer.send(EVENTS, chunk(DELTA))
        await going.wait()
        await peer.send(chunk(DONE), chunk(b""))

    with upstream(script) as there:
        with contextlib.closing(Wire(there.port)) as wire:  # so that its loop is known
            wire.send(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
            until(lambda: loops)
        yield there.url, going, loops[0]


def test_changed_rules_hold_for_new_requests_and_no_stream_ends(rules: Mount, workers: int) -> None:
    with (
        streaming() as (url, going, loop),
        running(url, workers=workers, PLIMSOLL_RULES=str(rules.folder)) as proxy,
        contextlib.ExitStack() as stack,
    ):
        wires = [stack.enter_context(Wire(proxy.port)) for _ in range(20)]
        for wire in wires:
            wire.send(post(STREAM, b"connection: close"))
        for wire in wires:
            wire.until(DELTA)
        assert ladder(proxy) == "chat"
        rules.change(**{"ladder.toml": LADDER.format("agent")})
        until(lambda: reloads(proxy) == workers)
        assert {ladder(proxy) for _ in range(4)} == {"agent"}
        loop.call_soon_threadsafe(going.set)
        assert all(wire.rest().endswith(chunk(DONE) + chunk(b"")) for wire in wires)
        assert proxy.metric("plimsoll_rules_last_reload_successful") == 1
        assert proxy.stop(60) == 0


def test_SIGHUP_loads_at_once_in_every_worker(rules: Mount, workers: int) -> None:
    with upstream() as there, running(there.url, workers=workers, PLIMSOLL_RULES=str(rules.folder)) as proxy:
        until(lambda: sum(map(handles_hangup, proxy.workers)) == workers)  # the last one may still be starting
        pids = proxy.pids
        loaded = proxy.metric("plimsoll_rules_last_reload_success_timestamp_seconds")
        for number in range(1, 4):
            proxy.process.send_signal(signal.SIGHUP)
            until(lambda number=number: reloads(proxy) == number * workers)  # type: ignore[misc]
        assert proxy.metric("plimsoll_rules_last_reload_success_timestamp_seconds") > loaded
        assert proxy.pids == pids
        assert proxy.ask(HELLO).status == 200


def test_a_broken_file_keeps_the_old_rules_and_is_named_with_row_and_reason(rules: Mount, workers: int) -> None:
    with upstream() as there, running(there.url, workers=workers, PLIMSOLL_RULES=str(rules.folder)) as proxy:
        rules.change(**{"ladder.toml": LADDER.format("chat") + '[[step]]\nname = "prune_histroy"\n'})
        until(lambda: reloads(proxy, "failure") == workers)
        (line, *_) = proxy.log("not reloaded", 20)
        problem = json.loads(line)["problem"]
        assert problem.startswith(f"{rules.folder}/ladder.toml, step 2 (prune_histroy): unknown step, must be one of")
        assert proxy.metric("plimsoll_rules_last_reload_successful") == 0
        assert ladder(proxy) == "chat"
        rules.change(**{"ladder.toml": LADDER.format("agent")})
        until(lambda: proxy.metric("plimsoll_rules_last_reload_successful") == 1 and reloads(proxy) == workers)
        assert ladder(proxy) == "agent"


def test_a_worker_that_begins_later_has_the_rules_of_now(rules: Mount) -> None:
    with upstream() as there, running(there.url, workers=2, PLIMSOLL_RULES=str(rules.folder)) as proxy:
        rules.change(**{"ladder.toml": LADDER.format("agent")})
        until(lambda: reloads(proxy) == 2)
        for victim in proxy.workers:
            os.kill(victim, signal.SIGKILL)
        until(lambda: reloads(proxy) == 4)
        assert {ladder(proxy) for _ in range(4)} == {"agent"}


def test_keys_follow_their_files_and_appear_in_no_log(tmp_path: Path, workers: int) -> None:
    keys = Mount(tmp_path / "keys", PLIMSOLL_API_KEY="sk-canary-one")
    seen: list[bytes] = []

    async def script(request: Request, peer: Peer) -> None:
        seen.extend(request.header(b"authorization"))
        await peer.send(ok())

    with upstream(script) as there, running(there.url, workers=workers, PLIMSOLL_KEYS=str(keys.folder)) as proxy:

        def sent() -> bytes:
            proxy.ask(HELLO, key=None)
            return seen[-1]

        assert sent() == b"Bearer sk-canary-one"
        keys.change(PLIMSOLL_API_KEY="sk-canary-two\n", PLIMSOLL_DRAIN="3")
        until(lambda: reloads(proxy) == workers)
        assert {sent() for _ in range(4)} == {b"Bearer sk-canary-two"}
        keys.change(PLIMSOLL_API_KEY="sk-canary three", PLIMSOLL_DRAIN="3")
        until(lambda: reloads(proxy, "failure") == workers)
        assert {sent() for _ in range(4)} == {b"Bearer sk-canary-two"}
        assert proxy.log("PLIMSOLL_API_KEY contains spaces", 20)
        assert json.loads(proxy.log("next start", 20)[0])["setting"] == "PLIMSOLL_DRAIN"
        proxy.stop()
        assert not any("canary" in line for line in proxy.lines)
