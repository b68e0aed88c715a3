"""Nothing that came from a client, and no key, is ever logged, counted, stored or told to others, whatever fails."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from proxy.observe.log import json_line, text_line
from proxy.simulator.app import SimulatorConfig
from tests.e2e.services import PATH, Running, body, plimsoll, sentence, simulating
from tests.recorder import EVENTS, Peer, Request, Script, answer, chunk, head, recording
from tests.redis_server import RedisServer, be_patient, redis_server
from tests.serving import Reply, dialling, eventually, get, post, run

PROMPT = "canary-prompt-1618"
KEYS = {
    "client": "sk-canary-client-2718",
    "ours": "sk-canary-ours-3141",
    "secret": "canary-secret-1414",
    "redis": "canary-password-1732",
}
AUTHORIZATION = b"authorization: Bearer " + KEYS["client"].encode()
OURS = {"PLIMSOLL_API_KEY": KEYS["ours"], "PLIMSOLL_SECRET": KEYS["secret"]}
SAID = [{"role": "user", "content": f"{PROMPT} " + sentence(i)} for i in range(400)]
LONG = body(SAID, max_tokens=500, user=PROMPT)
SHORT = body(SAID[:1], "gpt-4o")
ENUM = {"type": "object", "properties": {"place": {"enum": [f"{PROMPT} " * 9_000]}}}  # no step shortens it
TOOLS = [{"type": "function", "function": {"name": PROMPT, "description": PROMPT, "parameters": ENUM}}]
ECHO = b'{"error":{"message":"context length exceeded by canary-prompt-1618","code":"context_length_exceeded"}}'

Scene = Callable[[Running], Awaitable[None]]


def sending(sent: bytes, *headers: bytes, target: bytes = PATH, status: int = 0) -> Scene:
    """One request, and the status that it must get (0: any)."""

    async def scene(proxy: Running) -> None:
        async with dialling(proxy.port) as client:
            await client.send(post(sent, AUTHORIZATION, *headers, target=target))
            reply = await client.reply()
        told_by_us(reply)
        assert status in (0, reply.status), reply

    return scene


def told_by_us(reply: Reply) -> None:
    """An answer of our own tells nobody's secret, not even to whom it belongs: others may log it."""
    for header in reply.headers:
        assert PROMPT.encode() not in header[1]
    if reply.header(b"x-request-id") != [b"upstream"] and not reply.body.startswith(b'{"model"'):  # /inspect's plan
        assert PROMPT.encode() not in reply.body
    assert not any(key.encode() in reply.body for key in KEYS.values())


def raw(sent: bytes) -> Scene:
    """Bytes that are no lawful request."""

    async def scene(proxy: Running) -> None:
        async with dialling(proxy.port) as client:
            await client.send(sent)
            assert PROMPT.encode() not in await client.rest()

    return scene


async def reading(proxy: Running) -> None:
    """A client that reads whatever comes."""
    async with dialling(proxy.port) as client:
        await client.send(post(LONG, AUTHORIZATION, target=PATH))
        await client.rest()


async def leaving(proxy: Running) -> None:
    """A client that does not wait for its answer."""
    async with dialling(proxy.port) as client:
        await client.send(post(LONG, AUTHORIZATION, target=PATH))
        await asyncio.sleep(0.05)


async def stalling(proxy: Running) -> None:
    """A client that stops in the middle of its request."""
    async with dialling(proxy.port) as client:
        await client.send(post(LONG, AUTHORIZATION, target=PATH)[:-500])
        assert (await client.reply()).status == 408


def answering(*pieces: bytes, close: bool = False, reset: bool = False) -> Script:
    """An upstream that sends just these pieces."""

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(*pieces)
        if close:
            peer.close()
        if reset:
            peer.reset()

    return script


async def silent(request: Request, peer: Peer) -> None:
    """An upstream that says nothing."""
    await peer.gone()


OK = answering(answer(headers=(b"content-type: application/json", b"x-request-id: upstream")))
REFUSING = answering(answer(ECHO, b"400 No", (b"content-type: application/json", b"x-request-id: upstream")))
LISTLESS = answering(answer(ECHO, b"500 No", (b"content-type: application/json", b"x-request-id: upstream")))
REFUSED = chunk(b"data: " + ECHO + b"\n\n")
STREAMED = chunk(b'data: {"choices":[{"index":0,"delta":{"content":"canary-prompt-1618"}}]}\n\n')

