"""The upstream's own count of a prompt: who is asked, when, with whose key; and that a bad counter costs nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.simulator.anthropic_messages.counting import count_prompt as count_messages
from proxy.simulator.app import Simulator, SimulatorConfig
from proxy.simulator.openai_chat.counting import count_prompt
from tests.e2e.services import Running, body, ours, plimsoll, sentence, simulating, talk
from tests.recorder import Peer, Recorder, Request, answer, recording
from tests.redis_server import RedisServer, be_patient, redis_server
from tests.serving import Reply, ask, eventually, get, post, run

KEY = "sk-ant-canary-2718"
CANARY = "canary-3141"
MODEL = "claude-sonnet-4-5"
WINDOW = 8_000
COUNT, MESSAGES = "/v1/messages/count_tokens", b"/v1/messages"
HEADERS = (b"content-type: application/json", b"x-api-key: " + KEY.encode(), b"anthropic-version: 2023-06-01")
# The row of Anthropic, for an upstream on this machine.
ROW = """
[[counter]]
name = "anthropic"
api = "messages"
hosts = ["127.0.0.1"]
calls = [{ path = "/v1/messages/count_tokens", fields = ["model", "messages", "system"], answer = "input_tokens" }]
"""
PATIENT = {"PLIMSOLL_COUNTER_TIMEOUT": "20"}


def rules(folder: Path, counters: str = ROW, window: int = WINDOW, **files: str) -> str:
    """A rules folder with counters, and with the window of all models."""
    (folder / "counters.toml").write_text(counters, "utf-8")
    (folder / "windows.toml").write_text(f'[[window]]\nmodel = "*"\ntokens = {window}\n', "utf-8")
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text, "utf-8")
    return str(folder)


def claude(messages: list[dict[str, str]]) -> bytes:
    """A request to the Messages API."""
    return json.dumps({"model": MODEL, "max_tokens": 500, "messages": messages}).encode()


def conversation(tokens: int, count: Callable[[bytes], int] = count_messages, make: Any = claude) -> bytes:
    """A request of about so many tokens by our count."""
    said = [{"role": "user" if i % 2 == 0 else "assistant", "content": sentence(i)} for i in range(801)]
    low, high = 1, len(said) // 2
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(make(said[: 2 * middle - 1])) <= tokens else (low, middle - 1)
    sent: bytes = make([{**said[0], "content": f"{CANARY} {said[0]['content']}"}, *said[1 : 2 * low - 1]])
    return sent


def at(ratio: float, count: Callable[[bytes], int] = count_messages) -> Callable[[bytes], int]:
    """The count of an upstream whose tokens are so many times ours."""
    return lambda raw: round(ratio * count(raw))


NEAR = conversation(7_850)  # within the margin: our count alone would cut it
FAR = conversation(4_000)
OVER = conversation(12_000)


@contextlib.asynccontextmanager
async def before(folder: Path, ratio: float = 0.95, **environment: str) -> AsyncIterator[tuple[Simulator, Running]]:
    config = SimulatorConfig(window=WINDOW, count=at(ratio))
    given = {"PLIMSOLL_RULES": rules(folder), **PATIENT, **environment}
    async with simulating(config) as (app, url), plimsoll(url, **given) as proxy:
        yield app, proxy


async def message(proxy: Running, sent: bytes, *headers: bytes) -> Reply:
    return await ask(proxy.port, post(sent, *(headers or HEADERS), target=MESSAGES))


def paths(app: Simulator) -> list[str]:
    return [request.path for request in app.received]


def results(proxy: Running) -> dict[str, int]:
    """The calls of counters by result."""
    return {result: n for (kind, result), n in proxy.services.extra_calls.calls().items() if kind == "count"}


def test_what_the_provider_says_fits_is_not_cut(tmp_path: Path) -> None:
    async def check() -> None:
        async with before(tmp_path) as (app, proxy):
            got = await message(proxy, NEAR)
            assert got.status == 200 and paths(app) == [COUNT, "/v1/messages"]
            assert app.received[1].body == NEAR
            told = at(0.95)(NEAR)
            assert ours(got)["count"] == "calibrated" and int(ours(got)["tokens"]) == told
            assert results(proxy) == {"ok": 1}

    run(check())


def test_without_a_counter_the_same_request_is_cut(tmp_path: Path) -> None:
    async def check() -> None:
        async with before(tmp_path, PLIMSOLL_COUNTER_TIMEOUT="0") as (app, proxy):
            got = await message(proxy, NEAR)
            assert got.status == 200 and paths(app) == ["/v1/messages"] and "steps" in ours(got)
            assert app.received[0].body != NEAR

    run(check())


def test_what_the_provider_says_is_too_long_is_cut_before_it_is_refused(tmp_path: Path) -> None:
    async def check() -> None:
        async with before(tmp_path, 1.2) as (app, proxy):
            got = await message(proxy, NEAR)
            assert got.status == 200 and paths(app) == [COUNT, "/v1/messages"]
            assert at(1.2)(app.received[1].body) <= WINDOW and "steps" in ours(got)

    run(check())


@pytest.mark.parametrize("sent", [FAR, OVER], ids=["fits", "does not fit"])
def test_nobody_is_asked_where_the_margin_decides_nothing(sent: bytes, tmp_path: Path) -> None:
    async def check() -> None:
        async with before(tmp_path) as (app, proxy):
            assert (await message(proxy, sent)).status == 200
            assert paths(app) == ["/v1/messages"] and results(proxy) == {}

    run(check())


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_a_request_that_is_not_changed_causes_no_question(mode: str, tmp_path: Path) -> None:
    async def check() -> None:
        async with before(tmp_path, PLIMSOLL_MODE=mode) as (app, proxy):
            await message(proxy, NEAR)
            assert paths(app) == ["/v1/messages"]

    run(check())


def test_an_inspection_asks_nobody_and_says_so(tmp_path: Path) -> None:
    async def check() -> None:
        async with before(tmp_path) as (app, proxy):
            sent = post(NEAR, *HEADERS, target=b"/inspect/v1/messages")
            found = json.loads((await ask(proxy.port, sent)).body)
            assert app.received.maxlen and not app.received
            assert "count that is not known yet would be asked for" in json.dumps(found)
            await message(proxy, NEAR)
            known = json.loads((await ask(proxy.port, sent)).body)
            assert known["steps"] == [] and known["tokens"]["quality"] == "calibrated"

    run(check())


def test_a_repeated_request_is_asked_about_once_and_another_key_anew(tmp_path: Path) -> None:
    async def check() -> None:
        async with before(tmp_path) as (app, proxy):
            for _ in range(2):
                assert (await message(proxy, NEAR)).status == 200
            assert paths(app).count(COUNT) == 1 and results(proxy) == {"ok": 1, "cached": 1}
            other = (HEADERS[0], b"x-api-key: another", HEADERS[2])
            await message(proxy, NEAR, *other)
            assert paths(app).count(COUNT) == 2

    run(check())


def test_requests_at_once_share_one_question(tmp_path: Path) -> None:
    async def check() -> None:
        async with before(tmp_path) as (app, proxy):
            got = await asyncio.gather(*(message(proxy, NEAR) for _ in range(4)))
            assert [reply.status for reply in got] == [200] * 4
            assert paths(app).count(COUNT) < 4 and paths(app).count("/v1/messages") == 4

    run(check())


def test_the_count_calibrates_what_follows(tmp_path: Path) -> None:
    async def check() -> None:
        async with before(tmp_path, 1.2) as (_, proxy):
            for tokens in range(7_400, 8_600, 200):
                assert (await message(proxy, conversation(tokens))).status == 200
            (found,) = proxy.services.cache.calibrations(MODEL)
            assert found.answers >= 6 and found.correction.share is not None

    run(check())


def test_a_clients_own_question_passes_through_as_it_is(tmp_path: Path) -> None:
    async def check() -> None:
        async with before(tmp_path) as (app, proxy):
            sent = json.dumps({k: v for k, v in json.loads(NEAR).items() if k != "max_tokens"}).encode()
            got = await ask(proxy.port, post(sent, *HEADERS, target=COUNT.encode()))
            assert json.loads(got.body) == {"input_tokens": at(0.95)(sent)} and app.received[0].body == sent

    run(check())


# vLLM and llama.cpp, which their lists of models name.


@pytest.mark.parametrize(("owner", "asked"), [("vllm", ["/tokenize"]), ("llamacpp", ["/apply-template", "/tokenize"])])
def test_a_server_whose_list_names_it_is_asked_beside_its_base_path(owner: str, asked: list[str]) -> None:
    def chat(messages: list[dict[str, str]]) -> bytes:
        return body(messages, "my-model", max_tokens=500)

    near = conversation(7_000, count_prompt, chat)

    async def check() -> None:
        count = at(0.95, count_prompt)
        config = SimulatorConfig(windows={"my-model": WINDOW}, owner=owner, provider="vllm", count=count)
        async with simulating(config) as (app, url), plimsoll(url, **PATIENT) as proxy:
            got = await proxy.chat(near)
            assert got.status == 200 and app.received[-1].body == near
            assert paths(app) == ["/v1/models", *asked, "/v1/chat/completions"]

    run(check())


def test_gemini_is_asked_beside_its_path_for_openais_clients(tmp_path: Path) -> None:
    row = """
