"""Asking for summaries: what counts as one, how a long part is read in pieces, who shares what with whom."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from proxy.config.settings import read_settings
from proxy.fit.steps.summarise_history import SummaryRequest
from proxy.model.conversation import Block
from proxy.model.plan import Want
from proxy.model.structs import replace
from proxy.request.wants.summaries import MOST_PIECES, Summaries
from proxy.services import Services, build
from proxy.upstreams.models_listing import Headers
from tests.makers import draft, tool_round, user
from tests.recorder import Peer, Recorder, Request, Script, answer, recording
from tests.redis_server import RedisServer, redis_server
from tests.serving import eventually, run

ALICE = [(b"authorization", b"Bearer alice")]
BOB = [(b"authorization", b"Bearer bob")]
MODEL = "gpt-4"  # its window holds 8192 tokens


def body(text: str) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


def wanted(*strides: Sequence[Block], most: int = 100, model: str = MODEL) -> Want:
    """A want whose keys tell how many strides they cover."""
    keyed = tuple((f"k{i}", tuple(blocks)) for i, blocks in enumerate(strides))
    return Want("summary", keyed[-1][0], SummaryRequest(model, most, keyed))


def blocks(*texts: str) -> list[Block]:
    return list(draft([user(text) for text in texts], 10**6).blocks)


FIRST, THEN = blocks("The crane is red."), blocks("The ledger is lost.")


async def numbered(request: Request, peer: Peer) -> None:
    """An upstream that numbers its summaries by the connection's requests."""
    said = json.loads(request.body)["messages"][1]["content"]
    await peer.send(answer(body(f"<summary>sum of {len(said)}</summary>")))


@contextlib.asynccontextmanager
async def summing(
    script: Script = numbered, /, **environment: str
) -> AsyncIterator[tuple[Recorder, Services, Summaries]]:
    async with recording(script) as up:
        services = build(read_settings({"PLIMSOLL_UPSTREAM": up.url, **environment}), lambda outcome: None)
        await services.open()
        try:
            summaries = services.providers["summary"]
            assert isinstance(summaries, Summaries)
            yield up, services, summaries
        finally:
            await services.close()


def questions(up: Recorder) -> list[str]:
    return [json.loads(r.body)["messages"][1]["content"] for r in up.requests]


def told(want: Want, headers: Headers = ALICE, **environment: str) -> tuple[str, list[str]]:
    """A summary, and what was asked for it."""

    async def check() -> tuple[str, list[str]]:
        async with summing(**environment) as (up, _, summaries):
            return await summaries.fulfil(want, headers), questions(up)

    return run(check())


def test_calls_and_results_are_told_and_the_length_is_asked_for() -> None:
    async def check() -> None:
        async with summing() as (up, _, summaries):
            called = draft([user("Hi"), *tool_round("c", "three rows", "find", '{"q":1}')], 1000).blocks[1:]
            assert await summaries.fulfil(wanted(called), ALICE)
            (question,) = (json.loads(r.body) for r in up.requests)
            assert set(question) == {"model", "messages"} and question["model"] == MODEL
            assert 'calls find with {"q":1}' in question["messages"][1]["content"]
            assert "three rows" in question["messages"][1]["content"]
            instructions = question["messages"][0]["content"]
            assert "60 words" in instructions
            for asked in ("names", "numbers", "decisions", "file paths", "open tasks"):
                assert asked in instructions

    run(check())


def test_an_old_part_that_the_window_does_not_hold_is_read_in_pieces_each_with_the_summary_so_far() -> None:
    said = blocks(*(f"Entry {i}: " + "tide crane cargo " * 600 for i in range(10)))
    summary, asked = told(wanted(said))
    assert 2 <= len(asked) <= 5 and summary == f"sum of {len(asked[-1])}"
    for before, after in itertools.pairwise(asked):
        assert f"<summary>\nsum of {len(before)}\n</summary>" in after
    assert [sum(f"Entry {i}:" in text for text in asked) for i in range(10)] == [1] * 10


def test_what_would_take_too_many_pieces_is_not_asked_for() -> None:
    said = blocks(*("tide crane cargo " * 2_500 for _ in range(MOST_PIECES)))
    assert told(wanted(said)) == ("", [])


def test_a_window_that_holds_next_to_nothing_is_none_to_sum_up_with() -> None:
    assert told(wanted(FIRST, most=4_000)) == ("", [])


def test_an_earlier_summary_is_extended() -> None:
    async def check() -> None:
        async with summing() as (up, _, summaries):
            first = await summaries.fulfil(wanted(FIRST), ALICE)
            assert await summaries.fulfil(wanted(FIRST, THEN), ALICE) != first
            assert first in questions(up)[1] and "ledger" in questions(up)[1] and "crane" not in questions(up)[1]

    run(check())


def test_one_that_is_still_being_made_is_waited_for_and_then_extended() -> None:
    async def slowly(request: Request, peer: Peer) -> None:
        await asyncio.sleep(0.05)
        await numbered(request, peer)

    async def check() -> None:
        async with summing(slowly) as (up, _, summaries):
            both = await asyncio.gather(
                summaries.fulfil(wanted(FIRST), ALICE), summaries.fulfil(wanted(FIRST, THEN), ALICE)
            )
            assert all(both) and len(up.requests) == 2 and both[0] in questions(up)[1]

    run(check())


