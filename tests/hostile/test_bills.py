"""What is billed where an answer breaks off, a gateway names a cost, or replicas share a conversation."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from pathlib import Path

import pytest

from tests.hostile.harness import CHAT, Running, eventually, running, upstream
from tests.recorder import Peer, Request, answer

CHOICE = {"index": 0, "delta": {"content": "word "}}
WORD = json.dumps({"id": "1", "object": "chat.completion.chunk", "choices": [CHOICE]})
CHUNK = b"data: " + WORD.encode() + b"\n\n"
PRICE = 'price = [{ model = "gpt-4o", input = 10, output = 10000 }]\n'  # a thousandth of a cent, and a cent a token
SAID = "Hello there. " * 200  # some 600 tokens
BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": SAID}], "stream": True}


@pytest.fixture
def rules(tmp_path: Path) -> str:
    (tmp_path / "windows.toml").write_text(PRICE)
    return str(tmp_path)


def cost(proxy: Running, **labels: str) -> float:
    return proxy.metric("plimsoll_cost_sent_usd_total", model="gpt-4o", **labels)


def basis(proxy: Running, name: str) -> float:
    return proxy.metric("plimsoll_priced_requests_total", basis=name, model="gpt-4o")


async def words(peer: Peer, count: int) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(count):
        await peer.send(b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK))


def test_M6_of_an_answer_that_breaks_off_the_prompt_and_what_came_is_billed(rules: str, workers: int) -> None:
    read = threading.Event()

    async def script(request: Request, peer: Peer) -> None:
        await words(peer, 40)
        while not read.is_set():
            await asyncio.sleep(0.01)
        peer.reset()

    with upstream(script) as there, running(there.url, workers=workers, PLIMSOLL_RULES=rules) as proxy:
        with contextlib.closing(proxy.connection()) as client:
            client.request("POST", CHAT, json.dumps(BODY), {"authorization": "Bearer sk-test"})
            got = client.getresponse()
            assert len(got.read(len(CHUNK) * 40)) == len(CHUNK) * 40
            read.set()
            with contextlib.suppress(http.client.HTTPException, OSError):
                got.read()
        eventually(lambda: basis(proxy, "partial") == 1)
        prompt = proxy.metric("plimsoll_prompt_sent_tokens_total", model="gpt-4o")
        assert prompt > 400
        assert cost(proxy) == pytest.approx(prompt / 100_000 + 0.40, abs=0.015)
        assert basis(proxy, "count") == basis(proxy, "unpriced") == basis(proxy, "usage") == 0


def test_M6_a_client_that_leaves_pays_for_what_was_sent_and_came(rules: str, workers: int) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await words(peer, 30)
        await peer.gone()

    with upstream(script) as there, running(there.url, workers=workers, PLIMSOLL_RULES=rules) as proxy:
        with contextlib.closing(proxy.connection()) as client:
            client.request("POST", CHAT, json.dumps(BODY), {"authorization": "Bearer sk-test"})
            got = client.getresponse()
            assert len(got.read(len(CHUNK) * 30)) == len(CHUNK) * 30
        eventually(lambda: basis(proxy, "partial") == 1)
        prompt = proxy.metric("plimsoll_prompt_sent_tokens_total", model="gpt-4o")
        assert cost(proxy) == pytest.approx(prompt / 100_000 + 0.30, abs=0.015)
        assert proxy.metric("plimsoll_requests_total", result="cancelled", status="499") == 1


def test_M6_a_client_that_leaves_before_anything_was_sent_pays_nothing(rules: str) -> None:
    with upstream() as there, running(there.url, PLIMSOLL_RULES=rules) as proxy:
        with contextlib.closing(proxy.connection()) as client:
            client.putrequest("POST", CHAT)
            client.putheader("content-length", "100000")
            client.endheaders(b'{"model": "gpt-4o"')
        eventually(lambda: proxy.metric("plimsoll_requests_total", result="cancelled") == 1)
        assert there.requests == []
        assert proxy.metric("plimsoll_priced_requests_total") == proxy.metric("plimsoll_cost_sent_usd_total") == 0


@pytest.mark.parametrize(
    ("said", "dollars", "by"), [(b"0.0421", 0.0421, "reported"), (b"0.0", 0.011, "usage"), (b"free", 0.011, "usage")]
)
def test_M5_what_litellms_proxy_says_that_an_answer_costs_outranks_ours(
    rules: str, said: bytes, dollars: float, by: str
) -> None:
    """It says 0 of models that it has no price of. By ours: 100 tokens at a thousandth of a cent, and one at a cent."""
    usage = {"prompt_tokens": 100, "completion_tokens": 1}
    told = {"id": "1", "object": "chat.completion", "model": "gpt-4o", "usage": usage}
    choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
    headers = (b"content-type: application/json", b"x-litellm-response-cost: " + said)

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(answer(json.dumps({**told, "choices": [choice]}).encode(), headers=headers))

    with upstream(script) as there, running(there.url, PLIMSOLL_RULES=rules) as proxy:
        forged = {"x-litellm-response-cost": "9"}
        got = proxy.ask({**BODY, "stream": False}, headers=forged)
        assert got.status == 200
        eventually(lambda: basis(proxy, by) == 1)
        assert cost(proxy) == pytest.approx(dollars)


def test_M17_what_does_not_fit_is_in_no_share_of_what_was_cut(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text('window = [{ model = "gpt-4o", tokens = 2000 }]\n')
    with upstream() as there, running(there.url, PLIMSOLL_RULES=str(tmp_path)) as proxy:
        assert proxy.ask({**BODY, "stream": False}).status == 200
        long = [{"role": role, "content": SAID * 2} for role in ("user", "assistant", "user", "assistant", "user")]
        cut = proxy.ask({"model": "gpt-4o", "messages": long})
        assert cut.status == 200 and "x-plimsoll-steps" in cut.headers
        unfit = proxy.ask({"model": "gpt-4o", "messages": long}, headers={"x-plimsoll-pin": "0,1,2,3,4"})
        assert unfit.status == 400, unfit.body
        eventually(lambda: proxy.metric("plimsoll_requests_total", result="unfit") == 1)
        asked, sent, gone = (
            proxy.metric(f"plimsoll_{name}_tokens_total", model="gpt-4o") for name in ("prompt", "prompt_sent", "cut")
        )
        assert asked == sent + gone > 0
