"""Seed 003's 85 %: old history becomes a summary; a summariser that fails, stalls or lies changes nothing."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from proxy.model.outcome import Outcome
from proxy.simulator.app import SimulatorConfig
from tests.e2e.services import KEY, PATH, Running, before_simulator, body, ours, plimsoll, talk
from tests.keys import checking_keys
from tests.recorder import Peer, Request, Script, answer, head, recording
from tests.serving import ask, eventually, post, run

SUM = "gpt-4o-mini"
SET = {"PLIMSOLL_SUMMARY_MODEL": SUM}
TOLD = "They counted cargo; the crane is red."
DONE = json.dumps({"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}).encode()
UNDER, OVER, FULL = 118, 126, 190  # turns: loads of 0.83, 0.88 and 1.3
CLOSED = "http://127.0.0.1:9/v1"


def sent(turns: int) -> bytes:
    """A conversation for a window of 8192 tokens, 500 of them for the reply."""
    return body(talk(turns), max_tokens=500)


def said(text: str) -> bytes:
    """A summariser's answer."""
    return json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}).encode()


def telling(text: str = TOLD) -> bytes:
    return answer(said(f"<summary>\n{text}\n</summary>"))


def asked(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.body)
    return found


def is_question(request: Request) -> bool:
    return bool(asked(request)["model"] == SUM)


def upstream(*answers: bytes | Script) -> Script:
    """An upstream whose summariser gives these answers, the last one for ever."""
    left = list(answers)

    async def script(request: Request, peer: Peer) -> None:
        if not is_question(request):
            await peer.send(answer(DONE))
            return
        now = left.pop(0) if len(left) > 1 else left[0]
        await (peer.send(now) if isinstance(now, bytes) else now(request, peer))

    return script