[[counter]]
name = "gemini"
api = "chat"
hosts = ["127.0.0.1"]
form = "gemini"
key_header = "x-goog-api-key"
calls = [{ path = "/models/{model}:countTokens", beside = "/openai", answer = "totalTokens" }]
"""

    def chat(messages: list[dict[str, str]]) -> bytes:
        return body(messages, "gemini-2.5-pro", max_tokens=500)

    near = conversation(7_200, count_prompt, chat)
    told = round(0.95 * count_prompt(near))

    async def gemini(request: Request, peer: Peer) -> None:
        if request.target.endswith(b":countTokens"):
            await peer.send(answer(json.dumps({"totalTokens": told}).encode()))
        else:
            await peer.send(answer(b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi"}}]}'))

    async def check() -> None:
        async with recording(gemini) as up:
            base = up.url.removesuffix("/v1") + "/v1beta/openai"
            async with plimsoll(base, PLIMSOLL_RULES=rules(tmp_path, row), **PATIENT) as proxy:
                got = await proxy.chat(near)
                assert got.status == 200 and ours(got)["tokens"] == str(told)
                asked, sent = up.requests
                assert asked.target == b"/v1beta/models/gemini-2.5-pro:countTokens"
                assert asked.header(b"x-goog-api-key") == [b"sk-test"] and asked.header(b"authorization") == []
                assert len(json.loads(asked.body)["generateContentRequest"]["contents"]) == near.count(b'"role"')
                assert sent.target == b"/v1beta/openai/chat/completions" and sent.body == near

    run(check())


@pytest.mark.parametrize("enabled", [False, True])
def test_responses_are_counted_where_a_row_says_so(enabled: bool, tmp_path: Path) -> None:
    row = f"""
