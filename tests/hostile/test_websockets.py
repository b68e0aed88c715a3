"""U9: WebSockets go through in both directions, byte for byte, within the limits that hold for every request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.hostile.frames import (
    BINARY,
    CLOSE,
    KEY,
    PING,
    PONG,
    TEXT,
    Client,
    Frame,
    accept,
    echoing,
    frame,
    handshake,
    switching,
)
from tests.hostile.harness import CHAT, HELLO, Running, eventually, ok, running, upstream
from tests.recorder import Peer, Recorder, Request, answer, head

BIG = 16 * 1024 * 1024
OPERATORS_KEY = "sk-operator-canary-99"


async def speaking(request: Request, peer: Peer) -> None:
    """Answers chats, and echoes WebSockets as their targets say."""
    target = request.target
    if request.header(b"upgrade") != [b"websocket"]:
        await peer.send(ok())
    elif b"refused" in target:
        await peer.send(answer(b'{"error":{"message":"no"}}', b"401 Unauthorized"))
    elif b"early" in target:
        await peer.send(switching(request) + frame(b"session.created", TEXT))
        await peer.gone()
    elif b"forged" in target:
        await peer.send(switching(request, b"X-Plimsoll-Tokens: 1", b"x-kept: 1", b"Sec-WebSocket-Protocol: realtime"))
        await peer.gone()
    elif b"raw" in target:
        await raw(request, peer)
    elif b"reset" in target:
        await peer.send(switching(request))
        await peer.reader.read(1)
        peer.reset()
    elif b"nothing" in target:
        peer.reset()
    elif b"h2c" in target:
        await peer.send(head(b"101 Switching Protocols", b"connection: upgrade", b"upgrade: h2c"))
        await peer.gone()
    elif b"unnamed" in target:
        await peer.send(head(b"101 Switching Protocols", b"upgrade: websocket") + b"HTTP/1.1 200 OK\r\n\r\n")
        await peer.gone()
    elif b"half" in target:
        await peer.send(switching(request))
        came = await peer.reader.read()
        await peer.send(b"after the end: %d" % len(came))
        peer.close()
    else:
        await echoing(request, peer)


async def raw(request: Request, peer: Peer) -> None:
    """Sends back every byte as it is."""
    await peer.send(switching(request))
    while data := await peer.reader.read(65536):
        await peer.send(data)
    peer.close()


@pytest.fixture(scope="module")
def there() -> Iterator[Recorder]:
    with upstream(speaking) as recorder:
        yield recorder


@pytest.fixture(scope="module")
def proxy(there: Recorder, workers: int) -> Iterator[Running]:
    with running(there.url, workers=workers, PLIMSOLL_API_KEY=OPERATORS_KEY) as made:
        yield made


def opened(proxy: Running, target: str = "/v1/realtime?model=m", *headers: str) -> Client:
    """A client whose handshake was accepted."""
    client = Client(proxy.port, handshake(target, *headers))
    client.opened()
    return client


def told(proxy: Running, target_or_result: str) -> dict[str, object]:
    """The latest line of the log about a WebSocket with such a result."""
    eventually(lambda: lines(proxy, target_or_result))
    return lines(proxy, target_or_result)[-1]


def lines(proxy: Running, result: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in list(proxy.lines) if '"websocket"' in line]
    return [line for line in found if line["result"] == result]


@pytest.mark.parametrize("target", ["/v1/realtime?model=gpt-realtime", "/v1/responses/x", "/v1/some/other?x=1"])
def test_U9_a_conversation_goes_through(proxy: Running, there: Recorder, target: str) -> None:
    with Client(proxy.port, handshake(target, "Authorization: Bearer sk-mine", "OpenAI-Beta: realtime=v1")) as client:
        headers = client.opened()
        assert headers["sec-websocket-accept"] == accept(b"dGhlIHNhbXBsZSBub25jZQ==").decode()
        assert headers["upgrade"].lower() == "websocket" and headers["connection"].lower() == "upgrade"
        assert "transfer-encoding" not in headers and "content-length" not in headers
        client.send("grüß dich".encode(), TEXT)
        assert client.receive() == Frame(TEXT, "grüß dich".encode(), True)
        client.send(b"\x00\xff" * 9)
        assert client.receive() == Frame(BINARY, b"\x00\xff" * 9, True)
        client.send(b"?", PING)
        assert client.receive() == Frame(PONG, b"?", True)
        client.send(b"\x03\xe9going away", CLOSE)
        assert client.receive() == Frame(CLOSE, b"\x03\xe9going away", True)
        assert client.rest() == b""
    got = there.requests[-1]
    assert got.target.decode() == target
    assert got.header(b"authorization") == [b"Bearer sk-mine"] and got.header(b"openai-beta") == [b"realtime=v1"]
    assert got.header(b"host") == [b"127.0.0.1:%d" % there.port]
    assert [v.lower() for v in got.header(b"connection")] == [b"upgrade"]


def test_U9_what_is_negotiated_is_not_touched(proxy: Running, there: Recorder) -> None:
    offered = "permessage-deflate; client_max_window_bits, x-other; a=1"
    with opened(
        proxy, "/v1/realtime", f"Sec-WebSocket-Extensions: {offered}", "Sec-WebSocket-Protocol: realtime, b"
    ) as client:
        compressed = bytes((0xC1, 0x80 | 3)) + b"\0\0\0\0" + b"abc"  # RSV1, mask of nothing
        client.socket.sendall(compressed)
        client.send(b"", CLOSE)
    got = there.requests[-1]
    assert got.header(b"sec-websocket-extensions") == [offered.encode()]
    assert got.header(b"sec-websocket-protocol") == [b"realtime, b"]
    assert got.header(b"sec-websocket-version") == [b"13"] and len(got.header(b"sec-websocket-key")) == 1


def test_U9_every_byte_arrives_as_it_was_sent(proxy: Running) -> None:
    """Frames of 16 MB, fragments, broken ones: a tunnel reads none of it."""
    sent = os.urandom(1 << 20) + frame(os.urandom(BIG), BINARY, False, b"abcd") + frame(b"end", 0, True, b"abcd")
    with opened(proxy, "/v1/raw") as client:
        sender = threading.Thread(target=client.socket.sendall, args=(sent,))
        sender.start()
        came = bytearray()
        while len(came) < len(sent) and (data := client.socket.recv(1 << 20)):
            came += data
        sender.join(60)
        assert bytes(came) == sent
        client.finish()
        assert client.rest() == b""
    size = len(sent)
    eventually(lambda: any(line.get("bytes_in") == line.get("bytes_out") == size for line in lines(proxy, "passed")))


def test_U9_a_frame_of_16_mb_is_echoed(proxy: Running) -> None:
    payload = os.urandom(BIG)
    with opened(proxy) as client:
        client.send(payload)
        came = client.receive()
        assert came is not None and came.payload == payload


def test_U9_bytes_behind_either_head_are_not_lost(proxy: Running) -> None:
    behind = frame(b"x" * 30, TEXT, mask=b"abcd")
    with Client(proxy.port, handshake("/v1/realtime"), behind) as client:
        client.opened()
        assert client.receive() == Frame(TEXT, b"x" * 30, True)
    much = b"y" * 1_000_000  # more than may wait for the answer
    with Client(proxy.port, handshake("/v1/raw"), much) as client:
        client.opened()
        client.finish()
        assert client.rest() == much
    with opened(proxy, "/v1/early") as client:
        assert client.receive() == Frame(TEXT, b"session.created", True)


def test_U9_headers_of_ours_stop_here_in_both_directions(proxy: Running, there: Recorder) -> None:
    with Client(proxy.port, handshake("/v1/forged", "X-Plimsoll-Window: 9", "X-Kept: 2", "Keep-Alive: 5")) as client:
        headers = client.opened()
    assert "x-plimsoll-tokens" not in headers and headers["x-kept"] == "1"
    assert headers["sec-websocket-protocol"] == "realtime"
    got = there.requests[-1]
    assert got.header(b"x-plimsoll-window") == [] == got.header(b"keep-alive") and got.header(b"x-kept") == [b"2"]


def test_U9_the_operators_key_goes_only_where_it_is_meant_for(proxy: Running, there: Recorder) -> None:
    """Into a handshake for Responses of a client that brings no key: not in a header, a subprotocol or its query. Such
    a handshake goes through only with the mode off: its requests cannot be fitted."""
    off = "x-plimsoll-mode: off"
    with opened(proxy, "/v1/responses", off):
        assert there.requests[-1].header(b"authorization") == [f"Bearer {OPERATORS_KEY}".encode()]
    subprotocol = f"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.{KEY}"
    for target, *headers in (
        ["/v1/realtime"],
        ["/v1/organization/x"],
        ["/v1/responses", subprotocol, off],
        ["/v1/responses", "Authorization: Bearer sk-mine", off],
        ["/v1/responses", "Authorization: Bearer sk-mine", "Connection: authorization", off],
        *([f"/v1/responses?a=b&{name}={KEY}", off] for name in ("key", "api_key", "api-key", "token", "access_token")),
    ):
        with opened(proxy, target, *headers):
            assert OPERATORS_KEY.encode() not in there.requests[-1].head


@pytest.mark.parametrize("target", ["/v1/responses", "//v1/responses/?a=b", "/v1/chat/completions"])
def test_U9_no_websocket_goes_past_the_requests_that_are_fitted(proxy: Running, there: Recorder, target: str) -> None:
    asked = len(there.requests)
    with Client(proxy.port, handshake(target)) as client:
        status, headers = client.head()
        assert status == 426 and dict(headers)["upgrade"] == "HTTP/1.1" and dict(headers)["connection"] == "close"
        assert b"websocket_refused" in client.rest()
    assert len(there.requests) == asked


def test_U9_a_refused_handshake_is_an_ordinary_answer(proxy: Running) -> None:
    smuggled = b"GET /v1/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with Client(proxy.port, handshake("/v1/refused"), smuggled) as client:
        status, headers = client.head()
        assert status == 401 and dict(headers)["connection"] == "close"
        assert client.rest() == b'{"error":{"message":"no"}}'  # and nothing behind it, for it is closed
    eventually(lambda: [line for line in lines(proxy, "passed") if line["status"] == 401])


@pytest.mark.parametrize("target", ["/v1/h2c", "/v1/unnamed", "/v1/nothing"])
def test_U9_an_answer_that_is_no_switch_to_a_websocket_is_a_502(proxy: Running, target: str) -> None:
    with Client(proxy.port, handshake(target)) as client:
        status, headers = client.head()
        assert status == 502 and dict(headers)["content-type"] == "application/json"
    assert told(proxy, "upstream_error")["status"] == 502


@pytest.mark.parametrize(
    "request_head",
    [
        b"POST /v1 HTTP/1.1\r\nhost: [::]\r\nconnection: upgrade\r\nupgrade: websocket\r\ncontent-length: 2\r\n\r\n{}",
        b"GET /v1/x HTTP/1.1\r\nhost: [::]\r\nconnection: upgrade\r\nupgrade: websocket\r\ncontent-length: 2\r\n\r\n{}",
        b"GET /v1/x HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
        b"GET /v1/x HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket, h2c\r\n\r\n",
        b"GET /v1/x HTTP/1.0\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    ],
    ids=["post", "get_with_a_body", "h2c", "several", "http_1_0"],
)
def test_U9_a_wish_that_is_no_handshake_is_ignored(proxy: Running, there: Recorder, request_head: bytes) -> None:
    """RFC 9110, 7.8: a server may; and what stands behind the head is the body that the head speaks of."""
    with Client(proxy.port, request_head) as client:
        status, _ = client.head()
        assert status == 200
    got = there.requests[-1]
    assert got.header(b"upgrade") == [] and got.header(b"connection") == []
    assert got.body == (b"{}" if request_head.endswith(b"{}") else b"")


def test_U9_a_handshake_behind_an_unanswered_request_is_no_tunnel(proxy: Running, there: Recorder) -> None:
    first = json.dumps(HELLO).encode()
    head_of = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (CHAT.encode(), len(first))
    before = len([r for r in there.requests if r.target == b"/v1/behind"])
    with Client(proxy.port, head_of + first + handshake("/v1/behind")) as client:
        assert b"101 Switching" not in client.rest()
    assert len([r for r in there.requests if r.target == b"/v1/behind"]) == before


def test_U9_own_paths_are_no_websockets(proxy: Running, there: Recorder) -> None:
    count = len(there.requests)
    with Client(proxy.port, handshake("/healthz")) as client:
        assert client.head()[0] in (200, 404)
        client.rest()
    assert len(there.requests) == count


def test_U9_half_a_close_goes_through(proxy: Running) -> None:
    with opened(proxy, "/v1/half") as client:
        client.socket.sendall(b"z" * 100_000)
        client.finish()
        assert client.rest() == b"after the end: 100000"


def test_U9_a_client_that_goes_takes_the_upstream_with_it(proxy: Running, there: Recorder) -> None:
    for leave in ("close", "reset"):
        client = opened(proxy)
        open_ones = there.open
        assert open_ones >= 1
        client.reset() if leave == "reset" else client.__exit__(None, None, None)
        eventually(lambda many=open_ones: there.open < many)  # type: ignore[misc]
    told(proxy, "cancelled")


def test_U9_an_upstream_that_dies_takes_the_client_with_it(proxy: Running) -> None:
    with opened(proxy, "/v1/reset") as client:
        client.socket.sendall(b"x")
        assert client.rest() == b""
    assert told(proxy, "broken_off")["status"] == 101


def test_U9_a_reader_that_stops_stops_its_writer_in_constant_memory(there: Recorder) -> None:
    with running(there.url) as proxy:
        with opened(proxy, "/v1/raw") as client:
            before = proxy.settled_mb()
            client.socket.settimeout(1.0)
            sent = 0
            block = b"w" * (1 << 20)
            with contextlib.suppress(TimeoutError):
                for _ in range(300):
                    sent += client.socket.send(block)  # nobody reads the echo
            assert sent < 100 * len(block)
            assert proxy.memory_mb() - before < 64  # an encoding that is loaded in the background takes 20
        assert proxy.ask(HELLO).status == 200


def test_U9_tunnels_hold_up_nobody_and_are_counted(there: Recorder, workers: int) -> None:
    with running(there.url, workers=workers) as proxy:
        clients = [opened(proxy) for _ in range(20)]
        assert proxy.ask(HELLO).status == 200
        eventually(lambda: proxy.metric("plimsoll_requests_in_flight") == 20)
        for client in clients:
            client.send(b"12345")
            assert client.receive() == Frame(BINARY, b"12345", True)
            client.send(b"", CLOSE)
            assert client.rest()
            client.__exit__(None, None, None)
        eventually(lambda: proxy.metric("plimsoll_requests_total", endpoint="websocket", status="101") == 20)
        assert proxy.metric("plimsoll_websocket_bytes_total", direction="in") == 20 * (5 + 6 + 6)
        assert proxy.metric("plimsoll_websocket_bytes_total", direction="out") == 20 * (5 + 2 + 2)
        eventually(lambda: proxy.metric("plimsoll_requests_in_flight") == 0)


def test_U9_a_stop_leaves_tunnels_the_drain_time_and_then_closes_them(there: Recorder, workers: int) -> None:
    with running(there.url, workers=workers, PLIMSOLL_DRAIN="5") as proxy:
        with opened(proxy) as client:
            stopping = threading.Thread(target=proxy.stop)
            stopping.start()
            eventually(lambda: refuses(proxy.port))
            client.send(b"still here")
            assert client.receive() == Frame(BINARY, b"still here", True)
            assert client.rest() == b""  # the end of the drain time
            stopping.join(20)
        assert proxy.process.returncode == 0
        line = told(proxy, "stopped")
        assert line["status"] == 101 and line["bytes_in"] == 16


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return True
    return False


def test_U9_a_tunnel_that_ends_by_itself_ends_the_drain(there: Recorder) -> None:
    with running(there.url, PLIMSOLL_DRAIN="60") as proxy:
        with opened(proxy) as client:
            stopping = threading.Thread(target=proxy.stop, args=(50,))
            stopping.start()
            eventually(lambda: refuses(proxy.port))
            client.send(b"", CLOSE)
            assert client.rest()
        stopping.join(50)
        assert proxy.process.returncode == 0


@pytest.mark.parametrize("mode", ["off", "observe", "strict"])
def test_U9_every_mode_passes_them(there: Recorder, mode: str) -> None:
    with running(there.url, PLIMSOLL_MODE=mode) as proxy, opened(proxy) as client:
        client.send(b"a")
        assert client.receive() == Frame(BINARY, b"a", True)


def test_U9_keys_in_subprotocols_and_queries_are_shown_nowhere(there: Recorder, workers: int) -> None:
    with running(there.url, workers=workers) as proxy:
        for target in (f"/v1/realtime?api_key={KEY}", f"/v1/refused?model=m&token={KEY}", f"/v1/nothing?key={KEY}"):
            protocols = f"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.{KEY}, openai-beta.realtime-v1"
            with Client(proxy.port, handshake(target, protocols)) as client:
                status, _ = client.head()
                if status == 101:
                    client.send(b"", CLOSE)
                assert KEY.encode() not in client.rest()
            assert KEY.encode() in there.requests[-1].head  # it goes on, as it came
        eventually(lambda: len([line for line in list(proxy.lines) if '"websocket"' in line]) == 3)
        shown = "\n".join(proxy.lines) + proxy.ask(path="/metrics").body.decode()
        assert KEY not in shown and KEY[:12] not in shown


def test_U9_an_idle_tunnel_stays_and_many_heads_are_bounded(there: Recorder) -> None:
    """A resting tunnel costs no processor time; a head that is too large is refused as any other's."""
    with running(there.url) as proxy:
        with opened(proxy) as client:
            with proxy.working(0.5):
                time.sleep(2)
            client.send(b"a")
            assert client.receive() == Frame(BINARY, b"a", True)
        with Client(proxy.port, handshake("/v1/realtime", *[f"x-{i}: {'v' * 1000}" for i in range(100)])) as client:
            assert client.head()[0] == 431
        many = asyncio.run(_rush(proxy.port))
        assert many == [101] * 100


async def _rush(port: int) -> list[int]:
    async def one() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(handshake())
        status = int((await reader.readline()).split()[1])
        writer.close()
        return status

    return await asyncio.gather(*(one() for _ in range(100)))
