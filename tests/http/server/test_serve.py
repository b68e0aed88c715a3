"""The server's start and stop: what it adds to an answer (nothing), its second port, and how it drains."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pytest

from proxy.apis import error_body
from proxy.http.receiving import Receive, Scope
from proxy.http.relay import Send
from proxy.http.server.serve import Config, Server
from tests.recorder import chunk
from tests.serving import ask, dialling, eventually, get, run, serving


class Services:
    """An application that streams until it is told to stop, and says whether the server drains."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.cancelled = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            try:
                await self.stop.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        draining = b"%d" % scope["state"].get("draining", False)
        await send({"type": "http.response.body", "body": draining})


@contextlib.asynccontextmanager
async def started(
    services: Services, settle: float = 0.0, drain: float = 5.0, admin: bool = False
) -> AsyncIterator[Server]:
    """A server with its whole life; it must have been told to stop before the end."""
    beside = Config(services, "127.0.0.1", 0, error_body) if admin else None
    server = Server(Config(services, "127.0.0.1", 0, error_body, drain), beside, settle)
    task = asyncio.create_task(server.serve())
    await eventually(lambda: server.started and len(server.ports) == 1 + admin, 30)
    yield server
    assert server.should_exit
    await asyncio.wait_for(task, 30)


async def is_open(port: int) -> bool:
    try:
        async with dialling(port):
            return True
    except ConnectionError:
        return False


def test_nothing_is_added_to_an_answer() -> None:
    async def check() -> None:
        async with serving(Services()) as server:
            reply = await ask(server.ports[0], get(b"/"))
            assert reply.headers == [(b"transfer-encoding", b"chunked")]

    run(check())


def test_sigterm_is_told_then_connections_are_refused_then_streams_end() -> None:
    async def check() -> None:
        services = Services()
        async with started(services, settle=1.5) as server:
            (port,) = server.ports
            async with dialling(port) as client:
                await client.send(get(b"/stream"))
                await client.reader.readuntil(chunk(b"begun"))
                assert (await ask(port, get(b"/"))).body == b"0"
                server.handle_exit(signal.SIGTERM, None)
                await eventually(lambda: server.lifespan.state.get("draining"))
                assert (await ask(port, get(b"/"))).body == b"1", "readiness falls before the door closes"
                async with asyncio.timeout(30):
                    while await is_open(port):
                        await asyncio.sleep(0.05)
                services.stop.set()
                assert await client.reader.readuntil(b"0\r\n\r\n") == chunk(b"0") + b"0\r\n\r\n"
        assert services.cancelled == 0

    run(check())


def test_while_it_drains_every_answer_is_the_last_on_its_connection() -> None:
    async def check() -> None:
        services = Services()
        async with started(services, settle=2, admin=True) as server:
            port, beside = server.ports
            async with dialling(port) as used, dialling(port) as streaming, dialling(beside) as watching:
                for client in (used, watching):
                    await client.send(get(b"/"))
                    assert (await client.reply()).header(b"connection") == []
                await streaming.send(get(b"/stream"))
                await streaming.reader.readuntil(chunk(b"begun"))
                server.handle_exit(signal.SIGTERM, None)
                await eventually(lambda: server.lifespan.state.get("draining"))
                for client in (used, watching):
                    await client.send(get(b"/"))
                    assert (await client.reply()).header(b"connection") == [b"close"]
                    assert await client.rest() == b""
                assert (await ask(port, get(b"/"))).header(b"connection") == [b"close"]
                services.stop.set()
                await streaming.reader.readuntil(b"0\r\n\r\n")

    run(check())


def test_M22_a_process_that_gets_no_processor_time_serves_what_arrived_before_the_port_closed() -> None:
    """The settling ends while the process stands still: 40 new connections are in the backlog, 10 requests in buffers
    of open ones."""

    async def check() -> None:
        services = Services()
        services.stop.set()
        async with started(services, settle=1) as server, contextlib.AsyncExitStack() as stack:
            (port,) = server.ports
            idle = [await stack.enter_async_context(dialling(port)) for _ in range(10)]
            for client in idle:
                await client.send(get(b"/"))
                await client.reply()
            server.handle_exit(signal.SIGTERM, None)
            await eventually(lambda: server.lifespan.state.get("draining"))
            fresh = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
            for one in fresh:
                one.sendall(get(b"/"))
            for client in idle:
                client.writer.write(get(b"/"))
            time.sleep(1.2)
            for client in idle:
                assert (await client.reply()).body == b"1"
            for one in fresh:
                one.settimeout(30)
                with contextlib.closing(one):
                    assert b"200 OK" in await asyncio.to_thread(one.recv, 1000)

    run(check(), 60)


