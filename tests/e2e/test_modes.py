"""What may be done to a request, and what is told of it: modes, our own bugs, /inspect, the admin port, readiness."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.apis import error_body
from proxy.apis.openai_chat import request as chat_request
from proxy.app import create_admin, create_app
from proxy.config.settings import read_settings
from proxy.http.server.serve import Config, Server
from proxy.model.outcome import Outcome
from proxy.observe.metrics.groups import OTHER
from proxy.services import build
from proxy.simulator.app import SimulatorConfig
from tests.e2e.services import KEY, PATH, TOO_MUCH, before_simulator, body, error, ours, plimsoll, talk
from tests.recorder import Recorder, recording
from tests.serving import ask, eventually, get, post, run, serving

INSPECT = b"/inspect" + PATH
LONG = body(talk(400), max_tokens=500)


def test_observing_tells_what_would_be_done_and_sends_the_original() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url, PLIMSOLL_MODE="observe") as proxy:
            reply = await proxy.chat(LONG)
            assert [r.body for r in up.requests] == [LONG]
            told = ours(reply)
            assert told["tokens"] == told["tokens-sent"] and told["max-tokens"] == "500"
            assert told["steps"].startswith("prune_history;-")
            outcome = await proxy.told()
            assert (outcome.result, outcome.mode, outcome.prompt) == ("passed", "observe", outcome.prompt_sent)
            assert not outcome.too_long, "the original was sent"
            assert [note.step for note in outcome.planned] == ["prune_history"] and outcome.notes == ()
            assert told["mode"] == "observe"
            assert outcome.messages_in == outcome.messages_sent == 402

    run(check())


def test_observing_lets_pass_what_could_not_be_made_to_fit() -> None:
    sent = body([{"role": "system", "content": "x " * 9_000}, {"role": "user", "content": "Hi"}], **TOO_MUCH)

    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            assert (await proxy.chat(sent)).status == 400
            assert (await proxy.chat(sent, b"x-plimsoll-mode: observe")).status == 200
            assert [r.body for r in up.requests] == [sent]

    run(check())


def test_off_passes_everything_through_and_measures_nothing() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url, PLIMSOLL_MODE="off") as proxy:
            reply = await proxy.chat(LONG)
            assert [r.body for r in up.requests] == [LONG] and ours(reply) == {}
            outcome = await proxy.told()
            assert (outcome.result, outcome.mode, outcome.prompt) == ("passed", "off", None)
            assert (await proxy.chat(LONG, b"x-plimsoll-mode: fit")).status == 200
            assert len(up.requests[1].body) < len(LONG)

    run(check())


STRICT_REFUSES = {
    "no json": (b"{", ()),
    "a wrong type": (b'{"model":"gpt-4","messages":"Hi"}', ()),
    "an encoding": (LONG, (b"content-encoding: zstd",)),
}


@pytest.mark.parametrize("what", STRICT_REFUSES)
def test_strict_refuses_what_it_cannot_understand(what: str) -> None:
    sent, headers = STRICT_REFUSES[what]

    async def check() -> None:
        async with recording() as up, plimsoll(up.url, PLIMSOLL_MODE="strict") as proxy:
            reply = await proxy.chat(sent, *headers)
            assert (reply.status, error(reply)["code"]) == (400, "not_understood")
            assert up.requests == []
            assert (await proxy.told()).result == "not_understood"
            assert (await proxy.chat(LONG)).status == 200  # what it understands it fits
            assert len(up.requests[0].body) < len(LONG)

    run(check())


def test_a_mode_that_there_is_not_is_told() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            for header in (b"x-plimsoll-mode: on", b"x-plimsoll-ladder: nobodys", b"x-plimsoll-pin: first"):
                reply = await proxy.chat(LONG, header)
                assert (reply.status, error(reply)["code"]) == (400, "invalid_header")
                assert error(reply)["param"] == header.partition(b":")[0].decode()
            assert up.requests == []
            assert {o.result for o in proxy.outcomes} == {"rejected"}

    run(check())


def test_a_ladder_may_be_chosen_for_one_request() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url, PLIMSOLL_LADDER="chat") as proxy:
            await proxy.chat(LONG)
            await proxy.chat(LONG, b"x-plimsoll-ladder: economy")
            assert [o.ladder for o in proxy.outcomes] == ["chat", "economy"]

    run(check())


def test_what_the_client_pins_is_kept() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            await proxy.chat(LONG)
            await proxy.chat(LONG, b"x-plimsoll-pin: 7, 9")
            plain, pinned = ({m["content"] for m in json.loads(r.body)["messages"]} for r in up.requests)
            wanted = {talk(400)[i]["content"] for i in (7, 9)}
            assert not wanted & plain and wanted <= pinned

    run(check())


# Our own bugs.

CANARY = "canary-3141"


def broken(*args: Any, **kwargs: Any) -> Any:
    """A bug whose text holds what a client wrote."""
    raise KeyError(CANARY)


# Where it may hit, and whether the request is long.
BUGS = {
    "scanning": ("proxy.apis.openai_chat.request.scan", True),
    "scanning a short one": ("proxy.apis.openai_chat.request.scan", False),
    "parsing": ("proxy.apis.openai_chat.request.parse", True),
    "parsing a short one": ("proxy.apis.openai_chat.request.parse", False),
    "planning": ("proxy.request.planning.plan", True),
    "rendering": ("proxy.apis.openai_chat.request.render", True),
    "counting": ("proxy.tokens.encodings.Encoding.count", True),
    "resolving the model": ("proxy.request.facts.Knowledge.known", True),
    "proving": ("proxy.request.prepare.proves", False),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_ours_forwards_the_original(
    bug: str, stream: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place, long = BUGS[bug]
    sent = body(talk(400) if long else talk(2), "gpt-4" if long else "gpt-4o", stream=stream)

    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            monkeypatch.setattr(place, broken)
            reply = await proxy.chat(sent)
            assert (reply.status, reply.body, ours(reply)) == (200, b"{}", {})
            assert [r.body for r in up.requests] == [sent]
            outcome = await proxy.told()
            assert (outcome.result, outcome.prompt) == ("bug", None)
            metrics = (await ask(proxy.port, get(b"/metrics"))).body.decode()
            labels = f'endpoint="chat",model="{outcome.model or OTHER}",result="bug",status="200"'
            assert f"plimsoll_requests_total{{{labels}}} 1.0" in metrics

    run(check())
    told = capfd.readouterr()
    assert "a bug of ours was caught kind=KeyError at=test_modes.py:" in told.err
    assert CANARY not in told.err + told.out


def test_a_step_that_fails_forwards_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ladder is bound to its steps when it is read."""
    monkeypatch.setattr("proxy.fit.steps.prune_history.apply", broken)

    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            assert (await proxy.chat(LONG)).status == 200
            assert [r.body for r in up.requests] == [LONG]
            assert (await proxy.told()).result == "bug"
            reply = await proxy.chat(LONG, b"x-plimsoll-mode: strict")
            assert (reply.status, error(reply)["code"]) == (400, "not_understood")
            assert "the proxy itself failed" in error(reply)["message"]

    run(check())


