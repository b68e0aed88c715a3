"""Two connections joined: every byte, back-pressure, and all the ways in which they end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast

from proxy.http.tunnel import Detached, Tunnel
from tests.serving import run


@dataclass(slots=True)
class Joined:
    """A tunnel and what stands at its two ends."""

    tunnel: Tunnel
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    lost: list[asyncio.Protocol]


class Before(asyncio.Protocol):
    """The protocol that serves a connection until it is taken over."""

    def __init__(self, lost: list[asyncio.Protocol]) -> None:
        self.lost = lost
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(self)


@contextlib.asynccontextmanager
async def joined(
    trailing_data: tuple[bytes, bytes] = (b"", b""), write_paused: bool = False, closing: float = 30.0
) -> AsyncIterator[Joined]:
    loop = asyncio.get_running_loop()
    made: list[Before] = []
    lost: list[asyncio.Protocol] = []

    def before() -> Before:
        made.append(Before(lost))
        return made[-1]

    server = await loop.create_server(before, "127.0.0.1", 0)
    ends = []
    for count in (1, 2):
        ends.append(await asyncio.open_connection(*server.sockets[0].getsockname()))
        while len(made) < count or made[-1].transport is None:
            await asyncio.sleep(0.001)
    transports = [cast(asyncio.Transport, protocol.transport) for protocol in made]
    client = Detached(transports[0], made[0], trailing_data[0], write_paused)
    tunnel = Tunnel(client, Detached(transports[1], made[1], trailing_data[1]))
    tunnel.closing_seconds = closing
    try:
        yield Joined(tunnel, ends[0], ends[1], lost)
    finally:
        tunnel.close()
        for _, writer in ends:
            writer.close()
        server.close()
        await asyncio.wait_for(tunnel.wait_closed(), 20)


def test_what_came_before_and_what_comes_after_goes_over_in_order() -> None:
    async def check() -> None:
        async with joined((b"first ", b"hello ")) as both:
            both.client[1].write(b"second")
            both.upstream[1].write(b"there")
            assert await both.upstream[0].readexactly(12) == b"first second"
            assert await both.client[0].readexactly(11) == b"hello there"
            assert (both.tunnel.client.received, both.tunnel.upstream.received) == (12, 11)

    run(check())


def test_half_a_close_goes_over_and_the_other_half_ends_it() -> None:
    async def check() -> None:
        async with joined() as both:
            both.client[1].write(b"the last")
            both.client[1].write_eof()
            assert await both.upstream[0].read() == b"the last"
            both.upstream[1].write(b"answer")
            both.upstream[1].write_eof()
            assert await both.client[0].read() == b"answer"
            await asyncio.wait_for(both.tunnel.wait_closed(), 20)
            assert len(both.lost) == 2  # whoever served them before is told
            assert both.tunnel.client.error is None is both.tunnel.upstream.error

    run(check())


def test_an_end_that_is_reset_closes_the_other_and_is_named() -> None:
    async def check() -> None:
        async with joined() as both:
            sock = both.upstream[1].get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            both.upstream[1].transport.abort()
            assert await both.client[0].read() == b""
            both.client[1].close()
            await asyncio.wait_for(both.tunnel.wait_closed(), 20)
            assert isinstance(both.tunnel.upstream.error, ConnectionError)
            assert both.tunnel.client.error is None

    run(check())


def test_a_half_closed_tunnel_in_which_nothing_moves_is_closed() -> None:
    async def check() -> None:
        async with joined(closing=0.05) as both:
            both.client[1].write_eof()  # and the upstream never says anything
            await asyncio.wait_for(both.tunnel.wait_closed(), 20)

    run(check())


def test_a_full_client_is_not_written_to_until_it_takes_bytes() -> None:
    async def check() -> None:
        async with joined(write_paused=True) as both:
            both.upstream[1].write(b"waits")
            both.client[1].write(b"goes")
            assert await both.upstream[0].readexactly(4) == b"goes"
            assert both.tunnel.upstream.received == 0
            both.tunnel.client.resume_writing()
            assert await both.client[0].readexactly(5) == b"waits"

    run(check())


def test_a_writer_waits_for_its_reader_and_nothing_is_lost() -> None:
    async def check() -> None:
        async with joined() as both:
            much = bytes(range(256)) * 40_000
            both.client[1].write(much)
            await asyncio.sleep(0.1)
            assert both.tunnel.client.received < len(much)
            assert await both.upstream[0].readexactly(len(much)) == much

    run(check())
