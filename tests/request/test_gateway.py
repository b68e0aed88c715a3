"""One request through the gateway, driven by hand: what is sent when, what is counted when, and what is always told."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest

from proxy.apis.openai_chat import API
from proxy.apis.openai_embeddings import API as EMBEDDINGS
from proxy.config.settings import read_settings
from proxy.http.client.answer import Answer, UpstreamError
from proxy.http.client.response import Fault, TransportError
from proxy.model.api import Api
from proxy.model.limits import LearnedLimits
from proxy.model.outcome import Outcome
from proxy.model.scan import PrefixDigest, Total
from proxy.model.structs import replace
from proxy.request.routes import OneUpstream
from proxy.request.totals import Part, Totals
from proxy.services import Services, build
from proxy.wire.headers import Header
from tests.e2e.services import TOO_MUCH, body, sentence, talk

JSON = (b"content-type", b"application/json")
DONE = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":'
DONE += b'{"prompt_tokens":12,"completion_tokens":1}}'
TOO_LONG = b'{"error":{"message":"This model\'s maximum context length is 4096 tokens.","code":null}}'
SHORT, LONG = body(talk(2), "gpt-4o"), body(talk(400))


class Reply:
    """An upstream's reply of one piece."""

    def __init__(self, status: int, piece: bytes, *headers: Header, breaks: bool = False) -> None:
        self.status, self.headers, self.pieces, self.breaks = status, [*headers], [piece], breaks
        self.closed = False

    async def read(self) -> bytes:
        if self.breaks and not self.pieces:
            raise TransportError(Fault.INCOMPLETE, "lost")
        return self.pieces.pop() if self.pieces else b""

    async def pipe_to(self, sink: Any) -> None:
        return

    def buffered_body(self) -> bytes | None:
        return None

    async def aclose(self) -> None:
        self.closed = True


Sender = Callable[[bytes], Awaitable[Reply]]


class Desk:
    """A gateway whose upstream is a function, and one client after the other."""

    has_key = False  # as an upstream: the operator pays for nothing

    def __init__(self, answer: Sender, **environment: str) -> None:
        self.outcomes: list[Outcome] = []
        self.sent: list[tuple[bytes, list[Header]]] = []
        self.replies: list[Reply] = []
        settings = read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1", **environment})
        self.services: Services = build(settings, self.outcomes.append)
        self._answer = answer
        gateway = self.services.gateway
        upstream: Any = self
        gateway.routes = OneUpstream(replace(gateway.default, upstream=upstream))

    async def send(
        self, method: str, target: bytes, headers: Iterable[Header], payload: bytes | AsyncIterator[bytes] | None = None
    ) -> Answer:
        assert isinstance(payload, bytes)
        self.sent.append((payload, list(headers)))
        self.replies.append(await self._answer(payload))
        return Answer(self.replies[-1])

    async def chat(self, sent: bytes, *headers: Header, stays: bool = True, api: Api = API) -> list[Any]:
        """What a client of this API gets."""
        waiting = [{"type": "http.request", "body": sent, "more_body": False}]
        got: list[Any] = []

        async def receive() -> Any:
            if waiting:
                return waiting.pop()
            if stays:
                await asyncio.sleep(3_600)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            got.append(message)

        scope = {"type": "http", "method": "POST", "headers": [*headers], "plimsoll.target": api.paths[0].encode()}
        await self.services.gateway.fit(api, scope, receive, send)
        return got


def asking(sent: bytes, answer: Sender, *headers: Header, stays: bool = True, **environment: str) -> tuple[Desk, Any]:
    """The desk after one request, and what the client got."""
    desk = Desk(answer, **environment)

    async def ask() -> list[Any]:
        got = await desk.chat(sent, *headers, stays=stays)
        await desk.services.gateway.close()
        return got

    return desk, asyncio.run(ask())


async def good(payload: bytes) -> Reply:
    return Reply(200, DONE, JSON, (b"content-length", b"%d" % len(DONE)))