def test_a_bug_while_healing_hands_the_refusal_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.request.heal.learn", broken)

    async def check() -> None:
        async with before_simulator(SimulatorConfig(windows={"gpt-4": 4_096})) as (up, proxy):
            reply = await proxy.chat(body(talk(100)))
            assert (reply.status, error(reply)["code"]) == (400, "context_length_exceeded")
            assert len(up.received) == 1

    run(check())


@pytest.mark.parametrize(
    "place", ["proxy.request.response_headers.plan_headers", "proxy.request.refusal_detection.recognise"]
)
def test_a_bug_behind_the_answer_is_an_error_in_our_shape(
    place: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(place, broken)

    async def check() -> None:
        async with before_simulator(SimulatorConfig(windows={"gpt-4": 4_096})) as (_, proxy):
            reply = await proxy.chat(body(talk(100 if "recognise" in place else 400)))
            assert (reply.status, error(reply)["code"]) == (500, "proxy_error")
            assert (await proxy.told()).result == "bug"

    run(check())
    assert CANARY not in "".join(capfd.readouterr())


@pytest.mark.parametrize("place", ["proxy.observe.metrics.exposition.Metrics.observe", "proxy.request.facts.sample_of"])
def test_a_bug_in_what_is_told_costs_no_answer(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, broken)

    async def check() -> None:
        async with before_simulator(SimulatorConfig()) as (_, proxy):
            for _ in range(2):
                assert (await proxy.chat(LONG)).status == 200

    run(check())


# /inspect.


async def inspected(port: int, sent: bytes, *headers: bytes) -> Any:
    """The plan for a body."""
    reply = await ask(port, post(sent, *headers, target=INSPECT))
    return (reply.status, json.loads(reply.body))


def test_inspect_shows_the_plan_and_sends_nothing() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            status, told = await inspected(proxy.port, LONG)
            assert status == 200 and up.requests == []
            assert (told["model"], told["model_sent"], told["window"], told["fits"]) == ("gpt-4", "gpt-4", 8_192, True)
            assert told["tokens"]["prompt"] > told["tokens"]["prompt_sent"]
            assert (told["tokens"]["max_tokens_sent"], told["tokens"]["quality"]) == (500, "exact")
            assert [step["step"] for step in told["steps"]] == ["prune_history"]
            assert told["messages"]["in"] == 402 and told["messages"]["sent"] == len(told["request"]["messages"])
            await proxy.chat(LONG)
            assert json.loads(up.requests[0].body) == told["request"]

    run(check())


def test_inspect_leaves_a_body_that_fits_as_it_is() -> None:
    sent = b'{ "messages" : [{"role":"user","content":"\\u00fc"}], "model":"gpt-4o" }'

    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await ask(proxy.port, post(sent, target=INSPECT))
            assert sent in reply.body and json.loads(reply.body)["steps"] == []

    run(check())


def test_inspect_heeds_the_headers_of_a_request() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            _, told = await inspected(proxy.port, LONG, b"x-plimsoll-window: 4000")
            assert (told["window"], told["window_source"]) == (4_000, "header")
            _, told = await inspected(proxy.port, LONG, b"x-plimsoll-window: 400000")
            assert told["window"] == 8_192
            _, told = await inspected(proxy.port, LONG, b"x-plimsoll-pin: 7")
            states = {m["index"]: m["state"] for m in told["messages"]["detail"]}
            assert (states[7], states[8]) == ("kept", "dropped")
            near = body(talk(100))
            assert (await inspected(proxy.port, near))[1]["steps"] == []
            _, told = await inspected(proxy.port, near, b"x-plimsoll-ladder: economy")
            assert [step["step"] for step in told["steps"]] == ["prune_history"]
            _, told = await inspected(proxy.port, gzip.compress(LONG), b"content-encoding: gzip")
            assert told["steps"]
            _, told = await inspected(proxy.port, LONG, b"x-plimsoll-mode: off")
            assert told["steps"]
            assert up.requests == []

    run(check())


def test_inspect_says_what_cannot_fit() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            status, told = await inspected(proxy.port, body(talk(2), **TOO_MUCH))
            assert (status, told["fits"]) == (200, False) and told["excess"] > 0 and not told["possible"]

    run(check())


@pytest.mark.parametrize("bad", [b"", b"{", b"[]", b'{"model":"gpt-4"}', b'{"model":"gpt-4","messages":[{}]}'])
def test_inspect_tells_what_it_does_not_understand(bad: bytes) -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await ask(proxy.port, post(bad, target=INSPECT))
            assert (reply.status, error(reply)["code"]) == (400, "not_understood")
            reply = await ask(proxy.port, post(LONG, b"x-plimsoll-window: no", target=INSPECT))
            assert (reply.status, error(reply)["code"]) == (400, "invalid_header")
            reply = await ask(proxy.port, post(LONG, b"content-encoding: br", target=INSPECT))
            assert (reply.status, error(reply)["code"]) == (400, "not_understood")

    run(check())


def test_inspect_takes_no_more_than_a_request_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url, PLIMSOLL_MAX_BODY="10kB") as proxy:
            assert (await ask(proxy.port, post(LONG, target=INSPECT))).status == 413
            monkeypatch.setattr(chat_request, "parse", broken)
            reply = await ask(proxy.port, post(body(talk(2)), target=INSPECT))
            assert (reply.status, error(reply)["code"]) == (500, "proxy_error")

    run(check())


