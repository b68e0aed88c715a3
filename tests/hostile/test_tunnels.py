"""N4: tunnels that are huge, endless, half open or idle: bounded, and gone when either side is."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest

from tests.hostile.frames import CLOSE, TEXT, Client, frame, handshake, switching
from tests.hostile.harness import HELLO, Running, eventually, friendly, running, running_with, upstream
from tests.http.test_tunnel import joined
from tests.recorder import Peer, Recorder, Request
from tests.serving import run

MIB = 1 << 20
CLAIMED = bytes((0x82, 0xFF)) + b"\x7f" + b"\xff" * 7 + b"abcd"  # a frame of 2^63 bytes, of which none comes


async def hostile(request: Request, peer: Peer) -> None:
    """A server that does as its target says."""
    target = request.target
    if request.header(b"upgrade") != [b"websocket"]:
        await friendly(request, peer)
        return
    await peer.send(switching(request))
    if b"deaf" in target:  # it reads nothing, and answers no close
        await peer.writer.wait_closed()
        peer.ended = True
    elif b"flood" in target:  # fragments without an end
        with contextlib.suppress(ConnectionError):
            while True:
                await peer.send(frame(b"f" * 65_000, 0, False))
    elif b"vanish" in target:
        await peer.reader.read(1)
        peer.reset()
    else:  # it swallows everything, and answers nothing
        await peer.gone()


@pytest.fixture(scope="module")
def there() -> Iterator[Recorder]:
    with upstream(hostile) as recorder:
        yield recorder


@pytest.fixture(scope="module")
def proxy(there: Recorder, workers: int) -> Iterator[Running]:
    hasty = {"proxy.http.tunnel.Tunnel.closing_seconds": 2.0, "proxy.http.tunnel.Tunnel.stalled_seconds": 0.5}
    with running_with(hasty, there.url, workers=workers, admin=True) as made:
        yield made


def opened(proxy: Running, target: str) -> Client:
    client = Client(proxy.port, handshake(f"/v1/realtime/{target}"))
    client.opened()
    return client


def none_is_left(proxy: Running, there: Recorder) -> bool:
    """Whether no tunnel is open any more, and the upstream's connections of tunnels are closed."""
    return proxy.metric("plimsoll_requests_in_flight") == 0


def test_N4_a_frame_of_any_size_and_fragments_without_an_end_take_no_memory(proxy: Running, there: Recorder) -> None:
    assert proxy.ask(HELLO).status == 200
    before = proxy.settled_mb()
    with opened(proxy, "swallow") as client:
        client.socket.sendall(CLAIMED)
        for _ in range(64):
            client.socket.sendall(b"x" * MIB)
    with opened(proxy, "swallow") as client:
        client.send(b"begin", TEXT, fin=False)
        for _ in range(2_000):
            client.socket.sendall(frame(b"more" * 2_000, 0, False, b"abcd"))
    with opened(proxy, "flood") as client:
        for _ in range(500):
            found = client.receive()
            assert found is not None and not found.fin
    assert proxy.memory_mb(peak=True) - before < 64
    eventually(lambda: none_is_left(proxy, there))
    assert proxy.ask(HELLO).status == 200


def test_N4_an_upstream_that_reads_nothing_stops_the_client_and_not_the_proxy(proxy: Running, there: Recorder) -> None:
    """And a client that leaves then is missed, although nothing is read from it."""
    before = proxy.settled_mb()
    clients = [opened(proxy, "deaf") for _ in range(8)]
    for client in clients:
        client.socket.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            for _ in range(64):
                client.socket.sendall(b"w" * MIB)
            raise AssertionError("64 MB went into buffers")
    assert proxy.ask(HELLO).status == 200
    assert proxy.memory_mb(peak=True) - before < 64
    for client in clients:
        client.reset()
    eventually(lambda: none_is_left(proxy, there))  # after stalled_seconds and closing_seconds


@pytest.mark.parametrize("leaves", ["reset", "close"])
def test_N4_a_client_that_leaves_while_nothing_is_read_from_it_is_missed(leaves: str) -> None:
    async def check() -> None:
        async with joined(closing=0.1) as both:
            both.tunnel.stalled_seconds = 0.05
            writer = both.client[1]
            both.upstream[0]._transport.pause_reading()  # type: ignore[attr-defined]
            while not both.tunnel.upstream.write_paused:
                writer.write(b"x" * MIB)
                await asyncio.sleep(0.001)
            sock = writer.get_extra_info("socket")
            if leaves == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            await asyncio.wait_for(both.tunnel.wait_closed(), 30)

    run(check())


@pytest.mark.parametrize("leaves", ["client", "upstream"])
def test_N4_who_vanishes_takes_the_other_side_with_it(proxy: Running, there: Recorder, leaves: str) -> None:
    clients = [opened(proxy, "vanish" if leaves == "upstream" else "swallow") for _ in range(20)]
    eventually(lambda: proxy.metric("plimsoll_requests_in_flight") == 20)
    for client in clients:
        if leaves == "client":
            client.reset()
        else:
            client.socket.sendall(b"x")
            assert client.rest() == b""
            client.__exit__(None, None, None)
    eventually(lambda: none_is_left(proxy, there))


def test_N4_a_close_that_nobody_answers_ends_with_either_side_or_the_time_for_it(
    proxy: Running, there: Recorder
) -> None:
    """What was said of a close is nothing to a tunnel: it ends when a connection does. After half of one has ended,
    what does not move for 30 seconds is closed."""
    with opened(proxy, "swallow") as client:
        client.send(b"\x03\xe8", CLOSE)
        client.finish()
        client.socket.settimeout(60)
        assert client.rest() == b""
    eventually(lambda: none_is_left(proxy, there))


def test_N4_many_idle_tunnels_hold_up_nobody_and_leave_nothing(proxy: Running, there: Recorder, workers: int) -> None:
    assert proxy.ask(HELLO).status == 200
    before, files = proxy.settled_mb(), proxy.files()
    clients: list[Client] = []
    for _ in range(300):
        clients.append(opened(proxy, "swallow"))
    eventually(lambda: proxy.metric("plimsoll_requests_in_flight") == 300)
    assert proxy.ask(HELLO).status == 200
    assert proxy.memory_mb(peak=True) - before < 64
    for number, client in enumerate(clients):
        client.reset() if number % 2 else client.__exit__(None, None, None)
    eventually(lambda: none_is_left(proxy, there))
    eventually(lambda: proxy.files() <= files + 8 * workers)


def test_N4_tunnels_count_among_the_connections_of_an_address(there: Recorder, workers: int) -> None:
    most = {"PLIMSOLL_MAX_PER_ADDRESS": "10"}
    with running(there.url, workers=workers, admin=True, **most) as proxy, contextlib.ExitStack() as open_:
        for _ in range(10 * workers + 30):
            one = open_.enter_context(socket.create_connection(("127.0.0.1", proxy.port), 60))
            with contextlib.suppress(OSError):
                one.sendall(handshake("/v1/realtime/swallow"))
        eventually(lambda: proxy.log("an address has too many connections", 0))
        assert proxy.metric("plimsoll_requests_in_flight") <= 10 * workers
        open_.close()
        eventually(lambda: accepted(proxy))


def accepted(proxy: Running) -> bool:
    with contextlib.suppress(OSError, EOFError, IndexError, ValueError, AssertionError):
        opened(proxy, "swallow").__exit__(None, None, None)
        return True
    return False
