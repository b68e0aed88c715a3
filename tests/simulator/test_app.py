"""The simulator over ASGI: its responses, delays and failures; its counts are the proxy's own."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from proxy.apis import error_body
from proxy.http.server.serve import Config, Server
from proxy.simulator.app import ResponseAborted, Simulator, SimulatorConfig, simulator

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "one two three"}


def words(body: bytes) -> int:
    """A count that anybody can do in the head: 10, and the words of all messages."""
    return 10 + sum(len(str(m["content"]).split()) for m in msgspec.json.decode(body)["messages"])


COUNTED = SimulatorConfig(count=words, window=100)


@dataclass
class ResponseReader:
    """One request, driven by hand."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)
    ended: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def told(self) -> str:
        return str(self.json["error"]["message"])


async def exchange(
    app: Simulator,
    method: str = "POST",
    path: str = CHAT,
    body: bytes = b"",
    headers: Sequence[tuple[bytes, bytes]] = (),
    hang_up_after: int | None = None,
    query: str = "a=b",
    into: ResponseReader | None = None,
) -> ResponseReader:
    """Sends a request in two parts; the client hangs up once it got so many parts of the answer (-1: at once)."""
    got, gone = into or ResponseReader(), asyncio.Event()
    inbox = [
        {"type": "http.request", "body": body[:5], "more_body": True},
        {"type": "http.request", "body": body[5:], "more_body": False},
        {"type": "http.request", "body": b"", "more_body": False},  # some servers go on saying so
    ]

    async def receive() -> dict[str, Any]:
        if inbox:
            return inbox.pop(0)
        if hang_up_after != -1:
            await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            got.status, got.headers = message["status"], dict(message["headers"])
        else:
            got.parts += [message["body"]] if message["body"] else []
            got.ended = not message["more_body"]
        if hang_up_after is not None and len(got.parts) >= hang_up_after:
            gone.set()

    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": list(headers)}
    await app(scope, receive, send)
    return got


def asked(app: Simulator, *messages: Any, headers: Sequence[tuple[bytes, bytes]] = (), **more: Any) -> ResponseReader:
    body = msgspec.json.encode({"model": "m", "messages": list(messages) or [USER], **more})
    return asyncio.run(exchange(app, body=body, headers=headers))


def test_a_request_that_fits_is_answered_with_its_count() -> None:
    got = asked(simulator(COUNTED))
    assert (got.status, got.headers[b"content-type"], got.ended) == (200, b"application/json", True)
    assert got.headers[b"content-length"] == str(len(got.body)).encode()
    assert got.json["usage"]["prompt_tokens"] == 13


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"[" * 100_000, b'{"a":"\xff"}'])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    got = asyncio.run(exchange(simulator(COUNTED), body=body))
    assert (got.status, got.told) == (400, "We could not parse the JSON body of your request.")


@pytest.mark.parametrize(
    ("method", "path", "status", "told"),
    [
        ("POST", "/v1/moderations", 404, "Invalid URL (POST /v1/moderations)"),
        ("GET", "/", 404, "Invalid URL (GET /)"),
        ("GET", CHAT, 405, "Not allowed to GET on /v1/chat/completions."),
        ("DELETE", "/v1/models/m", 405, "Not allowed to DELETE on /v1/models/m."),
    ],
)
def test_other_paths_and_methods_are_refused_as_openai_does(method: str, path: str, status: int, told: str) -> None:
    got = asyncio.run(exchange(simulator(COUNTED), method, path))
    assert (got.status, got.told) == (status, told)


def test_a_key_is_asked_for_where_one_is_set_and_never_told_again() -> None:
    app = simulator(SimulatorConfig(count=words, api_key="sk-1"))
    wrong = asked(app, headers=[(b"Authorization", b"Bearer sk-2")])
    assert (wrong.status, wrong.json["error"]["code"], b"sk-" in wrong.body) == (401, "invalid_api_key", False)
    assert asked(app, headers=[(b"Authorization", b"Bearer sk-1")]).status == 200


def test_the_first_requests_can_fail() -> None:
    app = simulator(SimulatorConfig(count=words, fail_first=2))
    got = [asked(app) for _ in range(3)]
    assert [one.status for one in got] == [429, 429, 200]
    assert (got[0].headers[b"retry-after-ms"], got[0].json["error"]["code"]) == (b"10", "rate_limit_exceeded")
    assert asked(simulator(SimulatorConfig(fail_first=1, fail_status=500))).told.startswith("The server had an error")


def test_a_request_can_ask_for_a_behaviour_of_its_own() -> None:
    app = simulator(COUNTED)
    assert asked(app, headers=[(b"x-sim-status", b"503")]).status == 503
    assert asked(app, headers=[(b"x-sim-window", b"12")]).status == 400
    assert "prompt is too long: 13 tokens > 12 maximum" in (
        asked(app, headers=[(b"x-sim-window", b"12"), (b"X-Sim-Provider", b"anthropic")]).told
    )
    inside = [(b"x-sim-window", b"12"), (b"x-sim-in-stream", b"1")]
    assert asked(app, headers=inside, stream=True).status == 200
    assert asked(app, headers=[(b"x-sim-text", b"Yes.")]).json["choices"][0]["message"]["content"] == "Yes."
    assert asked(app).status == 200


