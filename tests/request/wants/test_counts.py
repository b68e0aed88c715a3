"""Asking an upstream for its count: what is asked, how often, for whom; and what goes wrong is no count."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.config.rules import load_rules
from proxy.config.settings import read_settings
from proxy.fit.plan import start
from proxy.fit.provider_count import KIND
from proxy.model.conversation import Form, Stored
from proxy.model.limits import Window
from proxy.model.plan import CountRequest, Draft, Facts, Want
from proxy.model.structs import replace
from proxy.request.wants import counts as module
from proxy.request.wants.counts import ProviderCounts
from proxy.services import Services, build
from proxy.upstreams.access import Access
from proxy.upstreams.extra_calls import CallCost
from proxy.upstreams.internal_client import tenant_of
from proxy.upstreams.upstream import Upstream
from tests.makers import ladder, prompt, user, words
from tests.recorder import Peer, Recorder, Request, Script, answer, recording
from tests.serving import eventually, run

ALICE = [(b"authorization", b"Bearer alice")]
BOB = [(b"authorization", b"Bearer bob")]
MODEL = "claude-sonnet-4-5"
CALL = 'calls = [{ path = "/v1/count", fields = ["model", "messages"], answer = "tokens" }]'
ROWS = f"""
[[counter]]
name = "local"
api = "chat"
hosts = ["127.0.0.1"]
headers = ["x-beta"]
{CALL}
"""
GEMINI = """
[[counter]]
name = "local"
api = "chat"
hosts = ["127.0.0.1"]
form = "gemini"
calls = [{ path = "/models/{model}:countTokens", answer = "totalTokens" }]
"""
SENT = prompt([user(words(1_500))], model=MODEL)


async def telling(request: Request, peer: Peer) -> None:
    """An upstream that counts a token and a half for each word."""
    text = "".join(m["content"] for m in json.loads(request.body)["messages"])
    await peer.send(answer(json.dumps({"tokens": 3 * len(text.split())}).encode()))


def wanted(services: Services, sent: Any = SENT, window: int = 4_000) -> Want:
    found = Facts(Window(window), services.knowledge.meter(sent, sent.model))
    return Want(KIND, KIND, CountRequest(sent, start(sent, ladder(), found)))


def draft_of(want: Want) -> Draft:
    assert isinstance(want.payload, CountRequest)
    return want.payload.draft


@contextlib.asynccontextmanager
async def counting(
    folder: Path, script: Script = telling, rows: str = ROWS, **environment: str
) -> AsyncIterator[tuple[Recorder, Services, ProviderCounts]]:
    (folder / "counters.toml").write_text(rows, "utf-8")
    given = {"PLIMSOLL_RULES": str(folder), "PLIMSOLL_COUNTER_TIMEOUT": "20", **environment}
    async with recording(script) as up:
        services = build(read_settings({"PLIMSOLL_UPSTREAM": up.url, **given}), lambda outcome: None)
        await services.open()
        try:
            found = services.providers[KIND]
            assert isinstance(found, ProviderCounts)
            yield up, services, found
        finally:
            await services.close()


def results(services: Services) -> dict[str, int]:
    return {result: n for (kind, result), n in services.extra_calls.calls().items() if kind == KIND}


def test_a_prompt_is_counted_once_for_each_key_and_body(tmp_path: Path) -> None:
    async def check() -> None:
        async with counting(tmp_path) as (up, services, found):
            want = wanted(services)
            for headers in (ALICE, ALICE, BOB, [*ALICE, (b"x-beta", b"1")], [*ALICE, (b"x-other", b"1")]):
                assert await found.fulfil(want, headers) == 4_500
            assert len(up.requests) == 3 and results(services) == {"ok": 3, "cached": 2}
            assert json.loads(up.requests[0].body).keys() == {"model", "messages"}

    run(check())


def test_nobody_is_asked_who_must_not_be_and_what_is_known_is_told(tmp_path: Path) -> None:
    async def check() -> None:
        async with counting(tmp_path) as (up, services, found):
            want = wanted(services)
            assert await found.fulfil(want, ALICE, ask=False) == 0 and up.requests == []
            await found.fulfil(want, ALICE)
            assert await found.fulfil(want, ALICE, ask=False) == 4_500

    run(check())


def test_what_a_count_costs_is_time_and_no_tokens(tmp_path: Path) -> None:
    async def check() -> None:
        async with counting(tmp_path) as (_, services, found):
            spent = CallCost()
            await found.fulfil(wanted(services), ALICE, spent=spent)
            assert spent.calls == 1 and spent.tokens == 0 and spent.seconds > 0
            assert services.extra_calls.tokens()[(KIND,)] == 0

    run(check())


def test_two_at_once_ask_once(tmp_path: Path) -> None:
    ready = asyncio.Event()

    async def slowly(request: Request, peer: Peer) -> None:
        await ready.wait()
        await telling(request, peer)

    async def check() -> None:
        async with counting(tmp_path, slowly) as (up, services, found):
            both = [asyncio.create_task(found.fulfil(wanted(services), ALICE)) for _ in range(2)]
            await eventually(lambda: bool(up.requests), 30)
            ready.set()
            assert await asyncio.gather(*both) == [4_500, 4_500] and len(up.requests) == 1

    run(check())


def test_only_what_the_upstream_can_count_is_wanted(tmp_path: Path) -> None:
    async def check() -> None:
        async with counting(tmp_path) as (_, services, found):
            assert found.counts(SENT)
            assert not found.counts(replace(SENT, api="messages"))
            assert not found.counts(replace(SENT, form=Form(apart=True)))
            assert not found.counts(replace(SENT, stored=Stored(continues="resp_1")))
            off = ROWS + "enabled = false\n"
            assert not replace(found, counters=()).counts(SENT) and not replace(found, seconds=0.0).counts(SENT)
            (tmp_path / "counters.toml").write_text(off.replace(CALL, "").rstrip() + "\n" + CALL, "utf-8")
            assert not found.with_rules(load_rules(tmp_path), services.knowledge).counts(SENT)
            assert await replace(found, counters=()).fulfil(wanted(services), ALICE) == 0

    run(check())


def test_a_token_that_would_go_in_another_header_is_none_of_another_upstreams(tmp_path: Path) -> None:
    async def check() -> None:
        async with counting(tmp_path, rows=GEMINI + 'key_header = "x-goog-api-key"\n') as (_, _services, found):
            assert found.counts(SENT)
            upstream = found.client.upstream
            assert isinstance(upstream, Upstream)
            upstream.access = Access()
            assert not found.counts(SENT)

    run(check())


def test_what_cannot_be_asked_is_no_failure(tmp_path: Path) -> None:
    """A prompt that has no place in the form of the count, and a model that no path may name."""

    async def check() -> None:
        async with counting(tmp_path, rows=GEMINI) as (up, services, found):
            part = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
            remote = prompt([user(words(1_500)), {"role": "user", "content": [part]}], model=MODEL)
            assert await found.fulfil(wanted(services, remote), ALICE) == 0 and results(services) == {}
            odd = prompt([user(words(1_500))], model="claude?x")
            assert await found.fulfil(wanted(services, odd), ALICE) == 0 and up.requests == []

    run(check())


def test_a_body_that_is_too_long_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BODY", 1_000)

    async def check() -> None:
        async with counting(tmp_path) as (up, services, found):
            assert await found.fulfil(wanted(services), ALICE) == 0 and up.requests == []

    run(check())


def test_a_long_body_and_a_long_answer_are_handled_in_a_thread(tmp_path: Path) -> None:
    async def tokens(request: Request, peer: Peer) -> None:
        await peer.send(answer(json.dumps({"tokens": list(range(40_000))}).encode()))

    async def check() -> None:
        async with counting(tmp_path, tokens) as (_, services, found):
            assert await found.fulfil(wanted(services, prompt([user(words(14_000))], model=MODEL)), ALICE) == 40_000

    run(check())


def test_a_key_that_is_refused_is_left_alone_and_others_are_not(tmp_path: Path) -> None:
    async def refusing(request: Request, peer: Peer) -> None:
        if request.header(b"authorization") == [b"Bearer alice"]:
            await peer.send(answer(b'{"error":"canary"}', b"401 Unauthorized"))
        else:
            await telling(request, peer)

    async def check() -> None:
        async with counting(tmp_path, refusing) as (up, services, found):
            for _ in range(2):
                assert await found.fulfil(wanted(services), ALICE) == 0
            assert await found.fulfil(wanted(services), BOB) == 4_500 and len(up.requests) == 2
            assert results(services) == {"failed": 1, "ok": 1} and found.breaker.closed

    run(check())


def test_a_model_that_does_not_exist_says_nothing_about_others(tmp_path: Path) -> None:
    async def missing(request: Request, peer: Peer) -> None:
        if b"claude-none" in request.body:
            await peer.send(answer(b"{}", b"404 Not Found"))
        else:
            await telling(request, peer)

    async def check() -> None:
        async with counting(tmp_path, missing) as (up, services, found):
            none = wanted(services, replace(SENT, model="claude-none", head={**SENT.head, "model": b'"claude-none"'}))
            for _ in range(2):
                assert await found.fulfil(none, ALICE) == 0
            assert await found.fulfil(wanted(services), ALICE) == 4_500 and len(up.requests) == 2

    run(check())


def test_where_no_connection_can_be_made_the_breaker_opens_for_all(tmp_path: Path) -> None:
    async def check() -> None:
        async with counting(tmp_path, PLIMSOLL_UPSTREAM="http://127.0.0.1:9/v1") as (_, services, found):
            for headers in (ALICE, BOB):
                assert await found.fulfil(wanted(services), headers) == 0
            assert results(services) == {"failed": 1} and not found.breaker.closed

    run(check())


@pytest.mark.parametrize("tokens", [1, 2_000, 10_000, 10**9])
def test_a_count_that_cannot_be_true_is_none_even_if_it_is_cached(tokens: int, tmp_path: Path) -> None:
    async def telling_it(request: Request, peer: Peer) -> None:
        await peer.send(answer(json.dumps({"tokens": tokens}).encode()))

    async def check() -> None:
        async with counting(tmp_path, telling_it) as (_, services, found):
            want = wanted(services)
            assert await found.fulfil(want, ALICE) == 0 and results(services) == {"failed": 1}
            counter = found._counter(SENT)
            assert counter is not None
            key, _ = found._question(counter, SENT, BOB)
            services.cache.counted.put(tenant_of(BOB), key.hex(), tokens)
            assert await found.fulfil(want, BOB) == 0

    run(check())


def test_a_count_of_what_is_cut_calibrates_and_one_of_what_is_sent_leaves_that_to_its_usage(tmp_path: Path) -> None:
    async def check() -> None:
        async with counting(tmp_path) as (_, services, found):
            await found.fulfil(wanted(services, window=10_000), ALICE)
            assert services.cache.calibrations(MODEL) == []
            await found.fulfil(wanted(services, window=4_000), BOB)
            (learned,) = services.cache.calibrations(MODEL)
            assert learned.answers == 1

    run(check())


def test_a_bug_of_ours_fails_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*args: Any) -> None:
        raise ValueError("canary")

    async def check() -> None:
        async with counting(tmp_path) as (_, services, found):
            want = wanted(services)
            monkeypatch.setattr(module, "is_believable", raising)
            assert await found.fulfil(want, ALICE) == 0
            monkeypatch.setattr(ProviderCounts, "_question", raising)
            assert await found.fulfil(want, BOB) == 0

    run(check())


def test_the_end_cancels_what_is_under_way(tmp_path: Path) -> None:
    async def never(request: Request, peer: Peer) -> None:
        await peer.gone()

    async def check() -> None:
        async with counting(tmp_path, never, PLIMSOLL_COUNTER_TIMEOUT="0.05") as (_, services, found):
            assert await found.fulfil(wanted(services), ALICE) == 0 and results(services) == {"late": 1}
            assert found._calls
            await found.close()
            assert not found._calls

    run(check())