def test_a_short_request_leaves_before_it_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    count = Totals.count

    def counting(self: Totals, marks: PrefixDigest | None, part: Part, learned: LearnedLimits) -> Total:
        order.append("counted")
        return count(self, marks, part, learned)

    async def noting(payload: bytes) -> Reply:
        order.append("sent")
        while order == ["sent"]:  # as a network does, it gives others their turn
            await asyncio.sleep(0)
        return await good(payload)

    monkeypatch.setattr(Totals, "count", counting)
    desk, got = asking(SHORT, noting)
    assert order == ["sent", "counted"] and desk.sent[0][0] == SHORT
    assert (b"x-plimsoll-count", b"exact") in got[0]["headers"]  # it was there in time


def test_a_count_that_is_late_delays_no_answer_and_is_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    count, answered = Totals.count, threading.Event()

    def late(self: Totals, marks: PrefixDigest | None, part: Part, learned: LearnedLimits) -> Total:
        assert answered.wait(30)
        return count(self, marks, part, learned)

    async def ask() -> list[Any]:
        got = await desk.chat(body([{"role": "user", "content": sentence(0, 10_000)}], "gpt-4o"))
        answered.set()
        await desk.services.gateway.close()
        return got

    monkeypatch.setattr(Totals, "count", late)
    desk = Desk(good)
    got = asyncio.run(ask())
    assert not any(name.startswith(b"x-plimsoll") for name, _ in got[0]["headers"])
    outcome = desk.outcomes[0]
    assert outcome.prompt is not None and outcome.prompt > 9_000 and outcome.usage is not None


def test_a_long_request_is_counted_first_and_sent_as_it_was_made() -> None:
    desk, got = asking(LONG, good, (b"content-md5", b"x"), (b"content-type", b"application/json"))
    payload, headers = desk.sent[0]
    assert len(json.loads(payload)["messages"]) < 402
    assert headers == [(b"content-type", b"application/json")]
    steps = dict(got[0]["headers"])[b"x-plimsoll-steps"]
    assert steps.startswith(b"prune_history;-")


@pytest.mark.parametrize("sent", [SHORT, LONG, b"{", body([{"role": "system", "content": "x"}], **TOO_MUCH)])
def test_every_request_is_told_once_and_none_stays_in_flight(sent: bytes) -> None:
    desk, got = asking(sent, good)
    assert got[0]["type"] == "http.response.start" and len(desk.outcomes) == 1
    assert desk.services.metrics.in_flight.value == 0
    assert desk.outcomes[0].own_seconds > 0


def test_our_time_and_the_upstreams_are_told_apart() -> None:
    async def slow(payload: bytes) -> Reply:
        await asyncio.sleep(0.05)
        return await good(payload)

    desk, _ = asking(LONG, slow)
    outcome = desk.outcomes[0]
    assert outcome.upstream_seconds >= 0.05
    assert outcome.first_byte_seconds is not None and outcome.first_byte_seconds >= 0.05


def test_a_refusal_is_answered_with_a_smaller_request_and_closed() -> None:
    async def refuses(payload: bytes) -> Reply:
        return Reply(400, TOO_LONG, JSON) if len(payload) > 20_000 else await good(payload)

    desk, got = asking(body(talk(120)), refuses)
    assert [m.get("body") for m in got[1:] if m.get("body")] == [DONE] and got[0]["status"] == 200
    assert len(desk.sent) == 2
    assert all(reply.closed or not reply.pieces for reply in desk.replies)
    outcome = desk.outcomes[0]
    assert (outcome.result, outcome.healed, len(outcome.refusals)) == ("healed", True, 1)


def test_three_refusals_are_enough() -> None:
    limits = iter((6_000, 5_000, 4_000, 3_000))

    async def refuses(payload: bytes) -> Reply:
        return Reply(400, TOO_LONG.replace(b"4096", b"%d" % next(limits)), JSON)

    desk, got = asking(body(talk(150)), refuses)
    assert (len(desk.sent), got[0]["status"], got[1]["body"]) == (3, 400, TOO_LONG.replace(b"4096", b"4000"))
    assert (desk.outcomes[0].healed, len(desk.outcomes[0].refusals)) == (False, 3)


def test_a_client_that_is_gone_is_told_as_such_and_nothing_is_sent_to_it() -> None:
    async def forever(payload: bytes) -> Reply:
        await asyncio.sleep(3_600)
        raise AssertionError

    desk, got = asking(LONG, forever, stays=False)
    assert (got, desk.outcomes[0].result, desk.outcomes[0].status) == ([], "cancelled", 499)


