"""Embeddings help to choose what of a chat stays; slow, down or wrong ones change nothing, and without a model nobody
is asked."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.request.wants.embeddings import Embeddings
from proxy.simulator.app import SimulatorConfig
from tests.e2e.services import KEY, PATH, body, plimsoll, simulating
from tests.keys import checking_keys
from tests.makers import words
from tests.recorder import Peer, Request, Script, answer, head, recording
from tests.redis_server import RedisServer, redis_server
from tests.serving import ask, eventually, post, run

SET = {"PLIMSOLL_EMBEDDINGS_MODEL": "emb", "PLIMSOLL_EMBEDDINGS_TIMEOUT": "60"}
CHAT = [b"x-plimsoll-ladder: chat"]
DONE = json.dumps({"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}).encode()
SECRET = "The vessel lies moored by Katrin's house."
QUESTION = "Whereabouts zxq?"
CLOSED = "http://127.0.0.1:9/v1"
UNDER, OVER = 106, 190  # turns: loads of 0.73 and 1.26


def said(turns: int, question: str = QUESTION) -> list[dict[str, str]]:
    """A long chat in one early turn of which stands what is asked at its end, in other words. No turn has a word of the
    question, nor of the last turns, which it would be taken to follow."""
    lines = [f"Entry {i}: " + " ".join(f"word{(i * 7 + k) % 97}" for k in range(22)) for i in range(turns - 12)]
    lines += [" ".join(f"n{i}x{k}" for k in range(11)) for i in range(12)]
    lines[21] = SECRET
    turned = [{"role": "user" if i % 2 == 0 else "assistant", "content": line} for i, line in enumerate(lines)]
    return [{"role": "system", "content": "Be brief."}, *turned, {"role": "user", "content": question}]


def sent(turns: int) -> bytes:
    return body(said(turns), max_tokens=500)


def told(request: Request) -> bytes:
    """What a model would answer that knows where vessels lie: the question, and one turn, in the same direction."""
    texts = json.loads(request.body)["input"]
    vectors = [[1.0, 0.1] if text in (SECRET, QUESTION) else [0.1, 1.0] for text in texts]
    return json.dumps({"data": [{"index": i, "embedding": v} for i, v in enumerate(vectors)]}).encode()


async def knows(request: Request, peer: Peer) -> None:
    await peer.send(answer(told(request)))


def is_question(request: Request) -> bool:
    return request.target == b"/v1/embeddings"


def upstream(script: Script = knows) -> Script:
    """An upstream with both endpoints."""

    async def both(request: Request, peer: Peer) -> None:
        await (script(request, peer) if is_question(request) else peer.send(answer(DONE)))

    return both


async def arrives(script: Script, *headers: bytes, **environment: str) -> bytes:
    """What arrives upstream of a client's conversation, which must get its answer."""
    async with recording(upstream(script)) as up, plimsoll(up.url, **environment) as proxy:
        reply = await proxy.chat(sent(OVER), *headers)
        assert (reply.status, reply.body) == (200, DONE)
        (got,) = [r.body for r in up.requests if not is_question(r)]
        return got


def test_what_means_what_the_question_asks_survives_only_with_embeddings() -> None:
    async def check() -> None:
        assert SECRET.encode() in await arrives(knows, *CHAT, **SET)
        assert SECRET.encode() not in await arrives(knows, *CHAT)

    run(check())


def test_it_survives_in_a_layout_that_holds_quotes_too() -> None:
    async def check() -> None:  # without embeddings it may be held: words of the messages before the question are near
        assert SECRET.encode() in await arrives(knows, **SET)

    run(check())


def test_so_it_does_with_the_simulators_embeddings_from_an_upstream_of_their_own(tmp_path: Path) -> None:
    alike = SimulatorConfig(synonyms={"vessel": "zxq", "moored": "zxq", "lies": "whereabouts"})

    async def check() -> None:
        async with simulating(alike) as (model, url), recording(upstream()) as up:
            more = {"PLIMSOLL_EMBEDDINGS_UPSTREAM": url, "PLIMSOLL_EMBEDDINGS_API_KEY": "sk-emb"}
            async with plimsoll(up.url, **SET, **more, PLIMSOLL_RULES=checking_keys(tmp_path)) as proxy:
                await proxy.chat(sent(30))  # its key is accepted
                await proxy.chat(sent(OVER), b"cookie: a=b", *CHAT)
            _, got = up.requests
            assert SECRET.encode() in got.body
            asked = list(model.received)
            assert {r.path for r in asked} == {"/v1/embeddings"}
            assert {r.header(b"authorization") for r in asked} == {b"Bearer sk-emb"}
            assert {r.header(b"cookie") for r in asked} == {None}
            assert sum(len(r.json()["input"]) for r in asked) == OVER + 2

    run(check())