def test_M22_clients_that_never_stop_asking_do_not_keep_the_port_open() -> None:
    async def check() -> None:
        services = Services()
        services.stop.set()
        stopped = asyncio.Event()

        async def ask_on(port: int) -> None:
            while not stopped.is_set():
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    await ask(port, get(b"/"))

        async with started(services, drain=1) as server, asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(ask_on(server.ports[0]))
            server.handle_exit(signal.SIGTERM, None)
            while server.listeners[0].is_serving():
                await asyncio.sleep(0.05)
            stopped.set()

    run(check(), 60)


def test_sigint_waits_for_nobody_to_hear_of_it() -> None:
    async def check() -> None:
        async with started(Services(), settle=60) as server:
            server.handle_exit(signal.SIGINT, None)

    run(check(), 30)


def test_a_stream_that_outlasts_the_drain_is_cut_visibly() -> None:
    async def check() -> None:
        services = Services()
        async with started(services, drain=1) as server:
            async with dialling(server.ports[0]) as client:
                await client.send(get(b"/stream"))
                await client.reader.readuntil(chunk(b"begun"))
                server.handle_exit(signal.SIGTERM, None)
                assert await client.rest() == b""
        assert services.cancelled == 1

    run(check())


def test_the_port_beside_answers_until_the_last_stream_has_ended() -> None:
    async def check() -> None:
        services = Services()
        async with started(services, admin=True) as server:
            port, beside = server.ports
            async with dialling(port) as client:
                await client.send(get(b"/stream"))
                await client.reader.readuntil(chunk(b"begun"))
                server.handle_exit(signal.SIGTERM, None)
                async with asyncio.timeout(30):
                    while await is_open(port):
                        await asyncio.sleep(0.05)
                async with dialling(beside) as watcher:
                    await watcher.send(get(b"/"))
                    assert (await watcher.reply()).body == b"1"
                    services.stop.set()
                    await client.reader.readuntil(b"0\r\n\r\n")
                    assert await watcher.rest() == b""
        assert not await is_open(beside)

    run(check())


PROGRAM = """
import socket, sys
from proxy.http.server.serve import run

async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        if scope["path"] == "/broken":
            return
        await send({"type": "http.response.body", "body": b"ok"})

def hangup():
    print("hangup", flush=True)

def ready():
    print(bound.getsockname()[1], flush=True)

bound = socket.create_server(("127.0.0.1", 0))
calls = {"ready": ready, "error_body": lambda path, error: b"{}", "on_hangup": hangup if sys.argv[1:] else None}
run(app, "127.0.0.1", 0, settle=0, sockets=[bound], **calls)
"""


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGHUP])
def test_a_stop_by_signal_is_a_success(stop: signal.Signals) -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())

        async def check() -> None:
            assert (await ask(port, get(b"/"))).body == b"ok"
            async with dialling(port) as client:
                await client.send(get(b"/broken"))
                assert (await client.rest()).endswith(b"content-length: 2\r\n\r\n")

        try:
            run(check())
            process.send_signal(stop)
            assert process.wait(60) == 0
        finally:
            process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == "", "an answer that is broken off on purpose is no error"


def test_SIGHUP_is_a_call_and_no_end() -> None:
    command = [sys.executable, "-c", PROGRAM, "calls"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())

        async def check() -> None:
            assert process.stdout is not None
            for _ in range(2):
                process.send_signal(signal.SIGHUP)
                assert await asyncio.to_thread(process.stdout.readline) == "hangup\n"
            assert (await ask(port, get(b"/"))).body == b"ok"

        try:
            run(check(), 40)
        finally:
            process.kill()


def test_all_the_files_that_the_system_allows_are_taken() -> None:
    code = (
        "import resource; from proxy.http.server.serve import _raise_file_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "_raise_file_limit(); print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(told) == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
