"""Asking for embeddings: what is asked, how often, for whom; and what goes wrong is no vectors."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from proxy.config.settings import read_settings
from proxy.fit.relevance.history.embedding_scores import Embedded, EmbeddingsRequest
from proxy.model.plan import Want
from proxy.request.wants import embeddings as module
from proxy.request.wants.embeddings import BATCH, MOST_TEXTS, Embeddings
from proxy.services import Services, build
from proxy.upstreams.extra_calls import CallCost
from proxy.upstreams.internal_client import caller_of
from tests.recorder import Peer, Recorder, Request, Script, answer, recording
from tests.serving import eventually, run

ALICE = [(b"authorization", b"Bearer alice")]
BOB = [(b"authorization", b"Bearer bob")]


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is not answered and the time out of a caller last longer than any test."""
    for lasting in ("BATCH_SECONDS", "RETRY_S"):
        monkeypatch.setattr(module, lasting, 1_000.0)


def wanted(*texts: str, model: str = "emb") -> Want:
    """The first text is the question."""
    return Want("embeddings", " ".join(texts), EmbeddingsRequest(model, texts[0], texts[1:]), len(texts))


def many(count: int) -> Want:
    return wanted(*(f"text {i}" for i in range(count)))


def body(vectors: Sequence[Any]) -> bytes:
    return json.dumps({"data": [{"index": i, "embedding": v} for i, v in enumerate(vectors)]}).encode()


async def lengths(request: Request, peer: Peer) -> None:
    """An upstream whose vectors tell how long a text is."""
    await peer.send(answer(body([[1.0, -float(len(text))] for text in asked(request)])))


def asked(request: Request) -> list[str]:
    found: list[str] = json.loads(request.body)["input"]
    return found


@contextlib.asynccontextmanager
async def embedding(
    script: Script = lengths, /, **environment: str
) -> AsyncIterator[tuple[Recorder, Services, Embeddings]]:
    given = {"PLIMSOLL_EMBEDDINGS_TIMEOUT": "20s", **environment}  # what comes at all comes in time
    async with recording(script) as up:
        services = build(read_settings({"PLIMSOLL_UPSTREAM": up.url, **given}), lambda outcome: None)
        await services.open()
        try:
            embeddings = services.providers["embeddings"]
            assert isinstance(embeddings, Embeddings)
            yield up, services, embeddings
        finally:
            await services.close()


def test_each_text_is_asked_for_once_and_then_only_what_is_new() -> None:
    async def check() -> None:
        async with embedding() as (up, _, found):
            first = await found.fulfil(wanted("a", "bb"), ALICE)
            assert set(first.texts) == {"bb"} and first.question not in (None, first.texts["bb"])
            assert await found.fulfil(wanted("a", "bb"), ALICE) == first
            second = await found.fulfil(wanted("a", "bb", "ccc"), ALICE)
            assert second.question == first.question and set(second.texts) == {"bb", "ccc"}
            assert sorted(asked(r) for r in up.requests) == [["a"], ["bb"], ["ccc"]]
            assert up.requests[0].target == b"/v1/embeddings"
            assert json.loads(up.requests[0].body)["model"] == "emb"

    run(check())


def test_another_caller_and_another_model_get_none_of_it() -> None:
    async def check() -> None:
        async with embedding() as (up, _, found):
            for want, headers in ((wanted("a"), ALICE), (wanted("a"), BOB), (wanted("a", model="b"), ALICE)):
                assert (await found.fulfil(want, headers)).question
            assert len(up.requests) == 3

    run(check())


def test_nobody_is_asked_who_must_not_be_and_what_is_known_is_told() -> None:
    async def check() -> None:
        async with embedding() as (up, _, found):
            assert await found.fulfil(wanted("a"), ALICE, ask=False) == Embedded() and up.requests == []
            made = await found.fulfil(wanted("a"), ALICE)
            assert await found.fulfil(wanted("a"), ALICE, ask=False) == made

    run(check())