def test_rag_recalls_what_was_dropped_by_them() -> None:
    async def check() -> None:
        assert SECRET.encode() in await arrives(knows, b"x-plimsoll-ladder: rag", **SET, **BUDGETS)
        assert SECRET.encode() not in await arrives(knows, b"x-plimsoll-ladder: rag", **BUDGETS)

    run(check())


BUDGETS = {"CONTEXT_RECENT_HISTORY_TOKEN_BUDGET": "3000", "CONTEXT_RAG_TOKEN_BUDGET": "1000"}


async def stalls(request: Request, peer: Peer) -> None:
    await peer.gone()


async def dies(request: Request, peer: Peer) -> None:
    await peer.send(head(b"200 OK", b"content-length: 500") + b'{"data":')
    peer.reset()


async def grows(request: Request, peer: Peer) -> None:
    """Every answer in a space of its own."""
    size = 2 + len(json.loads(request.body)["input"])
    texts = json.loads(request.body)["input"]
    data = [{"index": i, "embedding": [1.0] * (size + len(texts[0]))} for i in range(len(texts))]
    await peer.send(answer(json.dumps({"data": data}).encode()))


def telling(text: bytes, status: bytes = b"200 OK") -> Script:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(answer(text, status))

    return script


BAD: dict[str, Script] = {
    "stalls": stalls,
    "dies": dies,
    "fails": telling(b'{"error":{"message":"no"}}', b"500 Internal Server Error"),
    "is unknown": telling(b'{"error":{"message":"no such path"}}', b"404 Not Found"),
    "has too many requests": telling(b"{}", b"429 Too Many Requests"),
    "says no JSON": telling(b"<html>502</html>"),
    "says an error": telling(b'{"error":{"message":"overloaded"}}'),
    "says one vector": telling(b'{"data":[{"embedding":[1,2],"index":0}]}'),
    "says text": telling(b'{"data":[{"embedding":"canary","index":0}]}'),
    "says other lengths": grows,
}


@pytest.mark.parametrize("ladder", [CHAT, []], ids=["chat", "default"])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_bad_embeddings_change_nothing_for_the_client(bad: Script, ladder: list[bytes]) -> None:
    async def check() -> None:
        got = await arrives(bad, *ladder, **{**SET, "PLIMSOLL_EMBEDDINGS_TIMEOUT": "200ms"})
        assert got == await arrives(knows, *ladder)

    run(check())


def test_where_nobody_listens_nothing_changes() -> None:
    async def check() -> None:
        got = await arrives(knows, *CHAT, **SET, PLIMSOLL_EMBEDDINGS_UPSTREAM=CLOSED)
        assert got == await arrives(knows, *CHAT)

    run(check())


def test_what_came_too_late_serves_the_same_question_later() -> None:
    late = asyncio.Event()

    async def slowly(request: Request, peer: Peer) -> None:
        await late.wait()
        await knows(request, peer)

    async def check() -> None:
        async with recording(upstream(slowly)) as up:
            async with plimsoll(up.url, **{**SET, "PLIMSOLL_EMBEDDINGS_TIMEOUT": "50ms"}) as proxy:
                await proxy.chat(sent(OVER), *CHAT)
                late.set()
                embeddings = proxy.services.providers["embeddings"]
                assert isinstance(embeddings, Embeddings)
                await eventually(lambda: not embeddings._calls, 30)
                await proxy.chat(sent(OVER), *CHAT)
                first, second = [r.body for r in up.requests if not is_question(r)]
                assert SECRET.encode() not in first and SECRET.encode() in second

    run(check())


def texts(requests: list[Request]) -> list[str]:
    return [text for r in requests if is_question(r) for text in json.loads(r.body)["input"]]