def test_what_was_received_is_kept_as_it_came() -> None:
    app = simulator(SimulatorConfig(count=words, max_recorded=2))
    packed = gzip.compress(msgspec.json.encode({"model": "m", "messages": [USER]}))
    for path in ("/v1/a", "/v1/b", CHAT):
        asyncio.run(exchange(app, path=path, body=packed, headers=[(b"Content-Encoding", b"gzip"), (b"x", b"1")]))
    assert [one.path for one in app.received] == ["/v1/b", CHAT]
    last = app.received[-1]
    assert (last.method, last.query, last.body, last.header(b"x")) == ("POST", b"a=b", packed, b"1")
    assert last.json()["messages"] == [USER]


def test_an_answer_waits_before_its_head_and_between_its_chunks() -> None:
    async def timed(*headers: tuple[bytes, bytes]) -> float:
        body = msgspec.json.encode({"model": "m", "messages": [USER], "stream": True})
        began = asyncio.get_running_loop().time()
        await exchange(simulator(COUNTED), body=body, headers=headers)
        return asyncio.get_running_loop().time() - began

    assert asyncio.run(timed((b"x-sim-delay", b"0.05"))) >= 0.05
    chunks = 10  # role, seven words, finish reason, [DONE]
    assert asyncio.run(timed((b"x-sim-chunk-delay", b"0.005"))) >= 0.005 * (chunks - 1)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_can_break_off_in_the_middle(stream: bool) -> None:
    async def broken() -> ResponseReader:
        body, got = msgspec.json.encode({"model": "m", "messages": [USER], "stream": stream}), ResponseReader()
        with pytest.raises(ResponseAborted):
            await exchange(simulator(COUNTED), body=body, headers=[(b"x-sim-abort", b"1")], into=got)
        return got

    got = asyncio.run(broken())
    assert (got.status, len(got.parts), got.ended) == (200, 1, False)


def test_a_client_that_hangs_up_is_noticed() -> None:
    async def hung_up(app: Simulator, after: int, *headers: tuple[bytes, bytes]) -> ResponseReader:
        body = msgspec.json.encode({"model": "m", "messages": [USER], "stream": True})
        async with asyncio.timeout(30):
            return await exchange(app, body=body, headers=headers, hang_up_after=after)

    app = simulator(COUNTED)
    before = asyncio.run(hung_up(app, -1, (b"x-sim-delay", b"60")))
    assert (app.disconnects, app.in_flight, before.status) == (1, 0, 0)
    amid = asyncio.run(hung_up(app, 1, (b"x-sim-chunk-delay", b"60")))
    assert (app.disconnects, app.in_flight, len(amid.parts), amid.ended) == (2, 0, 1, False)
    quick = asyncio.run(hung_up(app, 2))
    assert (app.disconnects, quick.ended) == (3, False)


def test_a_client_that_hangs_up_before_its_body_was_sent_is_none_received() -> None:
    app = simulator(COUNTED)

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    asyncio.run(app({"type": "http", "method": "POST", "path": CHAT, "headers": []}, receive, send))
    assert (app.disconnects, len(app.received)) == (1, 0)


def test_it_starts_and_stops_and_takes_no_web_sockets() -> None:
    async def spoken(kind: str, *inbox: str) -> list[str]:
        sent: list[str] = []
        queue = [{"type": one} for one in inbox]

        async def receive() -> dict[str, Any]:
            return queue.pop(0)

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await simulator()({"type": kind}, receive, send)
        return sent

    life = asyncio.run(spoken("lifespan", "lifespan.startup", "lifespan.shutdown"))
    assert life == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert asyncio.run(spoken("websocket", "websocket.connect")) == ["websocket.close"]


def test_behind_a_real_server_a_broken_answer_has_no_end() -> None:
    async def raw(headers: str) -> bytes:
        body = msgspec.json.encode({"model": "m", "messages": [USER], "stream": True}).decode()
        server = Server(Config(simulator(COUNTED), "127.0.0.1", 0, error_body))
        serving = asyncio.create_task(server.serve())
        async with asyncio.timeout(20):
            while not server.started:
                await asyncio.sleep(0.01)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
            head = (
                f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
            )
            writer.write((head + body).encode())
            found = await reader.read(-1)
            writer.close()
            server.should_exit = True
            await serving
        return found

    assert asyncio.run(raw("")).endswith(b"\r\n0\r\n\r\n")
    broken = asyncio.run(raw("x-sim-abort: 3\r\n"))
    assert broken.startswith(b"HTTP/1.1 200") and not broken.endswith(b"0\r\n\r\n")
