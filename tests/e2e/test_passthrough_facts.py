"""The plumbing facts that a transparent proxy lives by, each over real sockets: client, proxy, recording upstream."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest

from proxy.http import relay
from proxy.http.client.idle import MIN_IDLE_SECONDS
from proxy.http.client.pool import Timeouts
from proxy.http.server.protocol import Protocol
from tests.recorder import EVENTS, Peer, Request, answer, chunk, head, recording
from tests.serving import ask, dialling, eventually, get, post, proxying, run

DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
CHAT = post(b'{"stream":true}', target=b"/v1/chat/completions")


# Fact 1: a stream that ends cleanly without its end is taken for whole.


async def dies_in_a_stream(request: Request, peer: Peer) -> None:
    await peer.send(EVENTS, chunk(DELTA))
    peer.close()


async def resets_in_a_stream(request: Request, peer: Peer) -> None:
    await peer.send(EVENTS, chunk(DELTA))
    await asyncio.sleep(0.05)
    peer.reset()


@pytest.mark.parametrize("script", [dies_in_a_stream, resets_in_a_stream])
def test_an_upstream_that_dies_in_a_stream_is_seen_as_an_error_and_not_as_its_end(script: object) -> None:
    async def check() -> None:
        async with recording(script) as up, proxying(up.url) as proxy, dialling(proxy.port) as client:  # type: ignore[arg-type]
            await client.send(CHAT)
            assert (await client.head()).status == 200
            raw = await client.rest()
            assert raw.startswith(chunk(DELTA))
            assert not raw.endswith(b"0\r\n\r\n")
            event = raw.removeprefix(chunk(DELTA)).split(b"\r\n")[1]
            error = json.loads(event.removeprefix(b"data: "))["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["code"] == "upstream_error"
            await eventually(lambda: [o.result for o in proxy.outcomes] == ["broken_off"])

    run(check())


def test_openais_client_raises_when_the_upstream_dies_in_a_stream() -> None:
    async def check() -> None:
        async with recording(dies_in_a_stream) as up, proxying(up.url) as proxy:
            async with openai.AsyncOpenAI(
                base_url=f"http://127.0.0.1:{proxy.port}/v1", api_key="sk-test", max_retries=0
            ) as client:
                stream = await client.chat.completions.create(
                    model="gpt-4o", messages=[{"role": "user", "content": "Hi"}], stream=True
                )
                seen = []
                with pytest.raises(openai.APIError) as raised:
                    async for part in stream:
                        seen.append(part.choices[0].delta.content)
                assert seen == ["Hi"]
                assert raised.value.code == "upstream_error"

    run(check())


async def dies_in_a_line(request: Request, peer: Peer) -> None:
    await peer.send(EVENTS, chunk(DELTA + b'data: {"cho'))
    peer.close()


async def falls_short(request: Request, peer: Peer) -> None:
    await peer.send(head(b"200 OK", b"content-type: application/json", b"content-length: 20"), b"{}")
    peer.close()


async def misses_its_last_chunk(request: Request, peer: Peer) -> None:
    await peer.send(head(b"200 OK", b"content-type: application/json", b"transfer-encoding: chunked"), chunk(b"{}"))
    peer.close()


@pytest.mark.parametrize(
    ("script", "last"),
    [(dies_in_a_line, chunk(DELTA + b'data: {"cho')), (falls_short, b"{}"), (misses_its_last_chunk, chunk(b"{}"))],
)
def test_an_answer_that_breaks_off_is_never_ended(script: object, last: bytes) -> None:
    async def check() -> None:
        async with recording(script) as up, proxying(up.url) as proxy, dialling(proxy.port) as client:  # type: ignore[arg-type]
            await client.send(CHAT)
            assert (await client.head()).status == 200
            assert await client.rest() == last

    run(check())


def test_an_upstream_that_falls_silent_in_a_stream_is_cut_off_visibly() -> None:
    async def falls_silent(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS, chunk(DELTA))
        await peer.gone()

    async def check() -> None:
        # a machine that is busy for a moment does not take the time of the first events for silence
        async with recording(falls_silent) as up, proxying(up.url, Timeouts(read=1.0)) as proxy:
            async with dialling(proxy.port) as client:
                await client.send(CHAT)
                await client.head()
                raw = await client.rest()
                assert b'"code":"upstream_error"' in raw
                assert not raw.endswith(b"0\r\n\r\n")
            await eventually(lambda: up.open == 0)

    run(check())


# Fact 2: OpenAI's Python client hangs up at [DONE], before the last chunk.


def test_a_client_that_leaves_at_done_has_had_its_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "DRAIN_SECONDS", 30.0)  # however busy the machine is, the end comes within them

    async def ends_late(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS, chunk(DELTA), chunk(DONE))
        await asyncio.sleep(0.25)
        await peer.send(chunk(b""))

    async def check() -> None:
        async with recording(ends_late) as up, proxying(up.url) as proxy:
            async with dialling(proxy.port) as client:
                await client.send(CHAT)
                await client.reader.readuntil(DONE)
            await eventually(lambda: proxy.outcomes)
            assert proxy.outcomes[0].result == "passed"
            await eventually(lambda: proxy.upstream.connections == 1)
            await asyncio.sleep(1.5 * MIN_IDLE_SECONDS)  # so long a new upstream's connection rests before a POST
            assert (await ask(proxy.port, CHAT)).status == 200
            assert up.connections == 1, "the upstream's connection is kept"

    run(check())


def test_a_client_that_leaves_at_done_is_not_waited_for_by_a_stream_without_end() -> None:
    async def never_ends(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS, chunk(DELTA), chunk(DONE))
        await peer.gone()

    async def check() -> None:
        async with recording(never_ends) as up, proxying(up.url) as proxy:
            async with dialling(proxy.port) as client:
                await client.send(CHAT)
                await client.reader.readuntil(DONE)
            await eventually(lambda: up.open == 0)
            assert [o.result for o in proxy.outcomes] == ["passed"]

    run(check())


# Fact 3: a client that leaves before the head goes unseen, and the upstream works for nobody.


async def thinks(request: Request, peer: Peer) -> None:
    await peer.gone()


async def talks(request: Request, peer: Peer) -> None:
    await peer.send(EVENTS)
    while True:
        await peer.send(chunk(DELTA))
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_client_that_leaves_before_the_head_ends_the_upstreams_work_within_a_second(how: str) -> None:
    async def check() -> None:
        async with recording(thinks) as up, proxying(up.url) as proxy:
            async with dialling(proxy.port) as client:
                await client.send(CHAT)
                await eventually(lambda: up.requests)
                if how == "rst":
                    client.reset()
            await eventually(lambda: up.open == 0, 30)
            await eventually(lambda: [(o.result, o.status) for o in proxy.outcomes] == [("cancelled", 499)])
            assert proxy.upstream.connections == 0

    run(check())


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_client_that_leaves_in_a_stream_ends_the_upstreams_work_within_a_second(how: str) -> None:
    async def check() -> None:
        async with recording(talks) as up, proxying(up.url) as proxy:
            async with dialling(proxy.port) as client:
                await client.send(CHAT)
                await client.reader.readuntil(DELTA)
                if how == "rst":
                    client.reset()
            await eventually(lambda: up.open == 0, 30)
            await eventually(lambda: [o.result for o in proxy.outcomes] == ["cancelled"])
            assert proxy.upstream.connections == 0

    run(check())


def test_a_client_that_leaves_in_its_own_upload_ends_the_upstreams_work() -> None:
    async def listens(request: Request, peer: Peer) -> None:
        await peer.gone()

    async def check() -> None:
        async with recording(listens, streaming=True) as up, proxying(up.url) as proxy:
            async with dialling(proxy.port) as client:
                await client.send(get(b"/v1/files", b"content-length: 1000000", method=b"POST"), b"x" * 1000)
                await eventually(lambda: up.requests)
            await eventually(lambda: up.open == 0, 30)
            await eventually(lambda: [o.result for o in proxy.outcomes] == ["cancelled"])

    run(check())


def test_many_clients_that_leave_leave_nothing_behind() -> None:
    async def leave(port: int) -> None:
        async with dialling(port) as client:
            await client.send(CHAT)
            await client.reader.readuntil(DELTA)

    async def check() -> None:
        async with recording(talks) as up, proxying(up.url) as proxy:
            for _ in range(5):
                await asyncio.gather(*(leave(proxy.port) for _ in range(20)))
            await eventually(lambda: up.open == 0, 30)
            await eventually(lambda: len(proxy.outcomes) == 100)
            assert proxy.upstream.connections == 0
            assert not proxy.server.port.tasks

    run(check())


# Fact 4: a server without deadlines waits for ever for a head, and for a body.


class Hasty(Protocol):
    """A protocol with little patience."""

    head_timeout = 0.3


@pytest.mark.parametrize("said", [b"", b"POST /v1/things HTTP/1.1\r\nhost: localhost\r\n"])
def test_a_client_that_is_silent_before_the_end_of_its_head_is_closed(said: bytes) -> None:
    async def check() -> None:
        async with recording() as up, proxying(up.url, http=Hasty) as proxy, dialling(proxy.port) as client:
            await client.send(said)
            assert await client.rest() == b""
            assert up.connections == 0

    run(check())


def test_a_head_that_drips_is_closed() -> None:
    async def drip(client_send: object) -> None:
        while True:
            await client_send(b"x")  # type: ignore[operator]
            await asyncio.sleep(0.05)

    async def check() -> None:
        async with recording() as up, proxying(up.url, http=Hasty) as proxy, dialling(proxy.port) as client:
            await client.send(b"GET /v1/models HTTP/1.1\r\nx: ")
            dripping = asyncio.create_task(drip(client.send))
            assert await client.rest() == b""
            dripping.cancel()
            assert up.connections == 0

    run(check())


def test_a_second_head_on_a_kept_connection_has_the_same_deadline() -> None:
    class Later(Protocol):
        """A protocol whose patience ends with its first head, which a busy machine may bring late."""

    async def check() -> None:
        async with recording() as up, proxying(up.url, http=Later) as proxy, dialling(proxy.port) as client:
            await client.send(get())
            await client.reply()
            Later.head_timeout = Hasty.head_timeout
            await asyncio.sleep(0.5)  # idle, longer than a head may take: that is no offence
            await client.send(get()[:-2])
            assert await client.rest() == b""
            assert len(up.requests) == 1

    run(check())


def test_a_body_that_stalls_gets_a_408() -> None:
    async def check() -> None:
        async with recording() as up, proxying(up.url, body_seconds=0.2) as proxy, dialling(proxy.port) as client:
            await client.send(get(b"/v1/things", b"content-length: 10", method=b"POST"))
            reply = await client.reply()
            assert reply.status == 408
            assert json.loads(reply.body)["error"]["code"] == "body_timeout"
            assert await client.rest() == b""
            assert up.requests == []

    run(check())


def test_a_long_body_that_stalls_gets_a_408_and_is_given_up_upstream() -> None:
    async def listens(request: Request, peer: Peer) -> None:
        await peer.gone()

    async def check() -> None:
        async with recording(listens, streaming=True) as up, proxying(up.url, body_seconds=0.2) as proxy:
            async with dialling(proxy.port) as client:
                await client.send(get(b"/v1/files", b"content-length: 1000000", method=b"POST"), b"x" * 1000)
                assert (await client.reply()).status == 408
            await eventually(lambda: up.open == 0)

    run(check())


# Fact 7: httpx resolves `..`; a target is forwarded as it was sent.

TARGETS = [
    b"/v1/../../admin",
    b"/v1/a/./b/../c",
    b"/v1/%2e%2e/%2E%2E/admin",
    b"/v1//double//slash",
    b"//evil.example/v1/models",
    b"/v1/files/a%2Fb%20c+d",
    b"/v1/a|b\\c^`{}<>\"'",
    b"/v1/caf%C3%A9",
    b"/v1/models?",
    b"/v1/models?a=b%20c&d|e&f=%2e%2e/..&g=a+b&&=",
    b"/v1/models?a?b",
    b"/v1/models#part?x",
    b"/v1?limit=1",
    b"/v1",
    b"/v1/threads/thread_1:batch;v=1,2",
]


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_reaches_the_upstream_byte_for_byte(target: bytes) -> None:
    async def check() -> None:
        async with recording() as up, proxying(up.url) as proxy:
            assert (await ask(proxy.port, get(target))).status == 200
            sent = target if target.startswith(b"/v1") else b"/v1" + target
            assert up.requests[0].target == sent

    run(check())


@pytest.mark.parametrize("target", [b"/v1/\xc3\xa9", b"/v1/models?q=\xc3\xa9", b"*", b"evil.example:443"])
def test_what_is_no_legal_target_is_refused_and_not_mended(target: bytes) -> None:
    async def check() -> None:
        async with recording() as up, proxying(up.url) as proxy:
            reply = await ask(proxy.port, get(target))
            assert reply.status == 400
            assert set(json.loads(reply.body)["error"]) == {"message", "type", "param", "code"}
            assert up.requests == []

    run(check())


def test_a_target_in_absolute_form_cannot_choose_the_host() -> None:
    async def check() -> None:
        async with recording() as up, proxying(up.url) as proxy:
            assert (await ask(proxy.port, get(b"http://evil.example/v1/models?a=%2e"))).status == 200
            assert up.requests[0].target == b"/v1/models?a=%2e"
            assert up.requests[0].header(b"host") == [f"127.0.0.1:{up.port}".encode()]

    run(check())


def test_a_whole_answer_is_what_openais_client_gets() -> None:
    async def speaks(request: Request, peer: Peer) -> None:
        await peer.send(answer(b'{"object":"list","data":[{"id":"gpt-4o","object":"model"}]}'))

    async def check() -> None:
        async with recording(speaks) as up, proxying(up.url) as proxy:
            async with openai.AsyncOpenAI(
                base_url=f"http://127.0.0.1:{proxy.port}/v1", api_key="sk-test", max_retries=0
            ) as client:
                assert [m.id async for m in client.models.list()] == ["gpt-4o"]
            assert up.requests[0].header(b"authorization") == [b"Bearer sk-test"]

    run(check())
