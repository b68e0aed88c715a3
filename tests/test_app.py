"""The web surface: which path goes where, and when it is ready."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.app import create_admin, create_app
from proxy.config.settings import read_settings
from proxy.model.outcome import Outcome
from proxy.services import Loaded, Services, build

CHAT = "/v1/chat/completions"


def services(**environment: str) -> Services:
    """A house that nobody has entered."""
    return build(read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1", **environment}), lambda outcome: None)


async def call(router: Any, path: str, method: str = "GET", state: Any = None, raw: bytes | None = None) -> Any:
    """Status, headers and body of an answer."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "raw_path": raw or path.encode(), "headers": []}
    scope |= {"query_string": b"", "root_path": "", "plimsoll.target": raw or path.encode()}
    if state is not None:
        scope["state"] = state
    await router(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(m.get("body", b"") for m in sent[1:])


def noted(made: Services, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which handler each request came to."""
    seen: list[str] = []

    def note(name: str) -> Any:
        async def handler(self: Any, *args: Any) -> None:
            *_, send = args
            seen.append(name)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        return handler

    monkeypatch.setattr(type(made.gateway), "fit", note("chat"))
    monkeypatch.setattr(type(made.unfitted), "__call__", note("other"))
    monkeypatch.setattr(type(made.inspecting), "__call__", note("inspect"))
    return seen


@pytest.mark.parametrize(
    ("method", "path", "raw", "handler"),
    [
        ("POST", CHAT, None, "chat"),
        ("POST", CHAT, CHAT.encode() + b"?x=1", "chat"),  # servers that leave the query in
        ("GET", CHAT, None, "other"),
        ("DELETE", CHAT, None, "other"),
        ("POST", CHAT, b"/v1/chat%2Fcompletions", "other"),
        ("POST", CHAT + "/", None, "chat"),
        ("POST", "//v1//chat/completions//", None, "chat"),
        ("POST", "/chat/completions/", None, "chat"),
        ("GET", CHAT + "/", None, "other"),
        ("POST", CHAT + "/chatcmpl-1", None, "other"),
        ("POST", "/v1/Chat/Completions", None, "other"),
        ("POST", "/v1/moderations", None, "other"),
        ("GET", "/", None, "other"),
        ("GET", "/v1/inspect" + CHAT, None, "other"),
        ("GET", "/v1/metrics", None, "other"),
        ("GET", "*", None, "other"),
        ("POST", "/inspect" + CHAT, None, "inspect"),
        ("POST", "//inspect/" + CHAT + "/", None, "inspect"),
    ],
)
def test_every_path_has_its_place(
    method: str, path: str, raw: bytes | None, handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = services()
    seen = noted(made, monkeypatch)
    asyncio.run(call(create_app(made), path, method, raw=raw))
    assert seen == [handler]


OURS = ("/metrics", "/healthz", "/readyz", "/inspect" + CHAT)
SPELLINGS = ("{}", "/{}", "{}/", "//{}//", "/.{}", "/v1/..{}")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_path_of_ours_is_ours_however_it_is_written(spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = services()
    seen = noted(made, monkeypatch)
    for path in OURS:
        asyncio.run(call(create_app(made), spelling.format(path), "POST" if path == OURS[-1] else "GET"))
    assert seen == ["inspect"]


@pytest.mark.parametrize("path", ["/inspect", "/inspect/", "/inspect/v1/moderations", "/inspect/metrics"])
def test_what_is_not_there_below_a_path_of_ours_is_a_404_of_ours(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = services()
    seen = noted(made, monkeypatch)
    status, _, told = asyncio.run(call(create_app(made), path, "POST"))
    error = json.loads(told)["error"]
    assert (status, error["code"], seen) == (404, "not_found", [])
    assert "such as /inspect/v1/chat/completions" in error["message"]


@pytest.mark.parametrize("path", OURS)
def test_a_path_of_ours_tells_which_methods_it_takes(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = services()
    seen = noted(made, monkeypatch)
    status, headers, _ = asyncio.run(call(create_app(made), path, "DELETE"))
    assert (status, seen) == (405, [])
    assert headers[b"allow"] == (b"POST" if path == OURS[-1] else b"GET, HEAD")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_with_an_admin_port_nothing_of_ours_is_on_the_data_port(spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = services(PLIMSOLL_ADMIN_PORT="9")
    seen = noted(made, monkeypatch)
    for path in OURS:
        status, _, told = asyncio.run(call(create_app(made), spelling.format(path), "POST"))
        assert status == 404 and b"such as" not in told
    assert seen == []
    asyncio.run(call(create_admin(made), "/inspect" + CHAT, "POST"))
    assert seen == ["inspect"]
    assert asyncio.run(call(create_admin(made), CHAT, "POST"))[0] == 404


def test_whether_the_server_is_there_is_asked_of_no_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    made = services()
    seen = noted(made, monkeypatch)
    for app in (create_app(made), create_admin(made)):
        assert asyncio.run(call(app, "*", "OPTIONS"))[0] == 200
    assert seen == []


def test_it_is_ready_from_its_opening_until_it_is_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    made = services()

    async def check() -> None:
        router = create_app(made)
        assert (await call(router, "/readyz"))[0] == 503
        assert (await call(router, "/healthz"))[::2] == (200, b"alive\n")
        await made.open()
        assert (await call(router, "/readyz", state={}))[::2] == (200, b"ready\n")
        assert (await call(router, "/readyz", state={"draining": True}))[::2] == (503, b"not ready\n")
        assert (await call(create_admin(made), "/readyz", state={"draining": True}))[0] == 503
        assert (await call(router, "/healthz", state={"draining": True}))[0] == 200
        await made.close()
        assert (await call(router, "/readyz"))[0] == 503

    asyncio.run(check())


def test_metrics_are_told_in_prometheus_words() -> None:
    status, headers, told = asyncio.run(call(create_app(services()), "/metrics"))
    assert (status, headers[b"content-type"].startswith(b"text/plain; version=")) == (200, True)
    assert b"# TYPE plimsoll_requests_total counter" in told and b"plimsoll_cache_lookups_total" in told


def test_outcomes_go_to_whoever_is_named() -> None:
    told: list[Outcome] = []
    made = build(read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1"}), told.append)
    status, _, _ = asyncio.run(call(create_app(made), "/v1/models"))
    assert (status, [o.result for o in told]) == (502, ["upstream_error"])


def test_a_request_goes_to_the_gateway_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = services()
    app = create_app(made)
    seen: list[int] = []

    async def fit(self: Any, *args: Any) -> None:
        seen.append(id(self))
        await args[-1]({"type": "http.response.start", "status": 200, "headers": []})

    monkeypatch.setattr(type(made.gateway), "fit", fit)
    old = made.gateway
    asyncio.run(call(app, CHAT, "POST"))
    made.adopt(Loaded(made.settings, made.rules, made.windows))
    asyncio.run(call(app, CHAT, "POST"))
    assert seen == [id(old), id(made.gateway)] and seen[0] != seen[1]
