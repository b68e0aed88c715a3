"""Models that no table knows: asked of the upstream once, learned from refusals, capped by client and user."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from proxy.simulator.app import Simulator, SimulatorConfig
from tests.e2e.services import KEY, PATH, before_simulator, body, ours, plimsoll, talk
from tests.recorder import Peer, Request, answer, recording
from tests.serving import ask, eventually, get, post, run

NOBODY = "acme/harbour-9b"
LONG = talk(250)  # some 13,000 tokens
LIST = b'{"object":"list","data":[{"id":"acme/harbour-9b","max_model_len":4096},{"id":"other"}]}'


def asked(up: Simulator) -> int:
    """How often the list of models was asked for."""
    return sum(r.path == "/v1/models" for r in up.received)


def chats(up: Simulator) -> list[int]:
    """How many messages each chat request held."""
    return [len(r.json()["messages"]) for r in up.received if r.method == "POST"]


def test_a_guess_cuts_nothing_and_a_refusal_teaches_the_window(capfd: pytest.CaptureFixture[str]) -> None:
    async def check() -> None:
        config = SimulatorConfig(windows={NOBODY: 12_000}, window_field="")
        async with before_simulator(config) as (up, proxy):
            reply = await proxy.chat(body(talk(180), NOBODY, max_tokens=100))
            assert reply.status == 200 and "steps" not in ours(reply)
            outcome = await proxy.told()
            assert (outcome.result, outcome.window_source, outcome.quality) == ("passed", "guess", "estimated")

            assert (await proxy.chat(body(LONG, NOBODY, max_tokens=100))).status == 200
            outcome = await proxy.told(2)
            assert (outcome.result, outcome.window, outcome.window_source) == ("healed", 12_000, "refusal")
            assert chats(up)[:2] == [182, 252] and chats(up)[2] < 252

            assert (await proxy.chat(body(LONG, NOBODY, max_tokens=100))).status == 200
            assert (await proxy.told(3)).result == "fitted" and len(chats(up)) == 4
            assert asked(up) == 1

    run(check())
    lines = [line for line in capfd.readouterr().err.splitlines() if "unknown model" in line]
    assert len(lines) == 1 and NOBODY in lines[0] and "8192" in lines[0]


def test_a_refusal_without_figures_teaches_the_guess() -> None:
    async def check() -> None:
        async with before_simulator(SimulatorConfig("groq", windows={NOBODY: 9_000}, window_field="")) as (_, proxy):
            assert (await proxy.chat(body(LONG, NOBODY, max_tokens=100))).status == 200
            outcome = await proxy.told()
            assert (outcome.result, outcome.window) == ("healed", 8_192)

    run(check())


def test_a_ladder_may_assume_that_the_guess_is_true(tmp_path: Path) -> None:
    (tmp_path / "ladder.toml").write_text('unknown = "assume"\n[[step]]\nname = "prune_history"\n')

    async def check() -> None:
        config = SimulatorConfig(windows={NOBODY: 100_000}, window_field="")
        limits = {"CONTEXT_TOTAL_TOKEN_LIMIT": "50000"}
        for environment in ({}, limits):
            async with before_simulator(config, PLIMSOLL_RULES=str(tmp_path), **environment) as (up, proxy):
                assert (await proxy.chat(body(LONG, NOBODY, max_tokens=100))).status == 200
                outcome = await proxy.told()
                assert (outcome.result, outcome.window, outcome.window_source) == ("fitted", 8_192, "guess")
                assert len(chats(up)) == 1 and chats(up)[0] < 252

    run(check())


@pytest.mark.parametrize("listed", ["max_model_len", "context_length", "context_window", "max_context_length"])
def test_the_upstreams_own_list_is_asked_once(listed: str) -> None:
    async def check() -> None:
        async with before_simulator(SimulatorConfig(windows={NOBODY: 4_096}, window_field=listed)) as (up, proxy):
            for i in range(3):
                reply = await proxy.chat(body(LONG, NOBODY, max_tokens=100), b"x-tag: 1", b"accept-encoding: gzip")
                assert reply.status == 200
                outcome = await proxy.told(i + 1)
                assert (outcome.result, outcome.window, outcome.window_source) == ("fitted", 4_096, "upstream")
            assert asked(up) == 1 and len(chats(up)) == 3
            question = next(r for r in up.received if r.method == "GET")
            assert question.header(b"authorization") == b"Bearer sk-test"
            assert question.header(b"content-type") is question.header(b"accept-encoding") is None
            assert question.body == b""

    run(check())


def test_one_list_answers_for_all_models_and_what_it_lacks_is_not_asked_again() -> None:
    async def check() -> None:
        async with before_simulator(SimulatorConfig(windows={NOBODY: 4_096, "harbour-70b": 5_000})) as (up, proxy):
            for model in ("nobody-1", NOBODY, "nobody-2", "harbour-70b", "nobody-1"):
                up.config = up.config  # the simulator refuses nobody's models too, at 8,192
                await proxy.chat(body(talk(2), model))
            assert asked(up) == 1
            assert [o.window for o in proxy.outcomes] == [8_192, 4_096, 8_192, 5_000, 8_192]

    run(check())


def test_requests_that_come_at_once_share_one_question() -> None:
    async def check() -> None:
        config = SimulatorConfig(windows={NOBODY: 4_096}, head_delay=0.2)
        async with before_simulator(config) as (up, proxy):
            replies = await asyncio.gather(*(proxy.chat(body(LONG, NOBODY, max_tokens=100)) for _ in range(5)))
            assert [r.status for r in replies] == [200] * 5
            assert asked(up) == 1 and len(chats(up)) == 5
            assert {o.window for o in proxy.outcomes} == {4_096}

    run(check())


def test_a_model_that_we_know_is_never_asked_for() -> None:
    async def check() -> None:
        async with before_simulator(SimulatorConfig(windows={"gpt-4": 8_192})) as (up, proxy):
            await proxy.chat(body(talk(4)))
            await proxy.chat(body(talk(4), NOBODY), b"x-plimsoll-window: 9000")
            assert asked(up) == 0

    run(check())


BAD_LISTS = {
    "not found": answer(b"{}", b"404 Not Found"),
    "no json": answer(b"<html>", b"200 OK"),
    "an error": answer(b'{"error":{"message":"no"}}', b"500 Oops"),
    "absurd": answer(b'{"data":[{"id":"acme/harbour-9b","max_model_len":-5}]}'),
    "packed": answer(b"\x1f\x8b\x08\x00", b"200 OK", (b"content-type: application/json", b"content-encoding: gzip")),
    "nothing": b"",
}


@pytest.mark.parametrize("bad", BAD_LISTS)
def test_a_list_that_is_none_breaks_nothing(bad: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET" and not BAD_LISTS[bad]:
            peer.reset()
        else:
            await peer.send(BAD_LISTS[bad] if request.method == b"GET" else answer())

    async def check() -> None:
        async with recording(script) as up, plimsoll(up.url) as proxy:
            for _ in range(3):
                assert (await proxy.chat(body(LONG, NOBODY))).status == 200
            assert [r.method for r in up.requests] == [b"GET", b"POST", b"POST", b"POST"]
            assert {o.window for o in proxy.outcomes} == {8_192}

    run(check())


def test_a_list_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.upstreams.models_listing.REQUEST_WAIT_S", 0.2)
    late = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await late.wait()
        await peer.send(answer(LIST if request.method == b"GET" else b"{}"))

    async def check() -> None:
        async with recording(script) as up, plimsoll(up.url) as proxy:
            assert (await proxy.chat(body(LONG, NOBODY, max_tokens=100))).status == 200, "before the list comes"
            assert json.loads(up.requests[-1].body)["messages"] == LONG
            late.set()  # what comes late is there for the next request
            await eventually(lambda: proxy.services.gateway.default.planner.knowledge.listing._fetch_task is None)
            assert (await proxy.chat(body(LONG, NOBODY, max_tokens=100))).status == 200
            assert (await proxy.told(2)).window == 4_096
            assert sum(r.method == b"GET" for r in up.requests) == 1

    run(check())


def test_a_wrong_key_does_not_speak_for_all_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.upstreams.models_listing.RETRY_S", 0.0)

    async def check() -> None:
        async with before_simulator(SimulatorConfig(windows={NOBODY: 4_096}, api_key="sk-test")) as (_, proxy):
            sent = body(LONG, NOBODY, max_tokens=100)
            wrong = post(sent, b"authorization: Bearer sk-wrong", target=PATH)
            assert (await ask(proxy.port, wrong)).status == 401
            assert (await proxy.chat(sent)).status == 200
            assert (await proxy.told(2)).window == 4_096

    run(check())


# Caps.


def test_a_header_caps_the_window_of_a_model_that_we_know_and_never_raises_it() -> None:
    async def check() -> None:
        async with before_simulator(SimulatorConfig(windows={"gpt-4": 8_192})) as (up, proxy):
            reply = await proxy.chat(body(talk(100), max_tokens=100), b"x-plimsoll-window: 3000")
            assert int(ours(reply)["tokens-sent"]) + 100 <= 3_000
            assert (await proxy.told()).window_source == "header"
            assert (await proxy.chat(body(talk(400), max_tokens=100), b"x-plimsoll-window: 100000")).status == 200
            assert (await proxy.told(2)).window == 8_192
            assert (await proxy.chat(body(talk(100), max_tokens=100))).status == 200
            assert (await proxy.told(3)).result == "passed"  # it held for one request
            assert len(chats(up)) == 3

    run(check())


def test_a_header_is_the_window_of_a_model_that_nobody_knows() -> None:
    async def check() -> None:
        async with before_simulator(SimulatorConfig(windows={NOBODY: 100_000}, window_field="")) as (up, proxy):
            reply = await proxy.chat(body(LONG, NOBODY, max_tokens=100), b"x-plimsoll-window: 12345")
            assert reply.status == 200
            outcome = await proxy.told()
            assert (outcome.window, outcome.window_source, outcome.result) == (12_345, "header", "fitted")
            assert asked(up) == 0

    run(check())


@pytest.mark.parametrize("model", ["gpt-4o", NOBODY])
def test_the_users_limit_holds_for_every_model(model: str) -> None:
    async def check() -> None:
        config = SimulatorConfig(windows={model: 100_000}, window_field="")
        async with before_simulator(config, CONTEXT_TOTAL_TOKEN_LIMIT="6000") as (_, proxy):
            reply = await proxy.chat(body(LONG, model, max_tokens=100))
            assert reply.status == 200 and int(ours(reply)["tokens-sent"]) < 6_000
            outcome = await proxy.told()
            assert (outcome.window, outcome.window_source) == (6_000, "limit")
            await proxy.chat(body(LONG, model, max_tokens=100), b"x-plimsoll-window: 50000")
            assert (await proxy.told(2)).window == 6_000

    run(check())


def test_a_wrong_window_header_is_told() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            for value in (b"0", b"-5", b"many", b"1e9"):
                reply = await proxy.chat(body(talk(2)), b"x-plimsoll-window: " + value)
                assert reply.status == 400 and b"x-plimsoll-window" in reply.body
            assert up.requests == []
            assert (await ask(proxy.port, get(b"/v1/models", KEY))).status == 200

    run(check())
