"""The upstream's own list of models: one fetch serves all models, and no request waits longer than its limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from proxy.model.limits import Window
from proxy.upstreams import models_listing as module
from proxy.upstreams.models_listing import ModelsListing
from proxy.upstreams.upstream import Upstream
from tests.over_httpx import OverHttpx

LIST = json.dumps({"data": [{"id": "a", "max_model_len": 4_096}, {"id": "b", "context_length": 9_000}]}).encode()
LARGE = json.dumps({"data": [{"id": f"m{i}", "context_length": 1_000 + i} for i in range(3_000)]}).encode()
HEADERS = [(b"authorization", b"Bearer k"), (b"content-type", b"application/json"), (b"content-encoding", b"gzip")]
Answer = Callable[[httpx.Request], Coroutine[None, None, httpx.Response]]


def listing(answer: Answer) -> ModelsListing:
    """A listing whose upstream answers so."""
    return ModelsListing(Upstream("http://upstream/v1", link=OverHttpx(httpx.MockTransport(answer))))


def telling(*answers: tuple[int, bytes]) -> tuple[ModelsListing, list[httpx.Request]]:
    """A listing whose upstream gives these answers in turn and repeats the last one, and the requests it received."""
    asked: list[httpx.Request] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        status, body = answers[min(len(asked), len(answers) - 1)]
        asked.append(request)
        return httpx.Response(status, content=body)

    return listing(answer), asked


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No list is late, however busy the machine is, unless a test says so."""
    for patience in ("REQUEST_WAIT_S", "FETCH_TIMEOUT_S"):
        monkeypatch.setattr(module, patience, 30.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as a list of one number."""
    now = [1_000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_nothing_is_known_before_anybody_asked() -> None:
    one, asked = telling((200, LIST))
    assert one.window("a") is None and asked == []


def test_one_question_tells_of_all_models() -> None:
    async def check() -> None:
        one, asked = telling((200, LIST))
        for model in ("a", "b", "nobody", "a"):
            await one.load(model, HEADERS)
        assert (one.window("a"), one.window("b")) == (
            Window(4_096, source="upstream"),
            Window(9_000, source="upstream"),
        )
        assert one.window("nobody") is None
        assert [(r.method, r.extensions["target"]) for r in asked] == [("GET", b"/v1/models")]
        assert asked[0].headers["authorization"] == "Bearer k"
        assert not {"content-type", "content-encoding", "content-length"} & set(asked[0].headers)

    asyncio.run(check())


def test_a_long_list_is_read_too() -> None:
    async def check() -> None:
        one, _ = telling((200, LARGE))
        await one.load("m2999", HEADERS)
        assert one.window("m2999") == Window(3_999, source="upstream")

    asyncio.run(check())


@pytest.mark.parametrize("status", [200, 404, 405])
def test_a_list_and_that_there_is_none_hold_for_long(status: int, clock: list[float]) -> None:
    async def check() -> None:
        one, asked = telling((status, b"{}"), (200, LIST))
        await one.load("a", HEADERS)
        clock[0] += module.MAX_AGE_S - 1
        await one.load("a", HEADERS)
        assert (one.window("a"), len(asked)) == (None, 1)
        clock[0] += 2
        await one.load("a", HEADERS)
        assert one.window("a") is not None and len(asked) == 2

    asyncio.run(check())


@pytest.mark.parametrize("status", [401, 403, 429, 500])
def test_a_failure_holds_only_for_a_while(status: int, clock: list[float]) -> None:
    async def check() -> None:
        one, asked = telling((status, b'{"error":{}}'), (200, LIST))
        await one.load("a", HEADERS)
        clock[0] += module.RETRY_S - 1
        await one.load("a", HEADERS)
        assert (one.window("a"), len(asked)) == (None, 1)
        clock[0] += 2
        await one.load("a", HEADERS)
        assert one.window("a") is not None

    asyncio.run(check())


def test_what_was_told_is_forgotten_with_a_new_list(clock: list[float]) -> None:
    async def check() -> None:
        one, _ = telling((200, LIST), (200, LIST.replace(b"4096", b"5000")))
        await one.load("a", HEADERS)
        clock[0] += module.MAX_AGE_S
        await one.load("b", HEADERS)
        await one.load("a", HEADERS)
        assert one.window("a") == Window(5_000, source="upstream")

    asyncio.run(check())


def test_an_upstream_that_is_gone_breaks_nothing() -> None:
    async def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no")

    async def check() -> None:
        one = listing(gone)
        await one.load("a", HEADERS)
        assert one.window("a") is None

    asyncio.run(check())


def test_a_list_that_does_not_come_is_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_WAIT_S", 0.01)
    monkeypatch.setattr(module, "FETCH_TIMEOUT_S", 0.05)

    async def silent(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(3_600)
        raise AssertionError

    async def check() -> None:
        one = listing(silent)
        await one.load("a", HEADERS)
        assert one._fetch_task is not None
        await asyncio.wait({one._fetch_task})
        assert one._fetch_task is None and one.window("a") is None

    asyncio.run(check())


def test_closing_gives_up_a_question_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_WAIT_S", 0.01)
    cancelled: list[bool] = []

    async def silent(request: httpx.Request) -> httpx.Response:
        try:
            await asyncio.sleep(3_600)
        finally:
            cancelled.append(True)
        raise AssertionError

    async def check() -> None:
        one = listing(silent)
        await one.load("a", HEADERS)
        await one.close()
        await one.close()
        assert cancelled == [True]

    asyncio.run(check())


def test_invented_names_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MODELS", 10)

    async def check() -> None:
        one, asked = telling((200, LIST))
        for i in range(100):
            await one.load(f"invented-{i}", HEADERS)
        await one.load("a", HEADERS)
        assert len(one._windows) <= 10 and len(asked) == 1
        assert one.window("a") is not None

    asyncio.run(check())


def test_nobody_is_asked_for_a_body_that_a_client_announced(clock: list[float]) -> None:
    async def check() -> None:
        one, asked = telling((200, LIST))
        headers: Any = [
            *HEADERS,
            (b"transfer-encoding", b"chunked"),
            (b"if-none-match", b"x"),
            (b"content-length", b"9"),
        ]
        await one.load("a", headers)
        assert asked[0].content == b"" and "transfer-encoding" not in asked[0].headers
        assert "if-none-match" not in asked[0].headers

    asyncio.run(check())


def test_the_list_says_who_owns_a_model() -> None:
    async def check() -> None:
        owned = [json.dumps({"data": [{"id": "a", "owned_by": name}]}).encode() for name in ("vllm", "llamacpp")]
        one, asked = telling(*((200, body) for body in owned))
        assert one.owner("a") == "" and asked == []
        await one.load("a", HEADERS)
        assert one.owner("a") == one.owner("a") == "vllm"
        await one.load("a", HEADERS, max_age=0)
        assert one.owner("a") == "llamacpp"

    asyncio.run(check())