[[counter]]
name = "openai"
api = "responses"
hosts = ["127.0.0.1"]
enabled = {str(enabled).lower()}
calls = [{{ path = "/v1/responses/input_tokens", fields = ["model", "input"], answer = "input_tokens" }}]
"""

    def make(messages: list[dict[str, str]]) -> bytes:
        return json.dumps({"model": "mistral-large", "max_output_tokens": 500, "input": messages}).encode()

    async def check() -> None:
        sent = make(talk(150)[1:])
        config = SimulatorConfig(window=WINDOW, count=lambda raw: 7_000)
        given = {"PLIMSOLL_RULES": rules(tmp_path, row), **PATIENT}
        async with simulating(config) as (app, url), plimsoll(url, **given) as proxy:
            await ask(proxy.port, post(sent, *HEADERS, target=b"/v1/responses"))
            assert ("/v1/responses/input_tokens" in paths(app)) is enabled

    run(check())


# Keys and content.


def test_key_and_content_go_to_the_requests_own_upstream_alone(tmp_path: Path, capfd: Any) -> None:
    async def counting(request: Request, peer: Peer) -> None:
        if request.target.endswith(b"count_tokens"):
            await peer.send(answer(json.dumps({"input_tokens": 7_300}).encode()))
        else:
            await peer.send(answer(b'{"type":"message","content":[],"usage":{"input_tokens":7300,"output_tokens":1}}'))

    async def check() -> None:
        async with recording(counting) as default, recording(counting) as other:
            upstreams = f'[[upstream]]\nname = "other"\nurl = "{other.url}"\napi = "anthropic"\nmodels = ["x-*"]\n'
            given = {"PLIMSOLL_RULES": rules(tmp_path, upstreams=upstreams), **PATIENT}
            async with plimsoll(default.url, **given) as proxy:
                assert (await message(proxy, NEAR)).status == 200
                assert other.requests == []
                asked, sent = default.requests
                assert asked.target == b"/v1/messages/count_tokens" and asked.header(b"x-api-key") == [KEY.encode()]
                assert json.loads(asked.body) == {k: v for k, v in json.loads(NEAR).items() if k != "max_tokens"}
                assert asked.header(b"anthropic-version") == [b"2023-06-01"] and sent.body == NEAR
                there = claude([{**m} for m in json.loads(NEAR)["messages"]]).replace(MODEL.encode(), b"x-claude-4-5")
                await message(proxy, there)
                assert len(default.requests) == 2 and other.requests
                everything = b"".join(r.head for r in other.requests)
                assert KEY.encode() not in everything

    run(check())
    captured = capfd.readouterr()
    assert CANARY not in captured.out + captured.err and KEY not in captured.out + captured.err


def test_the_operators_key_goes_along_where_it_goes_with_the_request(tmp_path: Path) -> None:
    async def check() -> None:
        config = SimulatorConfig(window=WINDOW, count=at(0.95), api_key="sk-operator")
        upstreams = '[[upstream]]\nname = "row"\nurl = "{url}"\napi = "anthropic"\nmodels = ["claude-*"]\n'
        upstreams += 'key = "ROW_KEY"\nkey_header = "x-api-key"\ncallers = "any"\n'
        async with simulating(config) as (app, url):
            given = {"PLIMSOLL_RULES": rules(tmp_path, upstreams=upstreams.replace("{url}", url)), **PATIENT}
            async with plimsoll("http://127.0.0.1:9/v1", ROW_KEY="sk-operator", **given) as proxy:
                assert (await message(proxy, NEAR)).status == 200
                assert paths(app) == [COUNT, "/v1/messages"]
                assert {request.header(b"x-api-key") for request in app.received} == {b"sk-operator"}

    run(check())


# Bad counters.


async def drip(request: Request, peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    with contextlib.suppress(OSError):
        for _ in range(200):
            await peer.send(b" ")
            await asyncio.sleep(0.1)


BAD: dict[str, Any] = {
    "an absurd number": answer(b'{"input_tokens":999999999}'),
    "nearly nothing": answer(b'{"input_tokens":1}'),
    "a negative number": answer(b'{"input_tokens":-7000}'),
    "a text": answer(b'{"input_tokens":"7000"}'),
    "no number": answer(b'{"input_tokens":null}'),
    "no JSON": answer(b"<html>"),
    "another body": answer(b'{"tokens":7000}'),
    "deep JSON": answer(b"[" * 100_000),
    "a huge body": answer(b'{"input_tokens":7000,"x":"' + b"x" * (9 << 20) + b'"}'),
    "compressed": answer(b"\x1f\x8b\x08\x00\x00", b"200 OK\r\ncontent-encoding: gzip"),
    "a redirect": answer(b"", b"302 Found\r\nlocation: http://127.0.0.1:1/v1/messages/count_tokens"),
    "401": answer(b"{}", b"401 Unauthorized"),
    "404": answer(b"{}", b"404 Not Found"),
    "405": answer(b"{}", b"405 Method Not Allowed"),
    "429": answer(b"{}", b"429 Too Many Requests"),
    "500": answer(b"{}", b"500 Internal Server Error"),
    "half an answer": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
    "a slow drip": drip,
}


@contextlib.asynccontextmanager
async def with_counter(counter: Any, folder: Path, **environment: str) -> AsyncIterator[tuple[Recorder, Running]]:
    """An upstream with a counter, which answers all else."""

    async def script(request: Request, peer: Peer) -> None:
        if not request.target.endswith(b"count_tokens"):
            await peer.send(answer(b'{"type":"message","content":[],"usage":{"input_tokens":9,"output_tokens":1}}'))
        elif callable(counter):
            await counter(request, peer)
        else:
            await peer.send(counter)
            if not counter.endswith(b"}") or b"content-length: 100\r" in counter:
                peer.close()

    given = {"PLIMSOLL_RULES": rules(folder), **PATIENT, **environment}
    async with recording(script) as up, plimsoll(up.url, **given) as proxy:
        yield up, proxy


@pytest.mark.parametrize("name", BAD)
def test_a_bad_counter_changes_nothing_and_is_left_alone_for_a_while(name: str, tmp_path: Path) -> None:
    async def check() -> None:
        seconds = "0.1" if name == "a slow drip" else "20"
        async with with_counter(BAD[name], tmp_path, PLIMSOLL_COUNTER_TIMEOUT=seconds) as (up, proxy):
            cut = [await message(proxy, sent) for sent in (NEAR, conversation(7_800))]
            assert [reply.status for reply in cut] == [200, 200] and all("steps" in ours(reply) for reply in cut)
            assert {ours(reply)["count"] for reply in cut} == {"estimated"}
            assert sum(r.target.endswith(b"count_tokens") for r in up.requests) == 1
            assert sum(results(proxy).values()) == 1 and "ok" not in results(proxy)

    run(check())


def test_a_counter_that_fails_for_one_key_is_asked_for_another(tmp_path: Path) -> None:
    async def only_one(request: Request, peer: Peer) -> None:
        known = request.header(b"x-api-key") == [KEY.encode()]
        await peer.send(answer(b'{"input_tokens":7300}') if known else answer(b"{}", b"401 Unauthorized"))

    async def check() -> None:
        async with with_counter(only_one, tmp_path) as (_, proxy):
            assert "steps" in ours(await message(proxy, NEAR, HEADERS[0], b"x-api-key: wrong", HEADERS[2]))
            assert "steps" not in ours(await message(proxy, NEAR))

    run(check())


def test_a_count_that_comes_late_serves_the_next_request(tmp_path: Path) -> None:
    waiting = asyncio.Event()

    async def late(request: Request, peer: Peer) -> None:
        await waiting.wait()
        await peer.send(answer(b'{"input_tokens":7300}'))

    async def check() -> None:
        async with with_counter(late, tmp_path, PLIMSOLL_COUNTER_TIMEOUT="0.05") as (up, proxy):
            assert "steps" in ours(await message(proxy, NEAR))
            waiting.set()
            await eventually(lambda: results(proxy) == {"late": 1, "ok": 1}, 30)
            assert "steps" not in ours(await message(proxy, NEAR))
            assert sum(r.target.endswith(b"count_tokens") for r in up.requests) == 1

    run(check())


def test_a_refusal_after_a_count_is_healed(tmp_path: Path) -> None:
    """The counter says that it fits, and the model refuses it."""

    async def check() -> None:
        async with before(tmp_path) as (app, proxy):
            real = at(0.95)
            app.config = SimulatorConfig(window=WINDOW, count=lambda raw: real(raw) + 800 * (b"max_tokens" in raw))
            got = await message(proxy, NEAR)
            assert got.status == 200 and paths(app) == [COUNT, "/v1/messages", "/v1/messages"]
            assert "steps" in ours(got)

    run(check())


# Several replicas.


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as running:
        yield running


def test_replicas_share_a_count_and_redis_has_nothing_of_the_prompt(
    server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_patient(monkeypatch)

    async def check() -> None:
        shared = {"PLIMSOLL_REDIS": server.url, "PLIMSOLL_SECRET": "a secret of the user's own"}
        given = {"PLIMSOLL_RULES": rules(tmp_path), **PATIENT, **shared}
        config = SimulatorConfig(window=WINDOW, count=at(0.95))
        async with simulating(config) as (app, url), plimsoll(url, **given) as one, plimsoll(url, **given) as two:
            for proxy in (one, two):
                await eventually(lambda proxy=proxy: connected(proxy), 20)  # type: ignore[misc]
            assert "steps" not in ours(await message(one, NEAR))
            await eventually(lambda: any(":counted:" in name for name in server.names()), 30)
            assert "steps" not in ours(await message(two, NEAR))
            assert paths(app).count(COUNT) == 1 and results(two) == {"cached": 1}
            everything = b"".join(server.cli("--raw", "GET", name) for name in server.names())
            assert CANARY.encode() not in everything and KEY.encode() not in everything

    run(check())


def connected(proxy: Running) -> bool:
    """Whether it asks its Redis."""
    found = proxy.services.cache._remote
    return found is not None and found.read_breaker.closed and proxy.services.cache._keyring.sealer is not None


def test_the_metrics_count_the_questions(tmp_path: Path) -> None:
    async def check() -> None:
        async with before(tmp_path) as (_, proxy):
            for _ in range(2):
                await message(proxy, NEAR)
            text = (await ask(proxy.port, get(b"/metrics"))).body.decode()
            for result in ("ok", "cached"):
                assert f'plimsoll_extra_calls_total{{kind="count",result="{result}"}} 1' in text

    run(check())
