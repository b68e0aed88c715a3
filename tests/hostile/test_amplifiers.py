"""N5: embeddings in pieces make much of one request: bounded, on the client's own key, and over once the client is."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from proxy.request.split_requests import AT_ONCE
from tests.hostile.harness import eventually, running, upstream
from tests.hostile.raw import Wire, post
from tests.recorder import Peer, Request, answer

MODEL, KEY, PATH = "text-embedding-3-small", "sk-canary-own", "/v1/embeddings"
INPUTS = 2_048  # of one request to OpenAI


@dataclass(slots=True)
class Provider:
    """A provider of embeddings that counts what is under way; `seconds` is what an answer takes, `fails` its status."""

    seconds: float = 0.0
    fails: bytes = b""
    calls: int = 0
    now: int = 0
    most: int = 0
    keys: set[bytes] = field(default_factory=set)

    async def __call__(self, request: Request, peer: Peer) -> None:
        if request.method != b"POST":
            await peer.send(answer(b'{"object":"list","data":[]}'))
            return
        if len(json.loads(request.body)["input"]) > INPUTS:
            error = {
                "message": "Invalid 'input': array too long. Expected an array with maximum length 2048",
                "type": "invalid_request_error",
            }
            await peer.send(
                answer(json.dumps({"error": {**error, "param": "input", "code": None}}).encode(), b"400 Bad")
            )
            return
        self.calls += 1
        self.now += 1
        self.most = max(self.most, self.now)
        self.keys.update(request.header(b"authorization"))
        try:
            await self._answer(request, peer)
        finally:
            self.now -= 1

    async def _answer(self, request: Request, peer: Peer) -> None:
        gone = asyncio.ensure_future(peer.gone())
        await asyncio.wait({gone}, timeout=self.seconds)
        if gone.done():
            return
        gone.cancel()
        await asyncio.wait({gone})
        if self.fails:
            await peer.send(answer(b'{"error":{"message":"busy"}}', self.fails))
            return
        count = len(json.loads(request.body)["input"])
        data = [{"object": "embedding", "index": i, "embedding": [0.5]} for i in range(count)]
        usage = {"prompt_tokens": count, "total_tokens": count}
        await peer.send(answer(json.dumps({"object": "list", "data": data, "model": MODEL, "usage": usage}).encode()))


def asked(pieces: int) -> dict[str, Any]:
    return {"model": MODEL, "input": ["a"] * (INPUTS * (pieces - 1) + 1)}


def test_N5_one_request_makes_as_many_calls_as_its_pieces_few_at_once_on_its_own_key(workers: int) -> None:
    provider = Provider(seconds=0.05)
    with upstream(provider) as there, running(there.url, workers=workers, PLIMSOLL_API_KEY="sk-operator") as proxy:
        found = proxy.ask(asked(4), path=PATH, key=KEY)
        assert found.status == 200 and len(found.json["data"]) == INPUTS * 3 + 1
        assert provider.calls == 4 and provider.most <= AT_ONCE
        assert provider.keys == {b"Bearer " + KEY.encode()}


def test_N5_a_provider_that_is_busy_gets_each_piece_twice_at_most(workers: int) -> None:
    provider = Provider(fails=b"503 Busy")
    with upstream(provider) as there, running(there.url, workers=workers) as proxy:
        assert proxy.ask(asked(4), path=PATH, key=KEY).status == 503
        assert provider.calls <= 2 * AT_ONCE + AT_ONCE, "the first piece that fails for good ends all others"


def test_N5_a_client_that_leaves_takes_all_its_pieces_with_it(workers: int) -> None:
    provider = Provider(seconds=60.0)
    with upstream(provider) as there, running(there.url, workers=workers, admin=True) as proxy:
        with Wire(proxy.port) as wire:
            wire.send(
                post(json.dumps(asked(4)).encode(), b"authorization: Bearer " + KEY.encode(), target=PATH.encode())
            )
            eventually(lambda: provider.now == AT_ONCE)
            wire.reset()
        eventually(lambda: provider.now == 0)
        assert provider.calls == AT_ONCE
        eventually(lambda: proxy.metric("plimsoll_requests_in_flight") == 0)
        eventually(lambda: proxy.metric("plimsoll_memory_used_bytes") == 0)


def test_N5_many_such_requests_at_once_stay_within_the_memory_and_all_are_answered(workers: int) -> None:
    provider = Provider(seconds=0.02)
    with upstream(provider) as there, running(there.url, workers=workers) as proxy:
        wires = [Wire(proxy.port) for _ in range(12)]
        for wire in wires:
            wire.send(post(json.dumps(asked(4)).encode(), target=PATH.encode()))
        assert {wire.reply().status for wire in wires} <= {200, 503}
        assert provider.most <= 12 * AT_ONCE and provider.calls <= 12 * 4
        for wire in wires:
            wire.close()
