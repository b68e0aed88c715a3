"""Upstreams that close unannounced, clients of every version, workers that die, doors without file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.bench.closing import ENDS, closing, never, told
from tests.hostile.harness import CHAT, HELLO, Answered, Running, eventually, friendly, running, upstream
from tests.hostile.raw import Wire, tried
from tests.recorder import Peer, Recorder, Request, answer, chunk, head

REQUESTS = 400
# POSTs of all that may fail while the upstream shows for the first time that it closes kept connections: one at a time
# tries that, after .1, .2 and .4 s.
AT_FIRST = 3


@pytest.mark.parametrize("end", ENDS)
def test_F9_no_post_is_lost_to_an_upstream_that_closes_after_every_answer(end: str, workers: int) -> None:
    got = told(closing(ENDS[end]), REQUESTS, workers=workers)
    assert got.failed <= AT_FIRST  # a direct client with new connections has none
    assert got.twice == 0
    assert len(got.bodies) == REQUESTS


@pytest.mark.parametrize("end", ENDS)
def test_R1_no_post_is_lost_to_an_upstream_that_closes_after_every_stream(end: str, workers: int) -> None:
    got = told(closing(ENDS[end], streams_only=True), REQUESTS, streams=2, workers=workers)
    assert got.failed <= AT_FIRST
    assert got.twice == 0
    assert len(got.bodies) == REQUESTS


def test_R1_an_upstream_that_keeps_its_connections_is_believed_once_it_has_shown_it() -> None:
    got = told(closing(never), 2 * REQUESTS, clients=4, streams=2)
    assert got.statuses == {200: 2 * REQUESTS}
    assert got.connections < REQUESTS / 2


def test_F12_of_two_workers_one_may_be_killed_again_and_again() -> None:
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


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_F9_an_upstream_that_resets_whoever_connects_harms_no_other_connection(scheme: str) -> None:
    """A file descriptor that is closed twice is another connection's the second time."""
    door = socket.create_server(("127.0.0.1", 0), backlog=500)

    def reset() -> None:
        with contextlib.suppress(OSError):
            while True:
                one = door.accept()[0]
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.close()

    thread = threading.Thread(target=reset, daemon=True)
    thread.start()
    with running(f"{scheme}://127.0.0.1:{door.getsockname()[1]}/v1") as proxy, ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda _: proxy.ask(HELLO).status, range(1_000)))
        assert got == [502] * 1_000
        files = proxy.files()
        assert [proxy.ask(HELLO).status for _ in range(50)] == [502] * 50
        eventually(lambda: proxy.files() <= files)
    door.shutdown(socket.SHUT_RDWR)
    door.close()
    thread.join(10)


def test_F14_while_it_drains_every_answer_says_that_it_is_the_last(workers: int) -> None:
    """Readiness has fallen and the door is still open: what is answered now, on old and on new connections. It is open
    for a second; when that was too short for this process to ask all, it begins anew."""
    eventually(lambda: drains(workers), 120)


def drains(workers: int) -> bool:
    """Whether all was said before the door closed."""
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
        try:
            for path, body in ((CHAT, HELLO), ("/v1/models", None), ("/readyz", None)):
                eventually(
                    lambda path=path, body=body: all(closes(proxy.ask(body, path)) for _ in range(10 * workers))  # type: ignore[misc]
                )
            in_time = True
        except ConnectionError:
            in_time = False
        try:
            eventually(
                lambda: is_shut(proxy)
            )  # so each worker has heard of it, also the one that has the first request
        finally:
            going.set()
        assert closes(begun.result(20))
        assert proxy.process.wait(20) == 0
        return in_time


def is_shut(proxy: Running) -> bool:
    """Whether new connections are refused: no worker listens any more."""
    try:
        with contextlib.closing(proxy.connection()) as one:
            one.connect()
    except ConnectionError:
        return True
    return False