# Ports and readiness.


@contextlib.asynccontextmanager
async def two_ports() -> AsyncIterator[tuple[Recorder, int, int]]:
    """A proxy with a port of its own for those who watch it, before a recorder: data port, admin port."""
    outcomes: list[Outcome] = []
    async with recording() as up:
        services = build(read_settings({"PLIMSOLL_UPSTREAM": up.url, "PLIMSOLL_ADMIN_PORT": "9"}), outcomes.append)
        async with serving(create_app(services)) as data, serving(create_admin(services)) as admin:
            yield up, data.ports[0], admin.ports[0]


def test_with_an_admin_port_the_data_port_keeps_our_paths_from_the_provider() -> None:
    async def check() -> None:
        async with two_ports() as (up, data, admin):
            paths = (b"/metrics", b"/healthz", b"/readyz", b"/inspect" + PATH)
            for path in paths:
                assert error(await ask(data, get(path)))["code"] == "not_found"
            assert (await ask(data, post(LONG, target=INSPECT))).status == 404
            assert up.requests == []
            assert b"plimsoll_requests_total" in (await ask(admin, get(b"/metrics"))).body
            assert (await ask(admin, get(b"/healthz"))).body == b"alive\n"
            assert (await ask(admin, get(b"/readyz"))).body == b"ready\n"
            assert (await inspected(admin, LONG))[0] == 200
            assert (await ask(admin, post(LONG, KEY, target=PATH))).status == 404
            assert up.requests == []

    run(check())


