"""litellm as an upstream: what it gets, what comes back, and that it keeps quiet. Its provider is a server of ours."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from functools import partial
from typing import Any

import pytest

from proxy.apis.openai_chat import API
from proxy.config.upstreams import UpstreamRow
from proxy.errors import ConfigError
from proxy.http.client.answer import UpstreamError
from proxy.http.client.pool import Timeouts
from proxy.upstreams import litellm as module
from proxy.upstreams.litellm import LiteLLM, is_installed, load
from tests import serving
from tests.recorder import Peer, Recorder, Request, recording
from tests.upstreams.providers import claude, refusing

run = partial(serving.run, seconds=60.0)  # the import alone takes seconds
PATH, KEY = b"/v1/chat/completions", "canary-operator-3141"
SAID = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "canary-prompt-1618"}]
HEADERS = [(b"authorization", b"Bearer canary-client-2718"), (b"content-type", b"application/json")]


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 50, "messages": SAID, **fields}).encode()


def upstream(server: Recorder | None = None, read: float = 20.0, **fields: Any) -> LiteLLM:
    url = "http://127.0.0.1:9" if server is None else server.url.removesuffix("/v1")
    row = UpstreamRow("large", url, "litellm", ("claude-*",), provider="anthropic")
    return LiteLLM(row, KEY, Timeouts(read=read), **fields)


async def whole(sender: LiteLLM, sent: bytes) -> tuple[int, bytes]:
    got = await sender.send("POST", PATH, HEADERS, sent)
    try:
        return got.status, await got.read(1 << 20)
    finally:
        await got.close()


def test_a_request_is_translated_and_its_answer_is_openais() -> None:
    async def check() -> None:
        async with recording(claude()) as server:
            status, told = await whole(upstream(server), body(seed=3, api_base="http://127.0.0.1:1", top_p=None))
            assert status == 200
            found = json.loads(told)
            assert found["object"] == "chat.completion"
            assert found["choices"][0]["message"]["content"] == "Hello you"
            usage = API.response.complete_usage(told)
            assert usage is not None and (usage.prompt, usage.completion) == (25, 2)
            (request,) = server.requests
            assert request.target == b"/v1/messages" and request.header(b"x-api-key") == [KEY.encode()]
            assert b"canary-client" not in request.head + request.body
            sent = json.loads(request.body)
            assert (sent["model"], sent["max_tokens"]) == ("claude-sonnet-4-5", 50)
            assert sent["system"][0]["text"] == "Be brief."

    run(check())


def test_a_stream_is_openais_events() -> None:
    async def check() -> None:
        async with recording(claude()) as server:
            sent = body(stream=True, stream_options={"include_usage": True})
            got = await upstream(server).send("POST", PATH, HEADERS, sent)
            assert (got.status, got.buffered_body()) == (200, None)
            assert got.headers == [(b"content-type", b"text/event-stream; charset=utf-8")]
            text = await got.read(1 << 20)
            await got.close()
            events = [line[6:] for line in text.split(b"\n\n") if line]
            assert events[-1] == b"[DONE]" and API.response.is_end_of_stream(text)
            parsed = [json.loads(event) for event in events[:-1]]
            assert {event["object"] for event in parsed} == {"chat.completion.chunk"}
            said = [choice["delta"].get("content") for event in parsed for choice in event["choices"]]
            assert "".join(filter(None, said)) == "Hello you"
            assert parsed[-1]["choices"] == [] and parsed[-1]["usage"]["prompt_tokens"] == 25

    run(check())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("server", [{}, {"server_url": "litellm_proxy/mcp/x", "server_label": "x"}])
def test_tools_go_to_the_provider_and_to_no_server_of_litellms_own(stream: bool, server: dict[str, str]) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}, **server}

    async def check() -> None:
        async with recording(claude()) as provider:
            status, answer = await whole(upstream(provider), body(tools=[tool], stream=stream))
            assert status == 200 and (b"Hello" if stream else b"Hello you") in answer
            (request,) = provider.requests
            assert json.loads(request.body)["tools"][0]["name"] == "f" and b"_skip" not in request.body

    run(check())


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_for_length_has_openais_code_and_the_providers_words(stream: bool) -> None:
    async def check() -> None:
        words = "prompt is too long: 208310 tokens > 200000 maximum"
        async with recording(refusing(b"400 Bad Request", "invalid_request_error", words)) as server:
            status, told = await whole(upstream(server), body(stream=stream))
            assert status == 400 and len(server.requests) == 1  # litellm tries nothing again
            assert json.loads(told)["error"] == {
                "message": words,
                "type": "invalid_request_error",
                "param": None,
                "code": "context_length_exceeded",
            }

    run(check())


def test_other_errors_keep_their_status_and_no_key() -> None:
    async def check() -> None:
        limited = refusing(b"429 Too Many", "rate_limit_error", f"slow down, {KEY}", b"retry-after: 7")
        async with recording(limited) as server:
            got = await upstream(server).send("POST", PATH, HEADERS, body())
            told = await got.read(1 << 20)
            assert got.status == 429 and (b"retry-after", b"7") in got.headers
            assert json.loads(told)["error"]["message"] == "slow down, ***" and len(server.requests) == 1

    run(check())


@pytest.mark.parametrize("stream", [False, True])
def test_a_refused_key_of_the_operator_is_told_without_it(stream: bool) -> None:
    async def check() -> None:
        script = refusing(b"401 Unauthorized", "authentication_error", f"invalid x-api-key {KEY}")
        async with recording(script) as server:
            with pytest.raises(UpstreamError) as caught:
                await whole(upstream(server), body(stream=stream))
            assert caught.value.code == "upstream_key_refused" and KEY not in str(caught.value)

    run(check())


def test_without_a_connection_the_error_says_so() -> None:
    async def check() -> None:
        with pytest.raises(UpstreamError) as caught:
            await whole(upstream(), body())
        assert caught.value.code == "upstream_unreachable" and caught.value.unconnected

    run(check())


def test_a_provider_that_says_nothing_is_left_in_time() -> None:
    async def silent(request: Request, peer: Peer) -> None:
        await peer.gone()

    async def check() -> None:
        async with recording(silent) as server:
            with pytest.raises(UpstreamError) as caught:
                await whole(upstream(server, read=0.5), body())
            assert (caught.value.status, caught.value.code) == (504, "upstream_timeout")

    run(check())


def test_a_stream_that_stalls_or_breaks_off_is_no_whole_answer() -> None:
    async def stalls(peer: Peer) -> None:
        await peer.gone()

    async def breaks(peer: Peer) -> None:
        peer.reset()

    async def check() -> None:
        for fault, code, seconds in ((stalls, "upstream_timeout", 4.0), (breaks, "upstream_error", 60.0)):
            waits = {3: fault}.get
            async with recording(claude(waits)) as server:
                got = await upstream(server, read=seconds).send("POST", PATH, HEADERS, body(stream=True))
                with pytest.raises(UpstreamError) as caught:
                    await got.read(1 << 20)
                assert caught.value.code == code and not got.whole
                await got.close()

    run(check())


def test_a_client_that_leaves_ends_the_providers_stream() -> None:
    left = asyncio.Event()

    async def waits(peer: Peer) -> None:
        await peer.gone()
        left.set()

    async def check() -> None:
        async with recording(claude({2: waits}.get)) as server:
            got = await upstream(server).send("POST", PATH, HEADERS, body(stream=True))
            assert await got.next()
            await got.close()
            async with asyncio.timeout(30):
                await left.wait()

    run(check())


def test_a_read_that_is_cancelled_loses_nothing() -> None:
    go = asyncio.Event()

    async def waits(peer: Peer) -> None:
        await go.wait()

    async def check() -> None:
        async with recording(claude({2: waits}.get)) as server:
            got = await upstream(server).send("POST", PATH, HEADERS, body(stream=True))
            text = await got.next()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    while True:
                        text += await got.next()
            go.set()
            text += await got.read(1 << 20)
            assert b" you" in text and text.endswith(b"data: [DONE]\n\n")
            await got.close()

    run(check())


def test_a_request_that_is_cancelled_ends_at_the_provider_too() -> None:
    async def check() -> None:
        asked, left = asyncio.Event(), asyncio.Event()

        async def silent(request: Request, peer: Peer) -> None:
            asked.set()
            await peer.gone()
            left.set()

        async with recording(silent) as server:
            task = asyncio.create_task(whole(upstream(server), body()))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(30):
                await left.wait()

    run(check())


@pytest.mark.parametrize(
    ("method", "target", "headers", "sent", "status"),
    [
        ("GET", b"/v1/models", [], None, 404),
        ("POST", b"/v1/embeddings", [], b"{}", 404),
        ("POST", PATH, [(b"content-encoding", b"gzip")], b"x", 415),
        ("POST", PATH, [], b"{", 400),
        ("POST", PATH, [], body(tools=[{"type": "mcp", "server_url": "http://x"}]), 400),
    ],
)
def test_what_it_cannot_do_is_an_error_in_openais_shape(
    method: str, target: bytes, headers: list[tuple[bytes, bytes]], sent: bytes | None, status: int
) -> None:
    async def check() -> None:
        got = await upstream().send(method, target, headers, sent)
        assert got.status == status and json.loads(await got.read(9_999))["error"]["message"]
        assert (await upstream().upgrade(target, headers)).status == 404

    run(check())


def test_nothing_of_a_request_is_logged_or_printed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        for script in (claude(), refusing(b"400 Bad Request", "invalid_request_error", "canary-prompt-1618 is bad")):
            async with recording(script) as server:
                for stream in (False, True):
                    await whole(upstream(server), body(stream=stream))
        async with recording(refusing(b"500 Oops", "api_error", "canary-prompt-1618")) as server:
            await whole(upstream(server), body())

    monkeypatch.setenv("LITELLM_LOG", "DEBUG")
    with caplog.at_level(logging.DEBUG):
        run(check())
    out, err = capfd.readouterr()
    assert "canary" not in out + err + caplog.text and "LiteLLM" not in out + err
    library = sys.modules["litellm"]
    assert library.telemetry is False and library.suppress_debug_info is True and not library.callbacks


def test_B5_what_one_of_its_modules_warns_of_is_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    load()
    for name in ("litellm.llms.huggingface.chat.transformation", "LiteLLM"):
        logging.getLogger(name).warning("`max_retries` is not supported. It will be ignored.")
    assert caplog.text == ""


def test_litellms_own_mock_answers_as_a_provider_does() -> None:
    async def check() -> None:
        complete = partial(load(), mock_response="It is mocked.")
        sender = upstream(complete=complete)
        status, told = await whole(sender, body())
        assert status == 200 and json.loads(told)["choices"][0]["message"]["content"] == "It is mocked."
        status, told = await whole(sender, body(stream=True))
        assert status == 200 and told.endswith(b"data: [DONE]\n\n")
        refused = upstream(complete=partial(load(), mock_response="litellm.ContextWindowExceededError"))
        status, told = await whole(refused, body())
        assert status == 400 and json.loads(told)["error"]["code"] == "context_length_exceeded"

    run(check())


def test_a_fault_of_the_library_is_a_502_without_its_words() -> None:
    said: list[tuple[str, dict[str, Any]]] = []

    async def broken(**arguments: Any) -> None:
        raise KeyError("canary-prompt-1618")

    async def check() -> None:
        sender = upstream(complete=broken, event=lambda text, **fields: said.append((text, fields)))
        with pytest.raises(UpstreamError) as caught:
            await whole(sender, body())
        assert caught.value.status == 502 and "canary" not in str(caught.value)

    run(check())
    assert said == [("litellm failed", {"upstream": "large", "kind": "KeyError"})]


def test_the_provider_of_the_row_is_the_only_one_that_a_name_can_reach() -> None:
    names: list[str] = []

    async def noting(**arguments: Any) -> None:
        names.append(arguments["model"])
        raise KeyError

    async def check() -> None:
        for model in ("claude-x", "anthropic/claude-x", "ollama/claude-x", "openai/claude-x"):
            with pytest.raises(UpstreamError):
                await whole(upstream(complete=noting), body(model=model))

    run(check())
    assert names == [
        "anthropic/claude-x",
        "anthropic/claude-x",
        "anthropic/ollama/claude-x",
        "anthropic/openai/claude-x",
    ]


def test_it_is_imported_once_and_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []

    async def answers(**arguments: Any) -> None:
        raise KeyError

    def counting(event: Any) -> Any:
        loads.append(1)
        return answers

    monkeypatch.setattr(module, "load", counting)

    async def check() -> None:
        sender = upstream()
        await asyncio.gather(sender.ready(), sender.ready())
        await sender.close()

    run(check())
    assert loads == [1]


def test_where_litellm_has_no_code_a_row_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_installed()

    def data_alone(name: str) -> Any:
        return type("Spec", (), {"origin": None})()

    monkeypatch.setattr("importlib.util.find_spec", data_alone)
    with pytest.raises(ConfigError, match="--target full"):
        upstream()
