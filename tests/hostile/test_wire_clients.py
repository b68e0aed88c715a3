"""The list of the wire's dangers, 25 to 33: clients that are slow, silent, gone or many."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Iterator

import pytest

from tests.hostile.conftest import Place
from tests.hostile.harness import CHAT, HELLO, eventually, friendly
from tests.hostile.raw import Wire, chunked, get, post, tried
from tests.recorder import EVENTS, Peer, Request, chunk, head

LIMIT = 4 << 20
SETTINGS = {"PLIMSOLL_BODY_TIMEOUT": "2", "PLIMSOLL_MAX_BODY": str(LIMIT)}
BODY = b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}'
STREAM = b'{"model": "gpt-4o", "stream": true, "messages": [{"role": "user", "content": "hi"}]}'
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":5,"total_tokens":13}}\n\n'
DONE = b"data: [DONE]\n\n"
LARGE = 64 << 20
MiB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def slow_heads(services: Place) -> Iterator[list[Wire]]:
    """Clients that never come to the end of a request's head: they begin with the module, and are looked at last."""
    with contextlib.ExitStack() as stack:
        silent, half, drip = (stack.enter_context(Wire(services.proxy.port)) for _ in range(3))
        half.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: pro")
        over = threading.Event()

        def dripping() -> None:
            for byte in b"POST /v1/chat/completions HTTP/1.1\r\nx-long: " + b"a" * 1_000:
                with contextlib.suppress(OSError):
                    drip.send(bytes([byte]))
                if over.wait(0.2):
                    return

        thread = threading.Thread(target=dripping, daemon=True)
        thread.start()
        yield [silent, half, drip]
        over.set()
        thread.join()


async def held(request: Request, peer: Peer) -> None:
    """An upstream that lets everybody wait until they leave."""
    await peer.gone()


async def held_in_a_stream(request: Request, peer: Peer) -> None:
    """The same, in the middle of a stream."""
    await peer.send(EVENTS, chunk(DELTA))
    await peer.gone()


def nobody_is_there(place: Place) -> None:
    """The upstream has seen all leave, and the proxy is at nothing."""
    eventually(lambda: all(peer.ended for peer in place.there.peers) or place.there.open == 0, 30)
    eventually(lambda: place.proxy.metric("plimsoll_requests_in_flight") == 0, 30)


def test_D26_a_body_that_stops_is_408(place: Place) -> None:
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(place.proxy.port)) for _ in range(4)]
        for wire, target in zip(wires[::2], (CHAT.encode(), b"/v1/other"), strict=True):
            wire.send(post(BODY, target=target)[:-5])
        for wire, target in zip(wires[1::2], (CHAT.encode(), b"/v1/other"), strict=True):
            wire.send(chunked(BODY, target=target)[:-9])
        for wire in wires:
            got = wire.reply()
            assert got.status == 408 and got.headers["x-should-retry"] == "true"
    assert [r for r in place.seen() if r.method == b"POST"] == []


def test_D27_a_body_over_the_limit_is_413_and_not_held(place: Place) -> None:
    place.ask(HELLO)
    place.scripted()
    before = place.proxy.settled_mb()
    declared = get(CHAT.encode(), b"content-length: 1000000000", method=b"POST")
    for raw in (declared, declared + b" " * (1 << 20), chunked(*([b" " * 65_536] * 640))):
        got = tried(place.proxy.port, raw)
        assert got is not None and got.status == 413 and got.headers["x-should-retry"] == "false"
    assert place.proxy.memory_mb(peak=True) - before < 4 * LIMIT / MiB + 16
    assert place.seen() == []


@pytest.mark.parametrize(
    "raw", [post(BODY), post(STREAM), get(), post(BODY, target=b"/v1/other")], ids=["chat", "stream", "get", "post"]
)
def test_D28_a_client_that_leaves_before_its_answer_is_seen_by_the_upstream(place: Place, raw: bytes) -> None:
    place.scripted(held)
    for leave in (Wire.close, Wire.reset):
        place.there.requests.clear()
        with Wire(place.proxy.port) as wire:
            wire.send(raw)
            eventually(lambda: place.there.requests)
            leave(wire)
        nobody_is_there(place)