def test_F15_an_upstream_cannot_speak_for_the_proxy(workers: int) -> None:
    forged = (b"x-plimsoll-steps: none", b"X-Plimsoll-Tokens: 1", b"x-plimsoll-model: gpt-6", b"x-request-id: r1")

    async def script(request: Request, peer: Peer) -> None:
        body = b'{"object":"list","data":[]}'
        if request.method == b"POST" and b'"stream": true' in request.body:
            end = b"0\r\nx-plimsoll-steps: none\r\n\r\n"  # in trailers too
            await peer.send(head(b"200 OK", *forged, b"transfer-encoding: chunked"), chunk(b"data: [DONE]\n\n"), end)
        else:
            await peer.send(answer(body, headers=forged))

    with upstream(script) as up, running(up.url, workers=workers) as proxy:
        for reply in (proxy.ask(path="/v1/files"), proxy.ask(HELLO), proxy.ask({**HELLO, "stream": True})):
            assert reply.headers["x-request-id"] == "r1"
            assert "none" not in reply.headers.get("x-plimsoll-steps", "")
            assert reply.headers.get("x-plimsoll-tokens") != "1"
            assert "x-plimsoll-model" not in reply.headers


def test_F17_without_file_descriptors_it_says_so_and_serves_again_when_there_are_some(workers: int) -> None:
    with upstream() as up, running(up.url, workers=workers) as proxy, contextlib.ExitStack() as stack:
        assert proxy.ask(HELLO).status == 200
        for pid in proxy.workers:
            most = len(list(Path(f"/proc/{pid}/fd").iterdir())) + 8
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
        held: list[socket.socket] = []

        def told() -> bool:
            """Whether it says so, with another connection: some are dropped, maybe while others are closed."""
            held.append(stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port))))
            return len(held) >= 16 * workers and bool(proxy.log("no file descriptor is free", 0))

        eventually(told, 30)
        with proxy.working(0.7):
            time.sleep(1.0)  # meanwhile it waits: an event loop that spins takes all of a processor
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
            assert proxy.log(f'"through":"127.0.0.1:{up.port}"')
        assert {request.target for request in up.requests if request.method == b"POST"} == {
            b"http://models.internal:8000/v1/chat/completions"
        }
        assert all(request.header(b"proxy-authorization") == [b"Basic bWU6c2VjcmV0"] for request in up.requests)
        with running("http://other.internal:8000/v1", HTTP_PROXY=via, NO_PROXY=".internal") as proxy:
            reply = proxy.ask(HELLO)
            assert (reply.status, reply.json["error"]["code"]) == (502, "upstream_unreachable")
            assert "other.internal" not in reply.json["error"]["message"]  # nor the port
            assert "8000" not in reply.json["error"]["message"]
            assert proxy.log('"where":"other.internal:8000"')
            assert not [line for line in proxy.lines if "secret" in line]


@pytest.fixture(scope="module")
def there() -> Iterator[Recorder]:
    with upstream() as up:
        yield up


@pytest.fixture(scope="module")
def plain(there: Recorder) -> Iterator[Running]:
    with running(there.url, admin=True, PLIMSOLL_HOSTS="a,a_b.c-d,other") as proxy:
        yield proxy


def refusal(proxy: Running, raw: bytes) -> tuple[int, str]:
    """Status and code of the answer to bytes, in OpenAI's shape; the connection is closed behind it."""
    with contextlib.closing(Wire(proxy.port).socket) as sock:
        sock.sendall(raw)
        got = b""
        while data := sock.recv(65536):
            got += data
    top, _, body = got.partition(b"\r\n\r\n")
    assert b"connection: close" in top
    return int(top.split(b" ")[1]), json.loads(body)["error"]["code"]


