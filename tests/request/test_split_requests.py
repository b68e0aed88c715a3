"""The pieces of one request: sent a few at a time, once more after a failure, and joined to one answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from proxy.apis.openai_embeddings import API
from proxy.errors import ClientError
from proxy.http.client.answer import Answer, UpstreamError
from proxy.http.memory_budget import Budget
from proxy.request import split_requests as pieces
from proxy.request.split_requests import AT_ONCE, Joined, PieceSender
from proxy.request.work import Pool
from proxy.wire.headers import Header

PIECES = [b"%d" % i for i in range(9)]
TURNS = 5  # of the loop until an answer comes: by a clock, what was sent together would not always be answered together


def body(piece: bytes) -> bytes:
    item = {"index": 0, "embedding": [int(piece)]}
    return json.dumps({"data": [item], "usage": {"prompt_tokens": 2}}).encode()


class Piece(Joined):
    """An answer to one piece."""

    def __init__(self, status: int, content: bytes, budget: Budget, **headers: str) -> None:
        made = [(key.replace("_", "-").encode(), value.encode()) for key, value in headers.items()]
        super().__init__(made, [content], budget.room())
        self.status = status
        self.closed = False

    async def aclose(self) -> None:
        await super().aclose()
        self.closed = True


class Provider:
    """Answers pieces; `fails` maps a piece to the statuses that it gets first (0: none)."""

    def __init__(self, fails: dict[bytes, list[int]] | None = None, total: int = 1 << 26) -> None:
        self.budget, self.fails = Budget(total), fails or {}
        self.asked: list[bytes] = []
        self.answers: list[Piece] = []
        self.most = self.now = 0
        self.headers: Sequence[Header] = ()
        self.keys: dict[bytes, list[bytes]] = {}
        self.billed: set[int] = set()

    async def post(self, payload: bytes, headers: Sequence[Header]) -> Answer:
        self.asked.append(payload)
        self.headers = headers
        self.keys.setdefault(payload, []).append(dict(headers)[b"idempotency-key"])
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            for _ in range(TURNS):
                await asyncio.sleep(0)
        finally:
            self.now -= 1
        status = self.fails[payload].pop(0) if self.fails.get(payload) else 200
        if not status:
            raise UpstreamError(502, "upstream_error", "it hung up")
        made = Piece(status, body(payload) if status == 200 else b"no", self.budget, retry_after="0")
        self.answers.append(made)
        return Answer(made)

    def send(self, sent: Sequence[bytes] = PIECES) -> tuple[int, bytes]:
        async def ask() -> tuple[int, bytes]:
            pool = Pool(ThreadPoolExecutor(1))
            sender = PieceSender(API, self.post, [1] * len(sent), pool, self.budget.room(), self.billed)
            answer = await sender.send(sent, [(b"accept-encoding", b"gzip"), (b"idempotency-key", b"k")])
            found = await answer.read(1 << 20)
            await answer.close()
            return answer.status, found

        return asyncio.run(ask())


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PAUSE_S", 0.0)


def test_answers_are_joined_in_the_order_of_the_pieces_a_few_at_a_time() -> None:
    provider = Provider()
    status, found = provider.send()
    answer: Any = json.loads(found)
    assert status == 200 and [item["embedding"][0] for item in answer["data"]] == list(range(9))
    assert [item["index"] for item in answer["data"]] == list(range(9)) and answer["usage"] == {"prompt_tokens": 18}
    assert 1 < provider.most <= AT_ONCE and (b"accept-encoding", b"identity") in provider.headers
    assert provider.budget.used == 0


def test_every_piece_has_an_idempotency_key_of_its_own_also_when_it_is_sent_once_more() -> None:
    provider = Provider({b"3": [503]})
    provider.send()
    assert provider.keys == {b"%d" % i: [b"k-%d" % i] * (2 if i == 3 else 1) for i in range(9)}


@pytest.mark.parametrize("status", [429, 500, 503, 0])
def test_a_piece_that_failed_for_a_time_is_sent_once_more(status: int) -> None:
    provider = Provider({b"3": [status]})
    assert provider.send()[0] == 200 and provider.asked.count(b"3") == 2


def test_a_piece_that_fails_for_good_is_the_answer_and_the_others_are_cancelled() -> None:
    for fails in ({b"0": [400]}, {b"0": [429, 429]}):
        provider = Provider({key: list(found) for key, found in fails.items()})
        assert provider.send() == (fails[b"0"][-1], b"no")
        assert provider.now == 0 and provider.budget.used == 0
    with pytest.raises(UpstreamError):
        Provider({b"0": [0, 0]}).send()


def test_of_a_request_that_fails_the_pieces_are_billed_that_were_sent_and_not_refused() -> None:
    provider = Provider({b"6": [400]})
    assert provider.send()[0] == 400
    sent = {int(piece) for piece in provider.asked}
    assert provider.billed == sent - {6} >= {0, 1, 2, 3, 4, 5}
    hung_up = Provider({b"0": [0, 0]})
    with pytest.raises(UpstreamError):
        hung_up.send()
    assert 0 not in hung_up.billed and hung_up.billed == {int(piece) for piece in hung_up.asked} - {0}


def test_a_piece_that_waits_to_be_sent_once_more_is_not_billed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_pause", lambda answer: 30.0)
    provider = Provider({b"0": [429], b"1": [400], b"2": [503]})
    assert provider.send()[0] == 400 and provider.billed.isdisjoint({0, 1, 2})


def test_of_pieces_that_fail_together_one_answer_is_given_back_and_the_others_are_closed() -> None:
    provider = Provider({b"%d" % i: [400] for i in range(AT_ONCE)})
    assert provider.send() == (400, b"no")
    assert len(provider.answers) == AT_ONCE and sum(not answer.closed for answer in provider.answers) == 1


def test_answers_that_cannot_be_joined_are_an_error_of_the_upstream() -> None:
    with pytest.raises(UpstreamError, match="could not be joined"):
        PieceProvider().send([b"1", b"2"])


class PieceProvider(Provider):
    """Answers with what has no vectors."""

    async def post(self, payload: bytes, headers: Sequence[Header]) -> Answer:
        return Answer(Piece(200, b"{}", self.budget))


def test_without_memory_for_the_answers_the_request_fails_and_gives_back_what_it_took() -> None:
    provider = Provider(total=64)
    with pytest.raises(ClientError) as failed:
        provider.send()
    assert failed.value.status == 503 and provider.budget.used == 0


def test_an_answer_that_is_not_read_to_its_end_gives_back_its_memory() -> None:
    async def check() -> None:
        budget = Budget(1 << 20)
        room = budget.room()
        assert room.reserve(100)
        answer = Answer(Joined([], [b"a" * 70_000, b"b"], room))
        assert answer.buffered_body() is None and len(await answer.next()) == 70_000
        await answer.close()
        assert budget.used == 0

    asyncio.run(check())
