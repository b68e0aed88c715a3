"""A refusal of a sender's plan, which has no long prompts though the model has: fitted for that sender alone."""

from __future__ import annotations

import json

import pytest

from proxy.model.limits import LearnedLimits
from proxy.upstreams.internal_client import tenant_of
from tests.e2e.services import Running, ours, plimsoll, talk
from tests.recorder import Peer, Request, Script, answer, recording
from tests.serving import Reply, ask, post, run

REFUSED = b'{"type":"error","error":{"type":"rate_limit_error","message":"Extra usage is required for long context '
REFUSED += b'requests."},"request_id":"req_1"}'
MODEL = "claude-sonnet-4-6"
LONG = json.dumps({"model": MODEL, "max_tokens": 100, "messages": talk(4_600)[1:]}).encode()  # some 216,000 tokens
MOST = 1_150_000  # bytes of about 200,000 tokens
POOR, RICH = "sk-ant-poor", "sk-ant-rich"


def plan(most: int) -> Script:
    """An upstream at which one key has no long prompts, whatever its model holds."""

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b'{"data":[]}'))
        elif request.header(b"x-api-key") == [POOR.encode()] and len(request.body) > most:
            await peer.send(answer(REFUSED, b"429 Too Many Requests"))
        else:
            await peer.send(answer(b'{"type":"message","content":[]}'))

    return script


async def asked(proxy: Running, body: bytes, key: str) -> Reply:
    headers = (b"content-type: application/json", b"x-api-key: " + key.encode(), b"anthropic-version: 2023-06-01")
    return await ask(proxy.port, post(body, *headers, target=b"/v1/messages"))


def test_the_request_is_cut_to_what_the_plan_has_and_so_are_the_next_ones_of_that_sender_alone() -> None:
    async def check() -> None:
        async with recording(plan(MOST)) as up, plimsoll(up.url) as proxy:
            got = await asked(proxy, LONG, POOR)
            assert got.status == 200, (ours(got), len(up.requests))
            assert int(ours(got)["tokens-sent"]) <= 200_000, got
            assert (await proxy.told()).result == "healed"
            before = len(up.requests)
            assert (await asked(proxy, LONG, POOR)).status == 200 and len(up.requests) == before + 1
            assert (await asked(proxy, LONG, RICH)).status == 200 and up.requests[-1].body == LONG
            cache, known = proxy.services.cache, LearnedLimits(max_input=200_000)
            assert cache.learned_limits(MODEL, tenant_of([(b"x-api-key", POOR.encode())])) == known
            assert cache.learned_limits(MODEL, tenant_of([(b"x-api-key", RICH.encode())])) == LearnedLimits()

    run(check())


@pytest.mark.parametrize("turns", [10, 400])
def test_a_short_request_that_gets_it_all_the_same_is_not_cut_and_teaches_nothing(turns: int) -> None:
    body = json.dumps({"model": MODEL, "max_tokens": 100, "messages": talk(turns)[1:]}).encode()

    async def check() -> None:
        async with recording(plan(0)) as up, plimsoll(up.url) as proxy:
            got = await asked(proxy, body, POOR)
            assert (got.status, got.body, [r.body for r in up.requests]) == (429, REFUSED, [body])
            assert proxy.services.cache.proofs(MODEL) == []

    run(check())