def test_D29_clients_that_leave_in_a_stream_leave_nothing_behind(place: Place) -> None:
    place.scripted(held_in_a_stream)
    for count in range(200):
        with Wire(place.proxy.port) as wire:
            wire.send(post(STREAM))
            wire.until(DELTA)
            (Wire.close, Wire.reset)[count % 2](wire)
    nobody_is_there(place)
    eventually(lambda: place.there.open == 0, 30)


def test_D30_a_client_that_hangs_up_at_the_end_of_its_stream_had_success(place: Place) -> None:
    async def ends_late(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS, chunk(DELTA), chunk(USAGE), chunk(DONE))
        await asyncio.sleep(0.05)
        await peer.send(chunk(b""))

    place.scripted(ends_late)
    passed = place.proxy.metric("plimsoll_requests_total", endpoint="chat", result="passed", status="200")
    tokens = place.proxy.metric("plimsoll_completion_tokens_total")
    for _ in range(5):
        with Wire(place.proxy.port) as wire:
            wire.send(post(STREAM))
            wire.until(DONE)
    eventually(lambda: place.proxy.metric("plimsoll_completion_tokens_total") == tokens + 25)
    got = place.proxy.metric("plimsoll_requests_total", endpoint="chat", result="passed", status="200")
    assert got == passed + 5


@pytest.mark.parametrize("raw", [get(b"/v1/large"), post(STREAM)], ids=["get", "stream"])
def test_D31_a_slow_reader_holds_the_upstream_back(place: Place, raw: bytes) -> None:
    pushed = 0

    async def pushing(request: Request, peer: Peer) -> None:
        nonlocal pushed
        await peer.send(head(b"200 OK", b"content-type: text/event-stream", b"content-length: %d" % LARGE))
        for _ in range(LARGE >> 16):
            await peer.send(b": %b\n" % (b"x" * 65_533))
            pushed += 1 << 16

    place.scripted(pushing)
    before = place.proxy.settled_mb()
    with Wire(place.proxy.port, 4_096) as wire:
        wire.send(raw)
        wire.head()
        last = -1
        while last != pushed:
            last = pushed
            time.sleep(0.5)
        assert pushed < 24 * MiB, "what nobody reads waits at the upstream"
        assert place.proxy.memory_mb(peak=True) - before < 16
        for _ in range(LARGE >> 16):
            wire.exactly(1 << 16)
    assert place.proxy.memory_mb(peak=True) - before < 16


def test_D32_odd_streams_arrive_byte_for_byte(place: Place) -> None:
    text = 'data: {"choices":[{"index":0,"delta":{"content":"äöü 🚢 漢字"}}]}'.encode()
    events = (
        b": OPENROUTER PROCESSING\n\n",
        b"\xef\xbb\xbf",
        text + b"\r\n\r\n",
        text + b"\n\n",
        text + b"\r\r",
        b"event: x\nid: 7\nretry: 1\n" + text + b"\ndata: 2\n\n",
        b"data:[1]\n\ndata\n\n: \n\n",
        b'data: {"a":\ndata: 1}\n\n',
        b"\n\n\n",
        DELTA + USAGE,
        b"data: [DONE]\n\n",
        b": after the end\n\n",
    )
    whole = b"".join(events)
    for size in (1, 2, 3, 7, len(whole)):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]

        async def script(request: Request, peer: Peer, pieces: list[bytes] = pieces) -> None:
            await peer.send(EVENTS, *map(chunk, pieces), chunk(b""))

        place.scripted(script)
        for raw in (post(STREAM), post(STREAM, target=b"/v1/responses")):
            got = tried(place.proxy.port, raw)
            assert got is not None and got.body == whole


def test_D33_many_idle_connections_keep_nobody_from_being_answered(place: Place) -> None:
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(Wire(place.proxy.port)) for _ in range(500)]
        for wire in idle:
            wire.send(get(b"/healthz"))
        assert all(wire.reply().status == 200 for wire in idle)
        with place.proxy.working(1):
            for _ in range(20):
                assert place.ask(path="/healthz").status == 200
        chosen = random.Random(1).sample(idle, 50)
        for wire in chosen:
            wire.send(post(BODY))
        assert all(wire.reply().status == 200 for wire in chosen)


def test_D25_a_head_that_never_ends_is_not_waited_for(place: Place, slow_heads: list[Wire]) -> None:
    for wire in slow_heads:
        wire.rest()  # its time runs since the module's first test
    place.scripted(friendly)
    assert place.seen() == []
