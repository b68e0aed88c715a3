"""Several upstreams at once: which request goes where, with whose key, and what is kept apart."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.simulator.app import Simulator, SimulatorConfig
from tests.e2e.services import KEY, PATH, Running, body, error, ours, plimsoll, simulating, talk
from tests.keys import checking_keys
from tests.recorder import Peer, Recorder, Request, Script, answer, recording
from tests.serving import Reply, ask, get, post, run
from tests.upstreams.providers import claude, refusing

CLIENT, OPERATOR, LENT = "canary-client-2718", "canary-operator-3141", "canary-lent-1618"
KEYS = {"LARGE_KEY": OPERATOR}
MINE = b"authorization: Bearer " + CLIENT.encode()
DONE = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":'
DONE += b'{"prompt_tokens":12,"completion_tokens":1}}'
SHORT = body(talk(2), "large-1")
HERE = body(talk(2), "gpt-4o")
# Every place in which a client may have a credential.
CREDENTIALS = (
    MINE,
    b"x-api-key: " + CLIENT.encode(),
    b"api-key: " + CLIENT.encode(),
    b"x-goog-api-key: " + CLIENT.encode(),
    b"cookie: session=" + CLIENT.encode(),
    b"x-litellm-api-key: " + CLIENT.encode(),
    b"x-somebodys-own-header: " + CLIENT.encode(),
    b"openai-organization: " + CLIENT.encode(),
    b"proxy-authorization: Basic " + CLIENT.encode(),
)


async def good(request: Request, peer: Peer) -> None:
    await peer.send(answer(DONE))


def rules(folder: Path, *rows: str) -> str:
    """A rules folder with these upstreams, which check keys, and with windows, so that no list of models is read."""
    sizes = {"large-*": 100_000, "any-*": 100_000, "gpt-4": 4_096}
    windows = "".join(f'[[window]]\nmodel = "{name}"\ntokens = {size}\n' for name, size in sizes.items())
    (folder / "windows.toml").write_text(windows, "utf-8")
    (folder / "upstreams.toml").write_text("".join(f"[[upstream]]\n{row}\n" for row in rows), "utf-8")
    return checking_keys(folder)


def row(name: str, url: str, *fields: str) -> str:
    return "\n".join((f'name = "{name}"', f'url = "{url}"', *fields))


LARGE = ('models = ["large-*"]', 'key = "LARGE_KEY"')


@contextlib.asynccontextmanager
async def two(
    folder: Path, fields: Sequence[str] = LARGE, script: Script = good, **environment: str
) -> AsyncIterator[tuple[Recorder, Recorder, Running]]:
    """The default upstream, another one, and a proxy before both."""
    async with recording(good) as default, recording(script) as other:
        given = rules(folder, row("other", other.url, *fields))
        async with plimsoll(default.url, PLIMSOLL_RULES=given, **KEYS, **environment) as proxy:
            yield default, other, proxy


async def chat(proxy: Running, sent: bytes, *headers: bytes, target: bytes = PATH) -> Reply:
    return await ask(proxy.port, post(sent, *headers, target=target))


def everything(recorder: Recorder) -> bytes:
    return b"".join(request.head + request.raw_body for request in recorder.requests)


def test_the_model_decides_and_each_upstream_gets_its_own_key(tmp_path: Path) -> None:
    async def check() -> None:
        async with two(tmp_path) as (default, other, proxy):
            assert (await chat(proxy, HERE, *CREDENTIALS)).status == 200  # its key is accepted now
            got = await chat(proxy, SHORT, *CREDENTIALS, b"user-agent: me", b"x-stainless-os: Linux")
            assert got.status == 200 and ours(got)["upstream"] == "other"
            (here,), (there,) = default.requests, other.requests
            assert here.header(b"authorization") == [b"Bearer " + CLIENT.encode()] and here.body == HERE
            assert there.header(b"authorization") == [b"Bearer " + OPERATOR.encode()] and there.body == SHORT
            assert there.header(b"user-agent") == [b"me"] and there.header(b"x-stainless-os") == [b"Linux"]
            assert CLIENT.encode() not in everything(other)
            assert OPERATOR.encode() not in everything(default)
            assert [(await proxy.told(n)).upstream for n in (1, 2)] == ["default", "other"]

    run(check())


@pytest.mark.parametrize("name", ["other", "default"])
def test_a_header_names_the_upstream_and_goes_to_none(tmp_path: Path, name: str) -> None:
    async def check() -> None:
        async with two(tmp_path, ('models = ["x"]',)) as (default, other, proxy):
            got = await chat(proxy, HERE, MINE, b"x-plimsoll-upstream: " + name.encode())
            assert got.status == 200
            asked = other if name == "other" else default
            assert len(asked.requests) == 1 == len(default.requests) + len(other.requests)
            assert b"plimsoll" not in everything(asked)

    run(check())


def test_an_unknown_name_is_an_error_of_the_client(tmp_path: Path) -> None:
    async def check() -> None:
        async with two(tmp_path) as (default, other, proxy):
            for target in (PATH, b"/v1/audio/speech"):
                got = await chat(proxy, HERE, MINE, b"x-plimsoll-upstream: nowhere", target=target)
                assert (got.status, error(got)["code"]) == (400, "invalid_header")
                assert "default, other" in error(got)["message"]
            assert not default.requests and not other.requests
        async with recording(good) as alone, plimsoll(alone.url) as proxy:
            for target in (PATH, b"/v1/audio/speech"):
                got = await chat(proxy, HERE, MINE, b"x-plimsoll-upstream: other", target=target)
                assert (got.status, error(got)["code"]) == (400, "invalid_header")
                assert (await chat(proxy, HERE, MINE, b"x-plimsoll-upstream: default", target=target)).status == 200

    run(check())


def test_only_a_caller_whose_own_key_was_accepted_spends_the_operators(tmp_path: Path) -> None:
    async def check() -> None:
        async with two(tmp_path) as (_, other, proxy):
            for headers in ((MINE,), ()):
                got = await chat(proxy, SHORT, *headers)
                assert (got.status, error(got)["code"]) == (403, "upstream_not_permitted")
            await chat(proxy, HERE, MINE)
            assert (await chat(proxy, SHORT, MINE)).status == 200
            assert (await chat(proxy, SHORT, MINE + b"x")).status == 403  # somebody else
            assert (await chat(proxy, SHORT)).status == 403
            await chat(proxy, HERE)  # the default upstream needs no key
            assert (await chat(proxy, SHORT)).status == 200
            assert len(other.requests) == 2

    run(check())


def test_an_answer_that_the_operators_key_bought_vouches_for_nobody(tmp_path: Path) -> None:
    async def refusing(request: Request, peer: Peer) -> None:
        await peer.send(answer(b'{"error":{"message":"no"}}', b"401 Unauthorized"))

    async def check() -> None:
        async with recording(refusing) as default, recording(good) as anyones, recording(good) as other:
            given = rules(
                tmp_path,
                row("anyones", anyones.url, 'models = ["any-*"]', 'callers = "any"', 'key = "LARGE_KEY"'),
                row("other", other.url, *LARGE),
            )
            async with plimsoll(default.url, PLIMSOLL_RULES=given, **KEYS) as proxy:
                assert (await chat(proxy, body(talk(2), "any-1"), MINE)).status == 200
                assert (await chat(proxy, HERE, MINE)).status == 401
                assert (await chat(proxy, SHORT, MINE)).status == 403

    run(check())


def test_callers_without_a_key_may_be_excluded(tmp_path: Path) -> None:
    async def check() -> None:
        async with two(tmp_path, PLIMSOLL_EXTRA_CALLS_KEYLESS="false", PLIMSOLL_API_KEY=LENT) as (
            default,
            other,
            proxy,
        ):
            assert (await chat(proxy, HERE)).status == 200
            assert (await chat(proxy, SHORT)).status == 403
            assert LENT.encode() in everything(default) and not other.requests

    run(check())


def test_the_key_that_is_lent_to_clients_goes_to_the_default_upstream_alone(tmp_path: Path) -> None:
    async def check() -> None:
        async with two(tmp_path, ('models = ["large-*"]',), PLIMSOLL_API_KEY=LENT) as (default, other, proxy):
            assert (await chat(proxy, HERE)).status == (await chat(proxy, SHORT)).status == 200
            assert LENT.encode() in everything(default)
            assert LENT.encode() not in everything(other) and not other.requests[0].header(b"authorization")

    run(check())


@pytest.mark.parametrize(
    ("header", "sent"),
    [
        ("authorization", b"Bearer " + OPERATOR.encode()),
        ("x-api-key", OPERATOR.encode()),
        ("api-key", OPERATOR.encode()),
        ("x-goog-api-key", OPERATOR.encode()),
    ],
)
def test_a_key_goes_in_the_header_that_the_row_names(tmp_path: Path, header: str, sent: bytes) -> None:
    async def check() -> None:
        fields = (*LARGE, 'callers = "any"', f'key_header = "{header}"')
        async with two(tmp_path, fields) as (_, other, proxy):
            assert (await chat(proxy, SHORT, *CREDENTIALS)).status == 200
            assert other.requests[0].header(header.encode()) == [sent]
            assert CLIENT.encode() not in everything(other)

    run(check())


def test_a_key_in_the_query_stays_with_the_default_upstream(tmp_path: Path) -> None:
    async def check() -> None:
        async with two(tmp_path, ('models = ["large-*"]',)) as (default, other, proxy):
            query = b"?key=" + CLIENT.encode() + b"&api-version=1&%6bey=" + CLIENT.encode() + b"&x=" + CLIENT.encode()
            assert (await chat(proxy, SHORT, target=PATH + query)).status == 200
            assert other.requests[0].target == PATH + b"?api-version=1"
            await chat(proxy, HERE, target=PATH + query)
            assert default.requests[0].target == PATH + query

    run(check())


def test_paths_that_are_not_fitted_are_routed_by_path_and_header(tmp_path: Path) -> None:
    async def check() -> None:
        fields = ('paths = ["/v1/audio/*"]', 'key = "LARGE_KEY"', 'callers = "any"')
        async with two(tmp_path, fields) as (default, other, proxy):
            await chat(proxy, b"{}", *CREDENTIALS, target=b"/v1/audio/speech?key=" + CLIENT.encode())
            await chat(proxy, b"{}", *CREDENTIALS, target=b"/v1/files")
            assert (other.requests[0].target, default.requests[0].target) == (b"/v1/audio/speech", b"/v1/files")
            assert other.requests[0].header(b"authorization") == [b"Bearer " + OPERATOR.encode()]
            got = await chat(proxy, b"{}", MINE, b"x-plimsoll-upstream: other", target=b"/v1/fine_tuning/jobs")
            assert got.status == 200 and other.requests[1].header(b"authorization") == []  # no call of a model
            assert CLIENT.encode() not in everything(other)
            assert (await proxy.told(1)).upstream == "other"

    run(check())


@pytest.mark.parametrize("path", [b"/v1/audio/../files", b"/v1/audio/%2e%2e/files", b"/v1/audio/..%2ffiles"])
def test_a_path_that_may_be_read_in_two_ways_gets_no_other_upstream(tmp_path: Path, path: bytes) -> None:
    async def check() -> None:
        fields = ('paths = ["/v1/audio/*"]', 'key = "LARGE_KEY"', 'callers = "any"')
        async with two(tmp_path, fields) as (default, other, proxy):
            assert (await chat(proxy, b"{}", MINE, target=path)).status == 200
            assert default.requests[0].target == path
            got = await chat(proxy, b"{}", MINE, b"x-plimsoll-upstream: other", target=path)
            assert (got.status, error(got)["code"], other.requests) == (400, "invalid_path", [])

    run(check())


def test_a_refused_key_of_the_operator_is_no_error_of_the_clients_key(tmp_path: Path) -> None:
    async def refusing(request: Request, peer: Peer) -> None:
        echo = b'{"error":{"message":"Incorrect API key provided: ' + OPERATOR.encode() + b'"}}'
        await peer.send(answer(echo, b"401 Unauthorized"))

    async def check() -> None:
        async with two(tmp_path, (*LARGE, 'callers = "any"'), refusing) as (_, other, proxy):
            got = await chat(proxy, SHORT, MINE)
            assert (got.status, error(got)["code"]) == (502, "upstream_key_refused")
            assert got.header(b"x-should-retry") == [b"false"]
            assert OPERATOR not in got.body.decode() and len(other.requests) == 1

    run(check())


def test_cookies_and_names_of_the_operators_account_go_to_no_client(tmp_path: Path) -> None:
    async def cookies(request: Request, peer: Peer) -> None:
        headers = (b"content-type: application/json", b"set-cookie: a=1", b"openai-organization: acme", b"x-a: 1")
        await peer.send(answer(DONE, headers=headers))

    async def check() -> None:
        async with two(tmp_path, ('models = ["large-*"]',), cookies) as (_, _, proxy):
            got = await chat(proxy, SHORT, MINE)
            assert not got.header(b"set-cookie") and not got.header(b"openai-organization")
            assert got.header(b"x-a") == [b"1"]

    run(check())


@pytest.mark.parametrize("mode", ["off", "observe", "strict"])
def test_every_mode_is_routed(tmp_path: Path, mode: str) -> None:
    async def check() -> None:
        async with two(tmp_path, ('models = ["large-*"]',)) as (default, other, proxy):
            assert (await chat(proxy, SHORT, MINE, b"x-plimsoll-mode: " + mode.encode())).status == 200
            assert other.requests[0].body == SHORT and not default.requests

    run(check())


def test_a_body_that_is_not_understood_goes_to_the_default_upstream(tmp_path: Path) -> None:
    async def check() -> None:
        async with two(tmp_path, ('models = ["*"]',)) as (default, other, proxy):
            assert (await chat(proxy, b'{"model": "large-1"', MINE)).status == 200
            assert default.requests[0].body == b'{"model": "large-1"' and not other.requests

    run(check())


# Moved to a larger model elsewhere, and what is learned

FALLBACK = {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": "large-1"}
OPEN = ('models = ["large-*"]', 'key = "LARGE_KEY"', 'callers = "any"')


@dataclass(slots=True)
class Pair:
    """A small model's simulator, a large model's, and a proxy before both."""

    small: Simulator
    large: Simulator
    proxy: Running

    @property
    def asked(self) -> tuple[int, int]:
        """How many chat requests each of them got."""
        small, large = (sum(r.method == "POST" for r in one.received) for one in (self.small, self.large))
        return small, large


@contextlib.asynccontextmanager
async def pair(
    folder: Path, large: SimulatorConfig | None = None, fields: Sequence[str] = OPEN, **environment: str
) -> AsyncIterator[Pair]:
    configs = (SimulatorConfig(window=4_096), large or SimulatorConfig(window=100_000, api_key=OPERATOR))
    async with simulating(configs[0]) as (small, url), simulating(configs[1]) as (other, large_url):
        given = rules(folder, row("large", large_url, *fields))
        settings = {"PLIMSOLL_RULES": given, **KEYS, **FALLBACK, **environment}
        async with plimsoll(url, **settings) as proxy:
            yield Pair(small, other, proxy)


LONG = body(talk(120), max_tokens=400)  # 6,800 tokens
FULL = body(talk(64), max_tokens=400)  # 3,800 tokens with the reply: it fits, but the load is over 0.9


@pytest.mark.parametrize("sent", [LONG, FULL, LONG.replace(b'"max_tokens"', b'"stream": true, "max_tokens"')])
def test_a_request_moves_to_a_larger_model_of_another_upstream(tmp_path: Path, sent: bytes) -> None:
    async def check() -> None:
        async with pair(tmp_path) as both:
            got = await chat(both.proxy, sent, *CREDENTIALS)
            assert got.status == 200 and both.asked == (0, 1)
            assert (ours(got)["model"], ours(got)["upstream"]) == ("large-1", "large")
            request = both.large.received[-1]
            assert request.json()["messages"] == json.loads(sent)["messages"]
            assert request.header(b"authorization") == b"Bearer " + OPERATOR.encode()
            assert CLIENT.encode() not in b"".join(value for _, value in request.headers)
            told = await both.proxy.told()
            assert (told.model_sent, told.upstream) == ("large-1", "large")

    run(check())


def test_a_request_moves_back_to_the_default_upstream_with_the_clients_own_key(tmp_path: Path) -> None:
    async def check() -> None:
        async with recording(good) as default, recording(good) as local:
            given = rules(tmp_path, row("local", local.url, 'models = ["small-*"]', "window = 4096"))
            settings = {**FALLBACK, "LLM_ALLOWED_FALLBACK_MODELS": "gpt-4o"}
            async with plimsoll(default.url, PLIMSOLL_RULES=given, **settings) as proxy:
                got = await chat(proxy, body(talk(120), "small-1"), MINE)
                assert (got.status, ours(got)["model"], "upstream" in ours(got)) == (200, "gpt-4o", False)
                posts = [r for r in default.requests if r.method == b"POST"]
                assert [r.header(b"authorization") for r in posts] == [[b"Bearer " + CLIENT.encode()]]
                assert not any(r.method == b"POST" for r in local.requests)
                assert CLIENT.encode() not in everything(local)

    run(check())


def test_a_caller_who_may_not_spend_the_key_is_not_moved(tmp_path: Path) -> None:
    async def check() -> None:
        async with pair(tmp_path, fields=LARGE) as both:
            got = await chat(both.proxy, LONG, MINE)
            assert got.status == 200 and both.asked == (1, 0) and "prune_history" in ours(got)["steps"]
            assert (await chat(both.proxy, LONG, MINE)).status == 200 and both.asked == (1, 1)  # accepted by now

    run(check())


def test_a_request_that_names_its_upstream_stays_there(tmp_path: Path) -> None:
    async def check() -> None:
        async with pair(tmp_path) as both:
            got = await chat(both.proxy, LONG, MINE, b"x-plimsoll-upstream: default")
            assert got.status == 200 and both.asked == (1, 0)

    run(check())


def test_a_request_that_refers_to_a_stored_file_stays_there(tmp_path: Path) -> None:
    async def check() -> None:
        async with pair(tmp_path) as both:
            parts = [{"type": "text", "text": "Read it."}, {"type": "file", "file": {"file_id": "file-1"}}]
            await chat(both.proxy, body([*talk(120), {"role": "user", "content": parts}], max_tokens=400), MINE)
            assert both.asked[1] == 0 and both.asked[0] >= 1

    run(check())


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_where_the_larger_model_fails_the_request_is_cut_and_stays(tmp_path: Path, status: int) -> None:
    async def check() -> None:
        async with pair(tmp_path, SimulatorConfig(window=100_000, status=status)) as both:
            got = await chat(both.proxy, LONG, MINE)
            assert got.status == 200 and both.asked == (1, 1) and "upstream" not in ours(got)
            assert "prune_history" in ours(got)["steps"] and "model" not in ours(got)
            got = await chat(both.proxy, FULL, MINE)
            assert got.status == 200 and both.small.received[-1].body == FULL  # byte for byte

    run(check())


def test_an_unreachable_larger_model_is_not_tried_again_at_once(tmp_path: Path) -> None:
    async def check() -> None:
        async with simulating(SimulatorConfig(window=4_096)) as (small, url):
            given = rules(tmp_path, row("large", "http://127.0.0.1:9/v1", *OPEN))
            async with plimsoll(url, PLIMSOLL_RULES=given, **KEYS, **FALLBACK) as proxy:
                for attempts in (2, 1):
                    got = await chat(proxy, LONG, MINE)
                    assert got.status == 200
                    told = await proxy.told(3 - attempts)
                    assert told.attempts == attempts and len(small.received) == 3 - attempts

    run(check())


def test_a_refusal_of_the_larger_model_is_healed_and_learned_for_its_upstream_alone(tmp_path: Path) -> None:
    async def check() -> None:
        fields = ('models = ["gpt-4-turbo"]', *OPEN[1:])
        names = {"LLM_ALLOWED_FALLBACK_MODELS": "gpt-4-turbo"}
        async with pair(tmp_path, SimulatorConfig(window=5_000, api_key=OPERATOR), fields, **names) as both:
            got = await chat(both.proxy, LONG, MINE)
            assert (got.status, both.asked) == (200, (1, 1)) and "prune_history" in ours(got)["steps"]
            routes = both.proxy.services.routes
            assert routes is not None
            (proof,) = routes.backends["large"].knowledge.cache.proofs()
            assert (proof.model, proof.proof.value) == ("gpt-4-turbo", 5_000)
            assert both.proxy.services.cache.proofs() == []
            got = await chat(both.proxy, LONG, MINE)
            assert (got.status, both.asked) == (200, (2, 1))  # it is not asked again

    run(check())


def test_what_a_refusal_teaches_holds_for_the_same_model_of_no_other_upstream(tmp_path: Path) -> None:
    async def check() -> None:
        tight = SimulatorConfig(window=3_000)
        async with simulating(SimulatorConfig(window=50_000)) as (roomy, url), simulating(tight) as (_, tight_url):
            given = rules(tmp_path, row("tight", tight_url, 'models = ["nothing"]'))
            async with plimsoll(url, PLIMSOLL_RULES=given) as proxy:
                there, here = b"x-plimsoll-upstream: tight", b"x-plimsoll-upstream: default"
                sent = body(talk(120), "mystery", max_tokens=400)
                got = await chat(proxy, sent, KEY, there)
                assert got.status == 200 and "steps" in ours(got)
                await chat(proxy, sent, KEY, here)
                assert roomy.received[-1].body == sent
                assert proxy.learned("mystery").window is None
                admin = (b"x-plimsoll-admin: 1",)
                told = json.loads((await ask(proxy.port, get(b"/learned?model=mystery", *admin))).body)
                assert {(limit["upstream"], limit["value"]) for limit in told["limits"]} == {("tight", 3_000)}
                await ask(proxy.port, post(b'{"model": "mystery"}', *admin, target=b"/forget"))
                told = json.loads((await ask(proxy.port, get(b"/learned?model=mystery", *admin))).body)
                assert told["limits"] == []

    run(check())


# Through litellm

CLAUDE = "claude-sonnet-4-5"


def translated(name: str, url: str, *fields: str) -> str:
    """A row for a provider of Anthropic's API behind litellm."""
    lines = ('api = "litellm"', 'provider = "anthropic"', 'models = ["claude-*"]', 'key = "LARGE_KEY"')
    return row(name, url.removesuffix("/v1"), *lines, 'callers = "any"', *fields)