def test_an_upstream_that_fails_is_told_in_our_shape() -> None:
    async def fails(payload: bytes) -> Reply:
        raise UpstreamError(504, "upstream_timeout", "The upstream is silent.")

    desk, got = asking(SHORT, fails)
    assert (got[0]["status"], json.loads(got[1]["body"])["error"]["code"]) == (504, "upstream_timeout")
    assert (desk.outcomes[0].result, desk.outcomes[0].prompt is not None) == ("upstream_error", True)


def test_an_answer_that_breaks_off_is_not_completed() -> None:
    async def breaks(payload: bytes) -> Reply:
        return Reply(200, b"{", JSON, (b"content-length", b"5000"), breaks=True)

    desk, got = asking(SHORT, breaks)
    assert got[-1]["more_body"] is True and desk.outcomes[0].result == "broken_off"


def test_a_bug_while_an_answer_is_handed_on_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*args: Any, **kwargs: Any) -> None:
        raise LookupError("canary")

    monkeypatch.setattr("proxy.request.gateway.relay", broken)
    desk, got = asking(SHORT, good)
    assert (got, desk.outcomes[0].result) == ([], "bug")


def test_a_bug_before_that_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise LookupError("canary")

    monkeypatch.setattr("proxy.request.gateway.controls", broken)
    desk, got = asking(SHORT, good)
    assert (got[0]["status"], json.loads(got[1]["body"])["error"]["code"]) == (500, "proxy_error")
    assert b"canary" not in got[1]["body"] and (desk.sent, desk.outcomes[0].result) == ([], "bug")


def test_a_refusal_in_an_encoding_that_nobody_reads_is_asked_for_once_more() -> None:
    async def encoded(payload: bytes) -> Reply:
        if len(payload) <= 20_000:
            return await good(payload)
        return (
            Reply(400, TOO_LONG, JSON) if len(desk.sent) == 2 else Reply(400, b"?", JSON, (b"content-encoding", b"br"))
        )

    desk = Desk(encoded)
    got = asyncio.run(desk.chat(body(talk(120)), (b"accept-encoding", b"br")))
    assert got[0]["status"] == 200
    assert [dict(headers).get(b"accept-encoding") for _, headers in desk.sent] == [b"br", b"identity", b"identity"]
    assert desk.replies[0].closed


def test_one_of_several_pieces_is_not_sent_again_alone_where_its_error_cannot_be_read() -> None:
    vectors = b'{"object":"list","data":[{"index":0,"embedding":[1]}],"usage":{"prompt_tokens":1}}'

    async def refuses_the_last(payload: bytes) -> Reply:
        if len(payload) < 1_000:
            return Reply(400, b"?", JSON, (b"content-encoding", b"br"))
        return Reply(200, vectors, JSON)

    sent = json.dumps({"model": "text-embedding-3-small", "input": ["a"] * 2_049}).encode()
    desk = Desk(refuses_the_last)
    got = asyncio.run(desk.chat(sent, api=EMBEDDINGS))
    assert (got[0]["status"], got[1]["body"]) == (400, b"?") and len(desk.sent) == 2


def test_who_only_observes_hands_a_refusal_on() -> None:
    async def refuses(payload: bytes) -> Reply:
        return Reply(400, TOO_LONG, JSON)

    desk, got = asking(body(talk(120)), refuses, PLIMSOLL_MODE="observe")
    assert (len(desk.sent), got[0]["status"]) == (1, 400)
    assert desk.outcomes[0].refusals == ()


@pytest.mark.parametrize("mode", ["fit", "strict"])
def test_a_request_that_is_refused_leaves_nothing_behind_that_only_a_collector_would_free(mode: str) -> None:
    """Its error is a part of its stage, and the error's frames had that stage."""
    said = [{"role": "system", "content": sentence(0, 20)}, {"role": "user", "content": "Hi"}]
    desk, sent = Desk(good), body(said, **TOO_MUCH)

    async def ask() -> None:
        for _ in range(20):
            got = await desk.chat(sent, (b"x-plimsoll-mode", mode.encode()))
            assert got[0]["status"] == 400
        await desk.services.gateway.close()

    asyncio.run(desk.chat(sent))
    gc.disable()
    try:
        before = sys.getrefcount(sent)
        asyncio.run(ask())
        assert sys.getrefcount(sent) <= before + 3
    finally:
        gc.enable()
