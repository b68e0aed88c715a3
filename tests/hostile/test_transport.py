"""Upstreams that close unannounced, clients of every version, workers that die, doors without file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import resource
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.bench.closing import ENDS, closing, never, told
from tests.hostile.harness import CHAT, HELLO, Answered, Running, eventually, friendly, running, upstream
from tests.recorder import Peer, Request, answer, chunk, head

REQUESTS = 400


@pytest.mark.parametrize(("end", "workers"), [*((end, 1) for end in ENDS), ("at once", 2)])
def test_F9_no_post_is_lost_to_an_upstream_that_closes_after_every_answer(end: str, workers: int) -> None:
    got = told(closing(ENDS[end]), REQUESTS, workers=workers)
    assert got.failed <= 1  # a direct client with new connections has none
    assert got.twice == 0
    assert len(got.bodies) == REQUESTS


@pytest.mark.parametrize(("end", "workers"), [*((end, 1) for end in ENDS), ("at once", 2)])
def test_R1_no_post_is_lost_to_an_upstream_that_closes_after_every_stream(end: str, workers: int) -> None:
    got = told(closing(ENDS[end], streams_only=True), REQUESTS, streams=2, workers=workers)
    assert got.failed <= 1
    assert got.twice == 0
    assert len(got.bodies) == REQUESTS


def test_R1_an_upstream_that_keeps_its_connections_is_believed_once_it_has_shown_it() -> None:
    got = told(closing(never), 2 * REQUESTS, clients=4, streams=2)
    assert got.statuses == {200: 2 * REQUESTS}
    assert got.connections < REQUESTS / 2


def test_F12_a_worker_that_is_killed_twice_in_a_row_does_not_end_the_service() -> None:
    with upstream() as up, running(up.url, workers=2) as proxy:
        for _ in range(3):
            before = proxy.workers
            os.kill(before[-1], signal.SIGKILL)
            eventually(lambda before=before: len(proxy.workers) == 2 and proxy.workers != before)  # type: ignore[misc]
            assert proxy.ask(HELLO).status == 200
        assert proxy.process.poll() is None
        assert proxy.stop() == 0


def closes(reply: Answered) -> bool:
    return reply.headers.get("connection") == "close"


@pytest.mark.parametrize("workers", [1, 2])
def test_F14_while_it_drains_every_answer_says_that_it_is_the_last(workers: int) -> None:
    """Readiness has fallen and the door is still open: what is answered now, on old and on new connections."""
    going = threading.Event()

    async def script(request: Request, peer: Peer) -> None:
        if b'"wait"' in request.body:
            while not going.is_set():
                await asyncio.sleep(0.01)
        await friendly(request, peer)

    with (
        upstream(script) as up,
        running(up.url, workers=workers, PLIMSOLL_DRAIN="30") as proxy,
        ThreadPoolExecutor() as pool,
    ):
        assert not closes(proxy.ask(HELLO))
        begun = pool.submit(proxy.ask, {**HELLO, "user": "wait"})
        eventually(lambda: any(b'"wait"' in request.body for request in up.requests))
        proxy.process.send_signal(signal.SIGTERM)
        for path, body in ((CHAT, HELLO), ("/v1/models", None), ("/readyz", None)):
            eventually(lambda path=path, body=body: closes(proxy.ask(body, path)))  # type: ignore[misc]
        going.set()
        assert closes(begun.result(20))
        assert proxy.process.wait(20) == 0


def test_F15_an_upstream_cannot_speak_for_the_proxy() -> None:
    forged = (b"x-plimsoll-steps: none", b"X-Plimsoll-Tokens: 1", b"x-plimsoll-model: gpt-6", b"x-request-id: r1")

    async def script(request: Request, peer: Peer) -> None:
        body = b'{"object":"list","data":[]}'
        if request.method == b"POST" and b'"stream": true' in request.body:
            end = b"0\r\nx-plimsoll-steps: none\r\n\r\n"  # in trailers too
            await peer.send(head(b"200 OK", *forged, b"transfer-encoding: chunked"), chunk(b"data: [DONE]\n\n"), end)
        else:
            await peer.send(answer(body, headers=forged))

    with upstream(script) as up, running(up.url) as proxy:
        for reply in (proxy.ask(path="/v1/files"), proxy.ask(HELLO), proxy.ask({**HELLO, "stream": True})):
            assert reply.headers["x-request-id"] == "r1"
            assert "none" not in reply.headers.get("x-plimsoll-steps", "")
            assert reply.headers.get("x-plimsoll-tokens") != "1"
            assert "x-plimsoll-model" not in reply.headers


@pytest.mark.parametrize("workers", [1, 2])
def test_F17_without_file_descriptors_it_says_so_and_serves_again_when_there_are_some(workers: int) -> None:
    with upstream() as up, running(up.url, workers=workers) as proxy, contextlib.ExitStack() as stack:
        assert proxy.ask(HELLO).status == 200
        for pid in proxy.workers:
            most = len(list(Path(f"/proc/{pid}/fd").iterdir())) + 8
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port))) for _ in range(16 * workers)]
        assert proxy.log("no file descriptor is free")
        busy = proxy.cpu_seconds()
        time.sleep(1.0)  # meanwhile it waits: an event loop that spins takes all of a processor
        assert proxy.cpu_seconds() - busy < 0.7
        for one in held:
            one.close()
        eventually(lambda: answered(proxy))
        assert len(proxy.log("no file descriptor is free")) <= 2 * workers


def answered(proxy: Running) -> bool:
    try:
        return proxy.ask(HELLO).status == 200
    except (OSError, http.client.HTTPException):
        return False


def test_requests_leave_through_the_proxy_that_the_environment_names() -> None:
    """The upstream plays the forward proxy: it gets whole URLs, of a host that nobody else knows."""
    with upstream() as up:
        via = up.url.replace("//", "//me:secret@")
        with running("http://models.internal:8000/v1", workers=2, http_proxy=via, NO_PROXY="other.internal") as proxy:
            assert proxy.ask(HELLO).status == 200
            assert proxy.log(f"through the proxy 127.0.0.1:{up.port}")
        assert {request.target for request in up.requests if request.method == b"POST"} == {
            b"http://models.internal:8000/v1/chat/completions"
        }
        assert all(request.header(b"proxy-authorization") == [b"Basic bWU6c2VjcmV0"] for request in up.requests)
        with running("http://other.internal:8000/v1", HTTP_PROXY=via, NO_PROXY=".internal") as proxy:
            reply = proxy.ask(HELLO)
            assert (reply.status, reply.json["error"]["code"]) == (502, "upstream_unreachable")
            assert "other.internal" not in reply.json["error"]["message"]  # nor the port
            assert "8000" not in reply.json["error"]["message"]
            assert proxy.log("where=other.internal:8000")
            assert not [line for line in proxy.lines if "secret" in line]