@pytest.mark.parametrize("stream", [False, True])
def test_past_90_percent_a_local_model_gives_way_to_one_behind_litellm(tmp_path: Path, stream: bool) -> None:
    async def check() -> None:
        settings = {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": CLAUDE}
        async with simulating(SimulatorConfig(window=4_096)) as (small, url), recording(claude()) as provider:
            given = rules(tmp_path, translated("claude", provider.url))
            async with plimsoll(url, PLIMSOLL_RULES=given, **KEYS, **settings) as proxy:
                got = await chat(proxy, body(talk(120), max_tokens=400, stream=stream), *CREDENTIALS)
                assert (got.status, ours(got)["upstream"], ours(got)["model"]) == (200, "claude", CLAUDE)
                assert b"Hello" in got.body and got.body.endswith(b"data: [DONE]\n\n") == stream
                (request,) = provider.requests
                assert request.header(b"x-api-key") == [OPERATOR.encode()] and not small.received
                assert CLIENT.encode() not in everything(provider)
                assert len(json.loads(request.body)["messages"]) == 121  # all but the instructions
                told = await proxy.told()
                assert (told.upstream, told.model_sent) == ("claude", CLAUDE)

    run(check())


def test_a_refusal_behind_litellm_is_healed_and_learned(tmp_path: Path) -> None:
    async def check() -> None:
        words = "prompt is too long: 5900 tokens > 5000 maximum"
        refused = False

        async def script(request: Request, peer: Peer) -> None:
            nonlocal refused
            first, refused = not refused, True
            await (refusing(b"400 Bad Request", "invalid_request_error", words) if first else claude())(request, peer)

        async with recording(good) as default, recording(script) as provider:
            given = rules(tmp_path, translated("claude", provider.url))
            async with plimsoll(default.url, PLIMSOLL_RULES=given, **KEYS) as proxy:
                got = await chat(proxy, body(talk(120), CLAUDE, max_tokens=400), MINE)
                assert got.status == 200 and "prune_history" in ours(got)["steps"]
                first, second = provider.requests
                assert len(second.body) < len(first.body) and not default.requests
                assert (await proxy.told()).healed
                routes = proxy.services.routes
                assert routes is not None
                assert [p.proof.value for p in routes.backends["claude"].knowledge.cache.proofs() if p.kind != "scale"]

    run(check())


def test_two_upstreams_of_two_apis_and_one_behind_litellm_serve_at_once(tmp_path: Path) -> None:
    async def check() -> None:
        async with recording(good) as default, recording(claude()) as messages, recording(claude()) as provider:
            native = ('api = "anthropic"', 'paths = ["/v1/messages*"]', 'key = "LARGE_KEY"', 'key_header = "x-api-key"')
            rows = (row("messages", messages.url, *native, 'callers = "any"'), translated("claude", provider.url))
            async with plimsoll(default.url, PLIMSOLL_RULES=rules(tmp_path, *rows), **KEYS) as proxy:
                sent = body([{"role": "user", "content": "Hi"}], CLAUDE, max_tokens=50)
                got = await asyncio.gather(
                    *(chat(proxy, HERE, *CREDENTIALS) for _ in range(3)),
                    *(chat(proxy, sent, *CREDENTIALS) for _ in range(3)),
                    *(chat(proxy, sent, *CREDENTIALS, target=b"/v1/messages") for _ in range(3)),
                )
                assert {one.status for one in got} == {200}
                assert [len(one.requests) for one in (default, messages, provider)] == [3, 3, 3]
                assert all(request.body == sent for request in messages.requests)  # byte for byte
                assert CLIENT.encode() not in everything(messages) + everything(provider)
                assert OPERATOR.encode() not in everything(default)

    run(check())


def test_an_image_that_a_provider_would_have_to_fetch_stays_with_the_local_model(tmp_path: Path) -> None:
    async def check() -> None:
        settings = {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": CLAUDE}
        async with recording(good) as local, recording(claude()) as provider:
            given = rules(tmp_path, translated("claude", provider.url))
            async with plimsoll(local.url, PLIMSOLL_RULES=given, **KEYS, **settings) as proxy:
                image = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}
                last = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}
                got = await chat(proxy, body([*talk(70), last], max_tokens=400), MINE)
                assert got.status == 200 and not provider.requests and "upstream" not in ours(got)
                assert (await proxy.told()).attempts == 2  # it was tried

    run(check())