def split(requests: list[Request]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The questions for a summary, and the clients' requests as they arrived."""
    return [asked(r) for r in requests if is_question(r)], [r.body for r in requests if not is_question(r)]


def summarised(told: Outcome) -> bool:
    return "summarise_history" in [note.step for note in told.notes]


def test_from_85_percent_on_a_summary_stands_for_old_history() -> None:
    config = SimulatorConfig(windows={"gpt-4": 8192, SUM: 128_000}, text=f"<summary>{TOLD}</summary>")

    async def check() -> None:
        async with before_simulator(config, **SET) as (app, proxy):
            for turns in (UNDER, OVER):
                assert (await proxy.chat(sent(turns))).status == 200
            under, over = [await proxy.told(i) for i in (1, 2)]
            assert under.load_before is not None and over.load_before is not None
            assert under.load_before < 0.85 < over.load_before
            assert not summarised(under) and summarised(over)
            assert over.load_after is not None and over.load_after < 0.7
            arrived = [r.json() for r in app.received if r.json()["model"] == "gpt-4"][-1]["messages"]
            assert arrived[0] == talk(OVER)[0] and arrived[-1] == talk(OVER)[-1]
            assert arrived[2]["role"] == "user" and arrived[2]["content"].endswith(TOLD)
            assert len(arrived) < OVER

    run(check())


def test_the_header_says_so() -> None:
    async def check() -> None:
        async with recording(upstream(telling())) as up, plimsoll(up.url, **SET) as proxy:
            assert ours(await proxy.chat(sent(OVER)))["steps"].startswith("summarise_history;-")

    run(check())


async def stalls(request: Request, peer: Peer) -> None:
    await peer.gone()


async def dies(request: Request, peer: Peer) -> None:
    await peer.send(head(b"200 OK", b"content-length: 500") + b'{"choices":')
    peer.reset()


BAD: dict[str, bytes | Script] = {
    "fails": answer(b'{"error":{"message":"no"}}', b"500 Internal Server Error"),
    "refuses": answer(b'{"error":{"message":"maximum context length"}}', b"400 Bad Request"),
    "stalls": stalls,
    "dies": dies,
    "says nothing": answer(said("")),
    "says an empty summary": telling(" "),
    "says more than it replaces": telling("crane " * 9_000),
    "says an error": answer(said("Error: something went wrong, try again later.")),
    "says an error for an answer": answer(b'{"error":{"message":"overloaded"}}'),
    "goes on with the conversation": answer(said("The last entry is 141.")),
    "says no JSON": answer(b"<html>502</html>"),
    "says no text": answer(b'{"choices":[{"message":{"content":null}}]}'),
    "has no choice": answer(b'{"choices":[]}'),
}


async def arrives(turns: int, script: Script, **environment: str) -> list[bytes]:
    """What arrives upstream of a client's conversation, which must get its answer."""
    async with recording(script) as up, plimsoll(up.url, **environment) as proxy:
        reply = await proxy.chat(sent(turns))
        assert (reply.status, reply.body) == (200, DONE)
        return split(up.requests)[1]


@pytest.mark.parametrize("turns", [OVER, FULL])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_bad_summariser_changes_nothing_for_the_client(bad: bytes | Script, turns: int) -> None:
    async def check() -> None:
        got = await arrives(turns, upstream(bad), **SET, PLIMSOLL_SUMMARY_TIMEOUT="200ms")
        assert got == await arrives(turns, upstream(b""))

    run(check())


@pytest.mark.parametrize("turns", [OVER, FULL])
def test_a_summariser_that_is_not_there_changes_nothing(turns: int) -> None:
    async def check() -> None:
        got = await arrives(turns, upstream(b""), **SET, PLIMSOLL_SUMMARY_UPSTREAM=CLOSED)
        assert got == await arrives(turns, upstream(b""))

    run(check())


def test_after_a_failure_the_next_request_asks_nobody() -> None:
    async def check() -> None:
        bad = answer(b"{}", b"503 Service Unavailable")
        async with recording(upstream(bad)) as up, plimsoll(up.url, **SET) as proxy:
            for turns in (OVER, OVER + 2, FULL):
                await proxy.chat(sent(turns))
            assert len(split(up.requests)[0]) == 1

    run(check())


def test_nothing_that_was_said_is_logged_when_it_fails(capfd: pytest.CaptureFixture[str]) -> None:
    async def check() -> None:
        async with recording(upstream(answer(said("canary answer")))) as up, plimsoll(up.url, **SET) as proxy:
            await proxy.chat(sent(OVER))

    run(check())
    told = capfd.readouterr().err
    assert "a summary failed model=gpt-4o-mini why=it contains no summary" in told
    assert "canary" not in told and "Entry" not in told and "sk-test" not in told


def test_the_next_turn_takes_the_same_summary_and_the_same_beginning() -> None:
    async def check() -> None:
        async with recording(upstream(telling(), telling("other"))) as up, plimsoll(up.url, **SET) as proxy:
            for turns in (OVER, OVER + 2, OVER + 4):
                await proxy.chat(sent(turns))
            questions, requests = split(up.requests)
            assert len(questions) == 1 and len(requests) == 3
            messages = [json.loads(r)["messages"] for r in requests]
            assert messages[1][: len(messages[0]) - 1] == messages[0][:-1]
            assert messages[2][: len(messages[0]) - 1] == messages[0][:-1]
            assert TOLD in messages[2][2]["content"]

    run(check())


def test_a_grown_conversation_extends_the_summary_by_what_is_new() -> None:
    async def check() -> None:
        async with recording(upstream(telling(), telling("And later: green."))) as up, plimsoll(up.url, **SET) as proxy:
            await proxy.chat(sent(OVER))
            await proxy.chat(sent(FULL))
            await eventually(lambda: len(split(up.requests)[0]) >= 2, 30)
            first, second = (q["messages"][1]["content"] for q in split(up.requests)[0][:2])
            assert "Entry 1:" in first and TOLD not in first
            assert TOLD in second and "Entry 1:" not in second and "Entry 100:" in second
            last = json.loads(split(up.requests)[1][-1])["messages"]
            assert "And later: green." in last[2]["content"] and TOLD not in last[2]["content"]
            assert summarised(await proxy.told(2))

    run(check())


def test_it_is_made_ready_before_it_is_needed() -> None:
    async def check() -> None:
        async with recording(upstream(telling())) as up, plimsoll(up.url, **SET) as proxy:
            early = sent(106)  # a load of 0.75
            await proxy.chat(early)
            await eventually(lambda: split(up.requests)[0], 30)
            await proxy.chat(sent(OVER))
            questions, requests = split(up.requests)
            assert requests[0] == early and len(questions) == 1
            assert summarised(await proxy.told(2))

    run(check())


def test_under_the_lower_mark_nobody_is_asked() -> None:
    async def check() -> None:
        async with recording(upstream(telling())) as up, plimsoll(up.url, **SET) as proxy:
            await proxy.chat(sent(94))
            assert not proxy.services.gateway.default.planner.background.tasks and not split(up.requests)[0]

    run(check())


def test_two_requests_at_once_ask_once() -> None:
    async def slowly(request: Request, peer: Peer) -> None:
        await asyncio.sleep(0.1)
        await peer.send(telling())

    async def check() -> None:
        async with recording(upstream(slowly)) as up, plimsoll(up.url, **SET) as proxy:
            await asyncio.gather(*(proxy.chat(sent(OVER)) for _ in range(4)))
            assert len(split(up.requests)[0]) == 1
            assert all(map(summarised, proxy.outcomes))

    run(check())


def test_it_is_asked_with_the_clients_own_key_and_no_other_client_gets_it() -> None:
    async def as_bob(proxy: Running) -> None:
        bob = post(sent(OVER), b"authorization: Bearer sk-bob", b"idempotency-key: 1", target=PATH)
        await ask(proxy.port, bob)

    async def check() -> None:
        async with recording(upstream(telling(), telling("Bob's."))) as up, plimsoll(up.url, **SET) as proxy:
            await proxy.chat(sent(OVER))
            await as_bob(proxy)
            questions = [r for r in up.requests if is_question(r)]
            assert [q.header(b"authorization") for q in questions] == [[b"Bearer sk-test"], [b"Bearer sk-bob"]]
            assert [q.header(b"idempotency-key") for q in questions] == [[], []]
            assert TOLD.encode() not in split(up.requests)[1][1]

    run(check())


def test_another_upstream_gets_its_own_key_and_nothing_of_the_clients_headers(tmp_path: Path) -> None:
    async def check() -> None:
        async with recording(upstream(b"")) as up, recording(upstream(telling())) as other:
            more = {"PLIMSOLL_SUMMARY_UPSTREAM": other.url, "PLIMSOLL_SUMMARY_API_KEY": "sk-sum"}
            async with plimsoll(up.url, **SET, **more, PLIMSOLL_RULES=checking_keys(tmp_path)) as proxy:
                await proxy.chat(sent(10))  # its key is accepted
                await ask(proxy.port, post(sent(OVER), KEY, b"cookie: a=b", target=PATH))
                assert summarised(await proxy.told(2))
            (question,) = other.requests
            assert question.header(b"authorization") == [b"Bearer sk-sum"]
            assert question.header(b"cookie") == [] and question.target == PATH
            assert len(up.requests) == 2

    run(check())


def test_inspect_tells_which_messages_were_summed_up() -> None:
    async def check() -> None:
        async with recording(upstream(telling())) as up, plimsoll(up.url, **SET) as proxy:
            inspect = post(sent(OVER), KEY, target=b"/inspect" + PATH)
            told = json.loads((await ask(proxy.port, inspect)).body)
            assert told["steps"] == [] and up.requests == [], "it asks for none"
            await proxy.chat(sent(OVER))
            told = json.loads((await ask(proxy.port, inspect)).body)
            states = [m["state"] for m in told["messages"]["detail"]]
            assert states[:2] == ["kept", "kept"] and states[2] == "summarised" and states[-1] == "kept"
            assert [s["step"] for s in told["steps"]] == ["summarise_history"]
            assert len(split(up.requests)[0]) == 1 and json.loads(split(up.requests)[1][0]) == told["request"]

    run(check())


@pytest.mark.parametrize("mode", [b"observe", b"off"])
def test_where_nothing_may_be_done_nobody_is_asked(mode: bytes) -> None:
    async def check() -> None:
        async with recording(upstream(telling())) as up, plimsoll(up.url, **SET) as proxy:
            await proxy.chat(sent(OVER), b"x-plimsoll-mode: " + mode)
            await proxy.told()
            assert not proxy.services.gateway.default.planner.background.tasks and split(up.requests) == (
                [],
                [sent(OVER)],
            )

    run(check())


def test_a_refused_request_is_planned_anew_with_a_summary() -> None:
    refusal = b'{"error":{"message":"This model\'s maximum context length is 6000 tokens.","code":null}}'
    refused: list[bytes] = []

    async def script(request: Request, peer: Peer) -> None:
        if is_question(request):
            await peer.send(telling())
        elif not refused:
            refused.append(request.body)
            await peer.send(answer(refusal, b"400 Bad Request"))
        else:
            await peer.send(answer(DONE))

    async def check() -> None:
        async with recording(script) as up, plimsoll(up.url, **SET) as proxy:
            assert (await proxy.chat(sent(94))).status == 200  # a load of 0.67 of what the table says
            told = await proxy.told()
            assert told.healed and summarised(told)
            assert TOLD.encode() in split(up.requests)[1][-1]

    run(check())


def test_the_wait_for_a_summary_is_none_of_our_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ahead = time.perf_counter, [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + ahead[0])

    async def slowly(request: Request, peer: Peer) -> None:
        ahead[0] += 1_000  # seconds, longer than the busiest machine needs for the rest
        await peer.send(telling())

    async def check() -> None:
        async with recording(upstream(slowly)) as up, plimsoll(up.url, **SET) as proxy:
            await proxy.chat(sent(OVER))
            told = await proxy.told()
            assert 0 <= told.own_seconds < 500 < 1_000 <= told.upstream_seconds

    run(check())