def test_a_long_history_is_asked_for_in_parts_but_never_without_end() -> None:
    async def check() -> None:
        async with embedding() as (up, _, found):
            assert len(await found.fulfil(many(2 * BATCH + 1), ALICE)) == 2 * BATCH + 1
            assert sorted(len(asked(r)) for r in up.requests) == [1, BATCH, BATCH]
            known = await found.fulfil(many(MOST_TEXTS + 2 * BATCH + 2), ALICE)
            assert len(known) == 2 * BATCH + 1 and len(up.requests) == 3

    run(check())


def test_two_at_once_ask_once() -> None:
    async def slowly(request: Request, peer: Peer) -> None:
        await asyncio.sleep(0.05)
        await lengths(request, peer)

    async def check() -> None:
        async with embedding(slowly) as (up, _, found):
            one, two = await asyncio.gather(found.fulfil(wanted("a"), ALICE), found.fulfil(wanted("a", "bb"), ALICE))
            assert one.question and two and sorted(asked(r) for r in up.requests) == [["a"], ["bb"]]

    run(check())


def test_W29_the_question_goes_alone() -> None:
    async def check() -> None:
        async with embedding() as (up, _, found):
            await found.fulfil(many(3 * BATCH), ALICE)
            assert ["text 0"] in [asked(r) for r in up.requests]

    run(check())


def test_W29_what_is_known_in_time_is_used_and_what_is_not_known_yet_comes_for_later_turns() -> None:
    waiting = asyncio.Event()

    async def question_only(request: Request, peer: Peer) -> None:
        if asked(request) != ["text 0"] and "soon" not in asked(request):
            await waiting.wait()
        await lengths(request, peer)

    async def check() -> None:
        async with embedding(question_only) as (_, _, found):
            found.seconds = 30.0
            first = await found.fulfil(wanted("text 0", "soon"), ALICE)
            assert first.question is not None and set(first.texts) == {"soon"}
            found.seconds = 0.05
            late = await found.fulfil(wanted("text 0", "soon", "late"), ALICE)
            assert late == first and len(late) == 2
            waiting.set()
            await eventually(lambda: not found._calls, 30)
            assert set((await found.fulfil(wanted("text 0", "soon", "late"), ALICE)).texts) == {"soon", "late"}

    run(check())


@pytest.mark.usefixtures("endless")
def test_W29_after_a_wait_in_vain_a_request_waits_for_its_question_alone_and_then_for_nothing() -> None:
    """The waits in vain would not end within the test."""
    fast = {"text 0", "text 1"}

    async def some(request: Request, peer: Peer) -> None:
        await (lengths(request, peer) if fast.issuperset(asked(request)) else peer.gone())

    async def check() -> None:
        async with embedding(some) as (_, _, found):
            await found.fulfil(wanted("text 0", "text 1"), ALICE)
            found.seconds = 0.05
            await found.fulfil(wanted("text 0", "slow"), ALICE)
            found.seconds = 10**6
            fast.add("Now?")
            now = await found.fulfil(wanted("Now?", "text 1", "slow", "slower"), ALICE)
            assert now.question is not None and set(now.texts) == {"text 1"}
            found.seconds = 0.05
            late = await found.fulfil(wanted("Then?", "text 1", "slow"), ALICE)
            assert late.question is None and not late
            found.seconds = 10**6
            assert not await found.fulfil(wanted("Again?", "text 1", "slow"), ALICE)

    run(check())


def test_W29_the_waits_of_one_request_together_are_no_longer_than_one() -> None:
    async def slowly(request: Request, peer: Peer) -> None:
        await peer.gone()

    async def check() -> None:
        async with embedding(slowly) as (_, _, found):
            found.seconds, cost = 10**6, CallCost(waited=10**6)
            assert not await found.fulfil(wanted("a", "b"), ALICE, spent=cost)
            assert cost.waited < 2 * 10**6

    run(check())


def test_W29_a_question_and_a_passage_have_the_prefixes_that_the_model_expects() -> None:
    prefixes = {"PLIMSOLL_EMBEDDINGS_QUESTION_PREFIX": "query:", "PLIMSOLL_EMBEDDINGS_PASSAGE_PREFIX": "passage:"}

    async def check() -> None:
        async with embedding(lengths, **prefixes) as (up, _, found):
            known = await found.fulfil(wanted("a", "b", "a"), ALICE)
            assert sorted(asked(r) for r in up.requests) == [["passage: b", "passage: a"], ["query: a"]]
            assert set(known.texts) == {"a", "b"} and known.question is not None

    run(check())