# Every API, and what its upstream stores

SPOKEN = talk(120)[1:]
ITEMS = [{"type": "message", "role": turn["role"], "content": turn["content"]} for turn in SPOKEN]
IMAGE = {"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "file-1"}}]}
APIS: dict[bytes, tuple[dict[str, Any], dict[str, Any]]] = {
    b"/v1/responses": ({"input": ITEMS, "max_output_tokens": 400}, {"previous_response_id": "resp_1"}),
    b"/v1/messages": ({"messages": SPOKEN, "max_tokens": 400}, {"messages": [*SPOKEN, SPOKEN[1], IMAGE]}),
}


@pytest.mark.parametrize("target", APIS)
def test_each_api_moves_to_an_upstream_that_has_it_unless_it_is_bound_to_its_own(tmp_path: Path, target: bytes) -> None:
    plain, bound = APIS[target]

    async def check() -> None:
        async with recording(good) as default, recording(good) as other, recording(good) as wrong:
            api = "anthropic" if b"messages" in target else "openai"
            apis = {"openai": "anthropic", "anthropic": "openai"}
            rows = (
                row("wrong", wrong.url, 'models = ["large-*"]', f'api = "{apis[api]}"'),
                row("other", other.url, *OPEN, f'api = "{api}"'),
            )
            settings = {"PLIMSOLL_RULES": rules(tmp_path, *rows), **KEYS, **FALLBACK}
            async with plimsoll(default.url, **settings) as proxy:
                got = await chat(proxy, json.dumps({"model": "gpt-4", **plain}).encode(), *CREDENTIALS, target=target)
                assert (got.status, ours(got)["upstream"], ours(got)["model"]) == (200, "other", "large-1")
                sent = json.loads(other.requests[0].body)
                assert sent == {**plain, "model": "large-1"} and CLIENT.encode() not in everything(other)
                got = await chat(proxy, json.dumps({"model": "gpt-4", **plain, **bound}).encode(), MINE, target=target)
                assert got.status == 200 and "upstream" not in ours(got)
                assert [len(one.requests) for one in (default, other, wrong)] == [1, 1, 0]

    run(check())


@pytest.mark.parametrize("stream", [False, True])
def test_W26_messages_move_to_a_messages_row_with_its_key_their_versions_and_its_usage(
    tmp_path: Path, stream: bool
) -> None:
    async def check() -> None:
        async with recording(claude()) as default, recording(claude()) as other:
            fields = ('models = ["large-*"]', 'api = "anthropic"', 'key = "LARGE_KEY"', 'key_header = "x-api-key"')
            given = rules(tmp_path, row("other", other.url, *fields, 'callers = "any"'))
            async with plimsoll(default.url, PLIMSOLL_RULES=given, **KEYS, **FALLBACK) as proxy:
                fitted = {"model": "gpt-4", "messages": SPOKEN, "max_tokens": 400, "stream": stream}
                versions = (b"anthropic-version: 2023-06-01", b"anthropic-beta: context-1m-2025-08-07")
                key = b"x-api-key: " + CLIENT.encode()
                got = await chat(proxy, json.dumps(fitted).encode(), key, *versions, target=b"/v1/messages?beta=true")
                assert (got.status, ours(got)["model"], ours(got)["steps"]) == (
                    *(200, "large-1", "switch_model;gpt-4->large-1"),
                )
                (request,) = other.requests
                assert not default.requests and request.target == b"/v1/messages?beta=true"
                assert request.header(b"x-api-key") == [OPERATOR.encode()] and not request.header(b"authorization")
                assert request.header(b"anthropic-version") == [b"2023-06-01"]
                assert request.header(b"anthropic-beta") == [b"context-1m-2025-08-07"]
                assert json.loads(request.body) == {**fitted, "model": "large-1"}
                told = await proxy.told()
                assert told.usage is not None and (told.usage.prompt, told.usage.completion) == (25, 2)
                assert (told.upstream, told.model_sent, told.unmoved) == ("other", "large-1", "")

    run(check())


@pytest.mark.parametrize("target", APIS)
def test_W26_where_no_upstream_has_the_model_for_an_api_that_is_told(tmp_path: Path, target: bytes) -> None:
    async def check() -> None:
        async with recording(good) as default, recording(claude()) as provider:
            given = rules(tmp_path, translated("claude", provider.url))
            allowed = {**FALLBACK, "LLM_ALLOWED_FALLBACK_MODELS": CLAUDE}
            async with plimsoll(default.url, PLIMSOLL_RULES=given, **KEYS, **allowed) as proxy:
                sent = json.dumps({"model": "gpt-4", **APIS[target][0]}).encode()
                got = await chat(proxy, sent, MINE, target=target)
                assert got.status == 200 and not provider.requests
                assert f"not moved to {CLAUDE}: no upstream has it for this API" in ours(got)["notice"]
                assert (await proxy.told()).unmoved_by == ("no_api",)

    run(check())


def test_a_websocket_to_another_upstream_brings_no_key_of_the_client(tmp_path: Path) -> None:
    async def refuses(request: Request, peer: Peer) -> None:
        await peer.send(answer(b"{}", b"403 Forbidden"))

    async def check() -> None:
        fields = ('paths = ["/v1/realtime"]', 'key = "LARGE_KEY"', 'callers = "any"')
        async with two(tmp_path, fields, refuses) as (default, other, proxy):
            protocols = b"sec-websocket-protocol: realtime, openai-insecure-api-key." + CLIENT.encode()
            shake = (b"connection: upgrade", b"upgrade: websocket", b"sec-websocket-key: eA==", protocols)
            sent = get(b"/v1/realtime?model=gpt-4o&key=" + CLIENT.encode(), *shake, *CREDENTIALS)
            got = await ask(proxy.port, sent)
            assert (got.status, error(got)["code"]) == (502, "upstream_key_refused") and not default.requests
            (request,) = other.requests
            assert request.target == b"/v1/realtime?model=gpt-4o" and CLIENT.encode() not in everything(other)
            assert request.header(b"sec-websocket-protocol") == [b"realtime"]
            assert request.header(b"sec-websocket-key") == [b"eA=="]
            assert request.header(b"authorization") == [b"Bearer " + OPERATOR.encode()]

    run(check())