def test_admin_routes_answer_heads_and_are_not_kept() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await ask(proxy.port, get(b"/healthz", method=b"HEAD"), bodyless=True)
            assert (reply.status, reply.header(b"content-length")) == (200, [b"6"])
            assert reply.header(b"cache-control") == [b"no-store"]
            assert up.requests == []

    run(check())


def test_readiness_needs_neither_redis_nor_the_upstream() -> None:
    async def check() -> None:
        async with plimsoll("http://127.0.0.1:9/v1", PLIMSOLL_REDIS="redis://127.0.0.1:9/0") as proxy:
            assert (await ask(proxy.port, get(b"/readyz"))).status == 200
            assert (await ask(proxy.port, get(b"/healthz"))).status == 200
            reply = await proxy.chat(body(talk(2)))
            assert (reply.status, error(reply)["code"]) == (502, "upstream_unreachable")

    run(check())


def test_readiness_falls_before_anything_else_when_told_to_stop() -> None:
    async def check() -> None:
        async with recording() as up:
            services = build(read_settings({"PLIMSOLL_UPSTREAM": up.url}), lambda outcome: None)
            async with serving(create_app(services)) as server:
                port = server.ports[0]
                assert (await ask(port, get(b"/readyz"))).status == 200
                server.lifespan.state["draining"] = True  # what the server does first (tests/http/server/test_serve.py)
                reply = await ask(port, get(b"/readyz"))
                assert (reply.status, reply.body) == (503, b"not ready\n")
                assert (await ask(port, get(b"/healthz"))).status == 200
                assert (await ask(port, post(LONG, KEY, target=PATH))).status == 200  # who still comes is served
            assert not services.ready

    run(check())


def test_a_stop_waits_for_running_answers() -> None:
    async def check() -> None:
        async with before_simulator(SimulatorConfig(head_delay=0.5)) as (up, proxy):
            services = proxy.services
            server = Server(Config(create_app(services), "127.0.0.1", 0, error_body, drain=5))
            task = asyncio.create_task(server.serve())
            await eventually(lambda: server.started, 30)
            port = server.ports[0]
            asked = asyncio.create_task(ask(port, post(LONG, KEY, target=PATH)))
            await eventually(lambda: up.received, 30)
            server.should_exit = True
            assert (await asked).status == 200
            await task

    run(check())