def test_without_a_model_nobody_is_asked() -> None:
    async def check() -> None:
        async with recording(upstream()) as up, plimsoll(up.url) as proxy:
            for turns in (UNDER, OVER):
                for ladder in ([], CHAT, [b"x-plimsoll-ladder: rag"]):
                    await proxy.chat(sent(turns), *ladder)
            assert len(up.requests) == 6 and not any(map(is_question, up.requests))

    run(check())


@pytest.mark.parametrize("mode", [b"observe", b"off"])
def test_where_nothing_may_be_done_nobody_is_asked(mode: bytes) -> None:
    async def check() -> None:
        async with recording(upstream()) as up, plimsoll(up.url, **SET) as proxy:
            await proxy.chat(sent(OVER), b"x-plimsoll-mode: " + mode)
            await proxy.told()
            assert [r.body for r in up.requests] == [sent(OVER)]

    run(check())


def test_they_are_made_ready_before_they_are_needed_and_each_text_once() -> None:
    async def check() -> None:
        async with recording(upstream()) as up, plimsoll(up.url, **SET) as proxy:
            await proxy.chat(sent(UNDER), *CHAT)
            await eventually(lambda: len(texts(up.requests)) == UNDER + 2, 30)
            assert [r.body for r in up.requests if not is_question(r)] == [sent(UNDER)]
            await eventually(lambda: not proxy.services.gateway.default.planner.background.tasks, 30)
            await proxy.chat(sent(OVER), *CHAT)
            every = texts(up.requests)
            assert len(every) == len(set(every)) == OVER + 2

    run(check())


def test_under_the_lower_mark_and_for_runs_of_tools_nobody_is_asked() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    done = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "ok"}]

    async def check() -> None:
        async with recording(upstream()) as up, plimsoll(up.url, **SET) as proxy:
            await proxy.chat(sent(60))
            await proxy.chat(body([*said(OVER)[:-1], *done, said(OVER)[-1]], max_tokens=500))
            await eventually(lambda: not proxy.services.gateway.default.planner.background.tasks, 30)
            assert len(up.requests) == 2 and not any(map(is_question, up.requests))

    run(check())


def test_inspect_asks_nobody_and_tells_by_what_is_known_why_a_turn_was_kept() -> None:
    async def check() -> None:
        async with recording(upstream()) as up, plimsoll(up.url, **SET) as proxy:
            asked = post(sent(OVER), KEY, *CHAT, target=b"/inspect" + PATH)
            found: Any = json.loads((await ask(proxy.port, asked)).body)
            assert found["messages"]["detail"][22]["why"] != "relevance 1.00" and up.requests == []
            assert f"0 of {OVER + 2} embeddings are known; the others would be asked for" in json.dumps(found)
            await proxy.chat(sent(OVER), *CHAT)
            before = len(up.requests)
            found = json.loads((await ask(proxy.port, asked)).body)
            assert found["messages"]["detail"][22]["why"] == "relevance 1.00"
            assert f"{OVER + 2} of {OVER + 2} embeddings are known" in json.dumps(found)
            assert texts(up.requests) and len(up.requests) == before

    run(check())


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as running:
        yield running


LONG = {"role": "user", "content": "The vessel is long. " * 200}  # its count is worth sharing


def test_neither_texts_nor_vectors_are_logged_or_shared(server: RedisServer, capfd: pytest.CaptureFixture[str]) -> None:
    shared = {"PLIMSOLL_REDIS": server.url, "PLIMSOLL_SECRET": "of both"}

    async def check() -> None:
        async with recording(upstream()) as up, recording(upstream()) as other:
            async with plimsoll(up.url, **SET, **shared) as one, plimsoll(other.url, **SET, **shared) as two:
                for proxy in (one, two):
                    await proxy.chat(body([*said(OVER)[:-1], LONG, said(OVER)[-1]], max_tokens=500), *CHAT)
                assert len(texts(up.requests)) == len(texts(other.requests)) == OVER + 3
                while not server.names():  # a busy machine leaves Redis out of a request
                    longer = {**LONG, "content": LONG["content"] + words(600, f"{time.monotonic_ns()}x")}
                    await one.chat(body([*said(OVER)[:-1], longer, said(OVER)[-1]], max_tokens=500), *CHAT)
                    await asyncio.sleep(0.1)

    run(check())
    assert {name.split(":")[2] for name in server.names()} == {"count"}
    told = "".join(capfd.readouterr())
    assert "vessel" not in told and "sk-test" not in told