def test_what_comes_too_late_for_one_request_serves_a_later_one_and_nobody_else_waits() -> None:
    waiting = asyncio.Event()

    async def slowly(request: Request, peer: Peer) -> None:
        await waiting.wait()
        await numbered(request, peer)

    async def check() -> None:
        async with summing(slowly) as (up, _, summaries):
            summaries.seconds = 0.05
            asking = asyncio.create_task(summaries.fulfil(wanted(FIRST), ALICE))
            await asyncio.sleep(0)
            summaries.seconds = 30.0  # of each question; a long old part takes many
            assert await asking == "" == await summaries.fulfil(wanted(FIRST), ALICE)
            waiting.set()
            await eventually(lambda: not summaries._calls, 30)
            assert await summaries.fulfil(wanted(FIRST), ALICE) and len(up.requests) == 1

    run(check())


def test_without_a_prompt_there_is_no_summary() -> None:
    async def check() -> None:
        async with summing() as (up, _, summaries):
            summaries.instructions = None
            assert await summaries.fulfil(wanted(FIRST), ALICE) == "" and up.requests == []

    run(check())


def test_what_is_known_is_told_without_asking_and_nothing_else_is() -> None:
    async def check() -> None:
        async with summing() as (up, _, summaries):
            assert await summaries.fulfil(wanted(FIRST), ALICE, ask=False) == "" and up.requests == []
            made = await summaries.fulfil(wanted(FIRST), ALICE)
            assert await summaries.fulfil(wanted(FIRST), ALICE, ask=False) == made

    run(check())


async def refuses(request: Request, peer: Peer) -> None:
    await peer.send(answer(b"{}", b"400 Bad Request"))


async def fails(request: Request, peer: Peer) -> None:
    await peer.send(answer(b"{}", b"503 Service Unavailable"))


@pytest.mark.parametrize(("script", "again"), [(refuses, 2), (fails, 1)])
def test_a_summariser_that_is_out_of_order_is_left_alone_and_one_that_dislikes_a_text_gets_others(
    script: Script, again: int
) -> None:
    async def check() -> None:
        async with summing(script) as (up, _, summaries):
            assert await summaries.fulfil(wanted(FIRST), ALICE) == ""
            assert await summaries.fulfil(wanted(FIRST), ALICE) == ""
            assert await summaries.fulfil(wanted(FIRST, THEN), ALICE) == ""
            assert len(up.requests) == again
            assert await summaries.fulfil(wanted(FIRST), BOB) == ""
            assert len(up.requests) == again + 1

    run(check())


def test_a_bug_of_ours_is_no_summary(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def broken(*args: Any) -> Any:
        raise LookupError("canary")

    monkeypatch.setattr("proxy.request.wants.summaries.packed", broken)
    assert told(wanted(FIRST)) == ("", [])
    assert "why=LookupError" in (err := capfd.readouterr().err) and "canary" not in err


def test_what_is_under_way_ends_with_the_house() -> None:
    async def stalls(request: Request, peer: Peer) -> None:
        await peer.gone()

    async def check() -> None:
        async with summing(stalls) as (up, _, summaries):
            asking = asyncio.create_task(summaries.fulfil(wanted(FIRST), ALICE))
            await eventually(lambda: up.requests, 30)
        assert await asking == ""

    run(check())


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as found:
        yield found


def test_replicas_share_a_summary_only_sealed_and_only_for_its_caller(server: RedisServer) -> None:
    async def check() -> None:
        shared = {"PLIMSOLL_REDIS": server.url, "PLIMSOLL_SECRET": "of both"}
        async with summing(**shared) as (up, _, one), summing(**shared) as (other, _, two):
            made = await one.fulfil(wanted(FIRST), ALICE)
            async with asyncio.timeout(30):
                while await two.fulfil(wanted(FIRST), ALICE, ask=False) != made:
                    await asyncio.sleep(0.02)
            assert await two.fulfil(wanted(FIRST), BOB, ask=False) == ""
            assert other.requests == [] and len(up.requests) == 1

    run(check())


async def in_messages(request: Request, peer: Peer) -> None:
    """An upstream that has the Messages API alone."""
    told = json.dumps({"content": [{"type": "text", "text": "<summary>short</summary>"}]}).encode()
    await peer.send(answer(told) if request.target == b"/v1/messages" else answer(b"{}", b"404 Not Found"))


def test_a_client_of_the_messages_api_is_summed_up_in_it() -> None:
    async def check() -> None:
        async with summing(in_messages) as (up, _, summaries):
            headers = [*ALICE, (b"anthropic-version", b"2026-10-21")]
            assert await summaries.fulfil(wanted(FIRST), headers) == "short"
            (sent,) = up.requests
            assert sent.header(b"anthropic-version") == [b"2026-10-21"]
            asked = json.loads(sent.body)
            assert asked["max_tokens"] >= 100 and asked["messages"][0]["role"] == "user" and asked["system"]

    run(check())


def test_an_upstream_of_the_messages_api_is_asked_in_it_whoever_the_client_is() -> None:
    async def check() -> None:
        async with summing(in_messages) as (up, _, summaries):
            theirs = replace(summaries, api="anthropic", client=replace(summaries.client, dedicated=True, anyone=True))
            assert await theirs.fulfil(wanted(FIRST), ALICE) == "short"
            assert up.requests[0].header(b"anthropic-version") == [b"2023-06-01"]

    run(check())


def test_an_upstream_without_an_api_for_it_is_not_asked_and_that_is_logged_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logged: list[str] = []
    monkeypatch.setattr("proxy.observe.log.event", lambda message, **fields: logged.append(message))

    async def check() -> None:
        async with summing() as (up, _, summaries):
            theirs = replace(summaries, api="gemini")
            for _ in range(2):
                assert await theirs.fulfil(wanted(FIRST), ALICE) == ""
            assert up.requests == []

    run(check())
    assert [message for message in logged if message.startswith("no summaries")] == [logged[0]]