@pytest.mark.parametrize(
    "raw",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
        b"GET /v1/models HTTP/2.0\r\nhost: a\r\n\r\n",
        b"GET /v1/models HTTP/3.0\r\nhost: a\r\n\r\n",
        b"GET /v1/models HTTP/0.9\r\nhost: a\r\n\r\n",
        b"GET /v1/models\r\n\r\n",
    ],
)
def test_another_major_version_of_http_is_told_which_ones_are_spoken(
    raw: bytes, there: Recorder, plain: Running
) -> None:
    before = len(there.requests)
    assert refusal(plain, raw) == (505, "http_version_not_supported")
    assert len(there.requests) == before


@pytest.mark.parametrize("version", [b"1.0", b"1.1", b"1.2", b"1.9"])
def test_every_minor_version_is_served(version: bytes, plain: Running) -> None:
    got = tried(plain.port, b"GET /v1/models HTTP/%b\r\nhost: localhost\r\nconnection: close\r\n\r\n" % version)
    assert got is not None and got.status == 200


@pytest.mark.parametrize(
    "hosts",
    [b"", b"host: a\r\nhost: a\r\n", b"host: a/../?x#\r\n", b"host: a b\r\n", b"host: @evil\r\n", b"host: a:b\r\n"],
)
def test_a_request_has_one_host_that_is_one(hosts: bytes, there: Recorder, plain: Running) -> None:
    before = len(there.requests)
    assert refusal(plain, b"GET /v1/models HTTP/1.1\r\n" + hosts + b"\r\n") == (400, "invalid_host")
    assert len(there.requests) == before


@pytest.mark.parametrize("host", [b"", b"a", b"a_b.c-d:8080", b"127.0.0.1", b"[::1]:80", b"[fe80::1%25eth0]", b"a:"])
def test_every_host_is_served_alike(host: bytes, plain: Running) -> None:
    got = tried(plain.port, b"GET /v1/models HTTP/1.1\r\nhost:  %b \r\nconnection: close\r\n\r\n" % host)
    assert got is not None and got.status == 200


def test_a_client_of_http_1_0_needs_no_host(plain: Running) -> None:
    got = tried(plain.port, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert got is not None and got.status in (200, 404)
    assert refusal(plain, b"GET / HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n") == (400, "invalid_host")


def test_the_absolute_form_goes_by_its_path_alone(there: Recorder, plain: Running) -> None:
    body = json.dumps(HELLO).encode()
    raw = b"POST http://evil.example:1/v1/chat/completions HTTP/1.1\r\nhost: other\r\ncontent-length: %d\r\n\r\n"
    got = tried(plain.port, raw % len(body) + body)
    assert got is not None and got.status == 200
    assert "x-plimsoll-tokens" in got.headers  # it was measured as any other
    assert there.requests[-1].target == b"/v1/chat/completions"
    assert there.requests[-1].header(b"host") == [b"127.0.0.1:%d" % there.port]
    got = tried(plain.port, b"GET http://evil.example HTTP/1.1\r\nhost: other\r\n\r\n")
    assert got is not None and there.requests[-1].target == b"/v1/"
    assert refusal(plain, b"GET ftp://evil.example/v1/models HTTP/1.1\r\nhost: a\r\n\r\n") == (400, "bad_request")


def test_options_of_the_server_as_a_whole_are_answered_here(there: Recorder, plain: Running) -> None:
    before = len(there.requests)
    for port in (plain.port, plain.admin_port):
        got = tried(port, b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert got is not None and (got.status, got.body) == (200, b"")
        assert "POST" in got.headers["allow"]
    got = tried(plain.port, b"GET * HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert got is not None and got.status == 400
    assert len(there.requests) == before
    got = tried(plain.port, b"OPTIONS /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert got is not None and there.requests[-1].method == b"OPTIONS"


def test_connect_makes_no_tunnel(there: Recorder, plain: Running) -> None:
    before = there.connections
    assert refusal(plain, b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nhost: localhost\r\n\r\n" % there.port) == (
        400,
        "bad_request",
    )
    assert there.connections == before
