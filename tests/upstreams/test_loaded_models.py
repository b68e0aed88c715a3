"""What an Ollama server has loaded: it is asked often, and believed as long as it answers."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import httpx
import pytest

from proxy.upstreams import loaded_models as module
from proxy.upstreams.loaded_models import MAX_AGE_S, RETRY_S, LoadedModels
from proxy.upstreams.upstream import Upstream
from tests.over_httpx import OverHttpx

HEADERS = [(b"authorization", b"Bearer k"), (b"content-type", b"application/json"), (b"content-length", b"9")]


def answer(**windows: int) -> tuple[int, bytes]:
    models = [{"name": name, "model": name, "context_length": window} for name, window in windows.items()]
    return 200, json.dumps({"models": models}).encode()


def telling(*answers: tuple[int, bytes]) -> tuple[LoadedModels, list[httpx.Request]]:
    """A server that gives these answers in turn and repeats the last one, and the requests it received."""
    asked: list[httpx.Request] = []

    async def respond(request: httpx.Request) -> httpx.Response:
        status, body = answers[min(len(asked), len(answers) - 1)]
        asked.append(request)
        if not status:
            raise httpx.ConnectError("gone")
        return httpx.Response(status, content=body)

    return LoadedModels(Upstream("http://host/v1", link=OverHttpx(httpx.MockTransport(respond)))), asked


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is late, however busy the machine is."""
    monkeypatch.setattr(module, "WAIT_S", 30.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as a list of one number."""
    now = [1_000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_nothing_is_known_before_anybody_asked() -> None:
    one, asked = telling(answer(a=4096))
    assert one.window("a") is None and asked == []


def test_what_is_loaded_as_a_request_wanted_it_says_nothing_of_others() -> None:
    async def check() -> None:
        one, _ = telling(answer(a=4096, b=8192))
        assert await one.load(HEADERS) and one.window("a") == 4096
        assert one.request("A") and not one.request("a:latest") and not one.request("c")
        assert one.window("a") is None and one.window("b") == 8192

    asyncio.run(check())


def test_a_fresh_answer_serves_all_and_a_change_is_told(clock: list[float]) -> None:
    async def check() -> None:
        one, asked = telling(answer(a=4096), answer(a=4096), answer(b=8192))
        assert await one.load(HEADERS) and not await one.load(HEADERS)
        assert one.window("A") == 4096 and one.window("a:latest") == 4096 and one.window("a:7b") is None
        assert len(asked) == 1 and asked[0].url.path == "/api/ps"
        assert asked[0].headers["authorization"] == "Bearer k" and "content-type" not in asked[0].headers
        clock[0] += MAX_AGE_S
        assert not await one.load(HEADERS)
        clock[0] += MAX_AGE_S
        assert await one.load(HEADERS) and one.window("a") is None and one.window("b") == 8192

    asyncio.run(check())


def test_a_server_without_such_a_path_is_left_alone_for_a_while(clock: list[float]) -> None:
    async def check() -> None:
        one, asked = telling((404, b"404 page not found"))
        assert not await one.load(HEADERS)
        clock[0] += RETRY_S - 1
        assert not await one.load(HEADERS) and len(asked) == 1
        clock[0] += 1
        assert not await one.load(HEADERS) and len(asked) == 2

    asyncio.run(check())


def test_a_refused_key_changes_nothing_for_others(clock: list[float]) -> None:
    async def check() -> None:
        one, asked = telling(answer(a=4096), (401, b"{}"), answer(a=8192))
        await one.load(HEADERS)
        clock[0] += MAX_AGE_S
        assert not await one.load([(b"authorization", b"wrong")]) and one.window("a") == 4096
        assert await one.load(HEADERS) and one.window("a") == 8192 and len(asked) == 3

    asyncio.run(check())


@pytest.mark.parametrize("wrong", [(0, b""), (200, b"<html>"), (200, b'{"models":{}}')])
def test_what_cannot_be_read_changes_nothing(clock: list[float], wrong: tuple[int, bytes]) -> None:
    async def check() -> None:
        one, _ = telling(answer(a=4096), wrong)
        await one.load(HEADERS)
        clock[0] += MAX_AGE_S
        assert not await one.load(HEADERS) and one.window("a") == 4096

    asyncio.run(check())