def test_what_comes_too_late_serves_a_later_turn_and_nobody_else_waits() -> None:
    waiting = asyncio.Event()

    async def slowly(request: Request, peer: Peer) -> None:
        await waiting.wait()
        await lengths(request, peer)

    async def check() -> None:
        async with embedding(slowly) as (up, _, found):
            found.seconds = 0.05
            assert not await found.fulfil(many(BATCH + 1), ALICE)
            found.seconds = 10**6
            assert not await found.fulfil(many(BATCH + 2), ALICE)  # at once
            waiting.set()
            await eventually(lambda: not found._calls, 30)
            assert len(await found.fulfil(many(BATCH + 2), ALICE)) == BATCH + 2 and len(up.requests) == 3

    run(check())


BAD = {
    "fails": answer(b"{}", b"503 Service Unavailable"),
    "refuses": answer(b'{"error":{"message":"canary"}}', b"401 Unauthorized"),
    "says no JSON": answer(b"<html>canary</html>"),
    "says too few": answer(body([[1.0]])),
    "says too many": answer(body([[1.0]] * 3)),
    "says several lengths": answer(body([[1.0], [1.0, 2.0]])),
    "says nothing": answer(body([[], []])),
    "says nowhere": answer(body([[0.0, 0.0], [0.0, 0.0]])),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_bad_answer_is_no_vectors_is_told_once_and_for_a_while_nobody_is_asked(
    bad: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(bad)

    async def check() -> None:
        async with embedding(script) as (up, _, found):
            assert not await found.fulfil(wanted("canary a", "b", "c"), ALICE)
            calls = len(up.requests)
            assert not await found.fulfil(wanted("canary a", "b", "c", "d"), ALICE) and len(up.requests) == calls <= 2
            assert not await found.fulfil(wanted("canary a", "b", "c"), BOB) and calls < len(up.requests) <= 4

    run(check())
    err = capfd.readouterr().err
    assert err.count("embeddings failed model=emb why=") == 2 and "canary" not in err and "alice" not in err


def test_of_a_long_history_no_more_is_asked_once_a_part_failed() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(BAD["fails"])

    async def check() -> None:
        async with embedding(script) as (up, _, found):
            assert not await found.fulfil(many(40 * BATCH), ALICE)
            assert len(up.requests) <= module.LIMITS[0]

    run(check())


def test_vectors_of_another_length_than_those_before_are_of_another_model_and_all_are_asked_for_anew() -> None:
    sizes = [2, 3, 3, 3]

    async def script(request: Request, peer: Peer) -> None:
        size = sizes.pop(0)
        await peer.send(answer(body([[1.0] * size for _ in asked(request)])))

    async def check() -> None:
        async with embedding(script) as (up, _, found):
            assert (await found.fulfil(wanted("a"), ALICE)).question
            assert await found.fulfil(wanted("a", "b"), ALICE) == Embedded()
            found._failed.put(caller_of(ALICE), 0.0)  # its time out is over
            known = await found.fulfil(wanted("a", "b"), ALICE)
            assert known.question is not None and known.question.size == known.texts["b"].size == 3
            assert sorted(asked(r) for r in up.requests[-2:]) == [["a"], ["b"]]

    run(check())


def test_a_bug_of_ours_is_no_vectors(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def broken(*args: Any) -> Any:
        raise LookupError("canary")

    async def check() -> None:
        async with embedding() as (_, _, found):
            assert await found.fulfil(wanted("a"), ALICE) == Embedded()

    monkeypatch.setattr(module, "request_body", broken)
    run(check())
    assert "why=LookupError" in (err := capfd.readouterr().err) and "canary" not in err


def test_what_is_under_way_ends_with_the_house() -> None:
    async def stalls(request: Request, peer: Peer) -> None:
        await peer.gone()

    async def check() -> None:
        async with embedding(stalls) as (up, _, found):
            asking = asyncio.create_task(found.fulfil(wanted("a"), ALICE))
            await eventually(lambda: up.requests, 30)
        assert await asking == Embedded()

    run(check())