# What fails: the upstream, what is sent, and the proxy's environment.
SCENES: dict[str, tuple[Script, Scene, dict[str, str]]] = {
    "nothing": (OK, sending(SHORT, status=200), {}),
    "a cut": (OK, sending(LONG, status=200), {}),
    "observing": (OK, sending(LONG, b"x-plimsoll-mode: observe", status=200), {}),
    "off": (OK, sending(LONG, b"x-plimsoll-mode: off", status=200), {}),
    "no fit": (OK, sending(body(SAID[:1], tools=TOOLS), status=400), {}),
    "strict": (OK, sending(LONG[:-3], b"x-plimsoll-mode: strict", status=400), {}),
    "half a body": (OK, sending(LONG[:-3], status=200), {}),
    "wrong types": (OK, sending(body([PROMPT], max_tokens=PROMPT, n=[PROMPT]), status=200), {}),
    "a strange role": (OK, sending(body([{"role": PROMPT, "content": PROMPT}]), status=200), {}),
    "too large": (OK, sending(LONG, status=413), {"PLIMSOLL_MAX_BODY": "10kB"}),
    "packed and broken": (OK, sending(gzip.compress(LONG)[:-9], b"content-encoding: gzip", status=200), {}),
    "a wrong mode": (OK, sending(LONG, b"x-plimsoll-mode: " + PROMPT.encode(), status=400), {}),
    "a wrong ladder": (OK, sending(LONG, b"x-plimsoll-ladder: " + PROMPT.encode(), status=400), {}),
    "a wrong window": (OK, sending(LONG, b"x-plimsoll-window: " + PROMPT.encode(), status=400), {}),
    "inspecting": (OK, sending(LONG, target=b"/inspect" + PATH, status=200), {}),
    "inspecting nonsense": (OK, sending(LONG[:-3], target=b"/inspect" + PATH, status=400), {}),
    "another path": (OK, sending(LONG, target=b"/v1/other?q=" + PROMPT.encode(), status=200), {}),
    "an unlawful request": (OK, raw(b"GET /" + PROMPT.encode() + b" HTTP/1.1\r\nbad header\r\n\r\n"), {}),
    "a websocket": (
        OK,
        raw(get(b"/v1/" + PROMPT.encode(), b"upgrade: websocket", b"connection: upgrade", AUTHORIZATION)),
        {},
    ),
    "a client that leaves": (silent, leaving, {}),
    "a client that stalls": (OK, stalling, {"PLIMSOLL_BODY_TIMEOUT": "0.2"}),
    "a refusal": (REFUSING, sending(LONG, status=400), {}),
    "a refusal in a stream": (
        answering(EVENTS.replace(b"\r\n\r\n", b"\r\nx-request-id: upstream\r\n\r\n"), REFUSED, chunk(b"")),
        sending(body(SAID, stream=True), status=200),
        {},
    ),
    "a rate limit": (answering(answer(ECHO, b"429 No", (b"x-request-id: upstream",))), sending(LONG, status=429), {}),
    "an upstream that closes": (answering(close=True), sending(LONG, status=502), {}),
    "an upstream that resets": (answering(reset=True), sending(LONG, status=502), {}),
    "an upstream that speaks no http": (answering(b"canary-prompt-1618\r\n\r\n"), sending(LONG, status=502), {}),
    "an upstream that is silent": (silent, sending(LONG, status=504), {"PLIMSOLL_READ_TIMEOUT": "0.2"}),
    "an answer that breaks off": (
        answering(head(b"200 OK", b"content-type: text/event-stream", b"content-length: 999"), STREAMED, reset=True),
        reading,
        {},
    ),
    "a list of models that fails": (LISTLESS, sending(body(SAID, "nobody"), status=500), {}),
    "no redis": (OK, sending(LONG, status=200), {"PLIMSOLL_REDIS": f"redis://:{KEYS['redis']}@127.0.0.1:9/0"}),
    "a redis by a name that is none": (
        OK,
        sending(LONG, status=200),
        {"PLIMSOLL_REDIS": f"redis://user:{KEYS['redis']}@no-such-host.invalid:6379/0"},
    ),
    "no upstream": (OK, sending(LONG, status=502), {"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1"}),
    "an upstream by a name that is none": (
        OK,
        sending(LONG, status=502),
        {"PLIMSOLL_UPSTREAM": "http://no-such-host.invalid/v1"},
    ),
    "a switch": (
        OK,
        sending(LONG, status=200),
        {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": "gpt-4o"},
    ),
}


def nothing_is_told(texts: str) -> None:
    """None of the canaries is in it."""
    for canary in (PROMPT, *KEYS.values()):
        assert canary not in texts


async def played(proxy: Running, scene: Scene) -> str:
    """All that the proxy tells of a scene: log lines for people and machines, and its metrics."""
    await scene(proxy)
    async with dialling(proxy.port) as client:
        await client.send(get(b"/metrics"))
        metrics = (await client.reply()).body.decode()
    lines = [line(outcome, 1.0) for outcome in proxy.outcomes for line in (json_line, text_line)]
    return metrics + "".join(lines) + repr(proxy.outcomes) + repr(proxy.services.settings)


@pytest.mark.parametrize("name", SCENES)
def test_whatever_fails_nothing_is_told(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    script, scene, environment = SCENES[name]

    async def check() -> None:
        async with recording(script) as up, recording() as collector:
            traces = {
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
            }
            async with plimsoll(up.url, **{**OURS, **traces, **environment}) as proxy:
                nothing_is_told(await played(proxy, scene))
            traced = [outcome for outcome in proxy.outcomes if outcome.trace is not None]
            assert bool(collector.requests) == bool(traced)
            nothing_is_told("".join(request.body.decode() for request in collector.requests))

    run(check())
    nothing_is_told("".join(capfd.readouterr()))


def broken(*args: Any, **kwargs: Any) -> Any:
    """A bug whose text holds all that must not be told."""
    raise RuntimeError(PROMPT, *KEYS.values())


PLACES = (
    "proxy.apis.openai_chat.request.scan",
    "proxy.apis.openai_chat.request.parse",
    "proxy.apis.openai_chat.request.render",
    "proxy.request.planning.plan",
    "proxy.request.facts.Knowledge.known",
    "proxy.request.heal.learn",
    "proxy.request.refusal_detection.recognise",
    "proxy.request.response_headers.plan_headers",
    "proxy.observe.metrics.shared_labels.SharedLabels.admit",
    "proxy.request.gateway.target_of",
    "proxy.wire.tap.Tap.feed",
    "proxy.wire.tap.Tap._read_new",
    "proxy.request.inspect.inspection",
)


@pytest.mark.parametrize("place", PLACES)
def test_wherever_our_own_bug_is_nothing_is_told(
    place: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def check() -> None:
        async with recording(REFUSING) as refusing, recording(OK) as good:
            for up in (refusing, good):
                async with plimsoll(up.url, **OURS) as proxy:
                    monkeypatch.setattr(place, broken)
                    for scene in (sending(LONG), sending(LONG, target=b"/inspect" + PATH), sending(SHORT)):
                        await scene(proxy)
                    lines = [line(outcome, 1.0) for outcome in proxy.outcomes for line in (json_line, text_line)]
                    nothing_is_told("".join(lines))
                    monkeypatch.undo()

    run(check())
    nothing_is_told("".join(capfd.readouterr()))


def test_an_upstream_that_nobody_vouches_for_is_told_without_secrets(capfd: pytest.CaptureFixture[str]) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 " + PROMPT.encode() + b"\r\n\r\n")
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await reader.read(100)
        writer.close()

    async def check() -> None:
        server = await asyncio.start_server(plain, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with plimsoll(f"https://127.0.0.1:{port}/v1", **OURS) as proxy:
            nothing_is_told(await played(proxy, sending(LONG, status=502)))
        server.close()

    run(check())
    nothing_is_told("".join(capfd.readouterr()))


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server("--requirepass", KEYS["redis"]) as running:
        yield running


def redis_cli(server: RedisServer, *arguments: str) -> bytes:
    """What redis-cli answers, with the password."""
    return server.cli("-a", KEYS["redis"], "--no-auth-warning", *arguments)


def test_a_dump_of_redis_tells_nothing(
    server: RedisServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    be_patient(monkeypatch)  # what a read that is late was for is not stored
    url = server.url.replace("redis://", f"redis://:{KEYS['redis']}@")
    large = body([{"role": "user", "content": f"{PROMPT} " + sentence(i, 3_000)} for i in range(4)], "gpt-4-32k")

    async def check() -> bytes:
        async with simulating(SimulatorConfig(windows={"gpt-4": 4_096, "gpt-4-32k": 32_768})) as (_, upstream):
            async with plimsoll(upstream, **OURS, PLIMSOLL_REDIS=url) as proxy:
                await eventually(lambda: not any(proxy.services.cache.open_breakers().values()), 30)
                for sent in (LONG, large, SHORT):
                    assert (await proxy.chat(sent)).status == 200
                await eventually(lambda: len(redis_cli(server, "--scan").split()) >= 5, 30)
                names = redis_cli(server, "--scan").decode().split()
                dump = b"".join(redis_cli(server, "GET", name) for name in names)
                await asyncio.to_thread(server.kill)
                text = await played(proxy, sending(large, status=200))
                nothing_is_told(text + "".join(names))
                return dump

    dump = run(check())
    assert not any(canary.encode() in dump for canary in (PROMPT, *KEYS.values(), "Entry", "gpt-4"))
    nothing_is_told("".join(capfd.readouterr()))


def test_the_key_of_ours_goes_upstream_only_where_the_client_sends_none() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url, **OURS) as proxy:
            async with dialling(proxy.port) as client:
                await client.send(post(SHORT, target=PATH))
                await client.reply()
            await sending(SHORT, status=200)(proxy)
            sent = [r.header(b"authorization") for r in up.requests]
            assert sent == [[f"Bearer {KEYS[whose]}".encode()] for whose in ("ours", "client")]

    run(check())


def test_the_canary_would_be_found() -> None:
    """These tests can fail: what the proxy forwards does hold the canaries."""

    async def check() -> None:
        async with recording() as up, plimsoll(up.url, **OURS) as proxy:
            await sending(LONG, status=200)(proxy)
            assert PROMPT in up.requests[0].body.decode() and KEYS["client"] in up.requests[0].head.decode()
            with pytest.raises(AssertionError):
                nothing_is_told(json.dumps(KEYS))

    run(check())
