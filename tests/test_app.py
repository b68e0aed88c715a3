"""The web surface: which path goes where, what the house is joined from, when it is ready."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy import app as module
from proxy.app import Loaded, Services, build, create_admin, create_app
from proxy.config.settings import read_settings
from proxy.errors import ConfigError
from proxy.model.outcome import Outcome
from proxy.request.wants.summaries import Summaries
from proxy.tokens import encodings
from proxy.wire.controls import NOTHING_ASKED
from tests.serving import eventually

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
    monkeypatch.setattr(type(made.gateway), "other", note("other"))
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
    assert (status, json.loads(told)["error"]["code"], seen) == (404, "not_found", [])


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
        assert asyncio.run(call(create_app(made), spelling.format(path), "POST"))[0] == 404
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


def test_both_encodings_are_loaded_and_only_the_first_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "_loaded", {})
    made = services()

    async def check() -> None:
        await made.open()
        assert encodings.loaded(module.FIRST_ENCODING)
        await eventually(lambda: encodings.loaded(module.SECOND_ENCODING), 10)
        await made.close()

    asyncio.run(check())


def test_metrics_are_told_in_prometheus_words() -> None:
    status, headers, told = asyncio.run(call(create_app(services()), "/metrics"))
    assert (status, headers[b"content-type"].startswith(b"text/plain; version=")) == (200, True)
    assert b"# TYPE plimsoll_requests_total counter" in told and b"plimsoll_cache_lookups_total" in told


def test_fallback_models_take_part_only_where_they_are_enabled() -> None:
    for enabled, models in (("true", ("gpt-4o",)), ("false", ())):
        made = services(LLM_FALLBACK_ENABLED=enabled, LLM_ALLOWED_FALLBACK_MODELS="gpt-4o")
        steps = [
            ladder_step for ladder_step in made.rules.ladders["default"].steps if ladder_step.step == "switch_model"
        ]
        assert [ladder_step.models for ladder_step in steps] == [models]


@pytest.mark.parametrize(
    "environment",
    [
        {"PLIMSOLL_LADDER": "nobodys"},
        {"PLIMSOLL_RULES": "/no/such/folder"},
        {"PLIMSOLL_REDIS": "memcached://x"},
        {"PLIMSOLL_UPSTREAM": "http://user:password@host/v1"},
    ],
)
def test_wrong_settings_stop_the_start(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as raised:
        services(**environment)
    assert "password@" not in str(raised.value)


def test_outcomes_go_to_whoever_is_named() -> None:
    told: list[Outcome] = []
    made = build(read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1"}), told.append)
    status, _, _ = asyncio.run(call(create_app(made), "/v1/models"))
    assert (status, [o.result for o in told]) == (502, ["upstream_error"])


# Rules and keys that change


def test_further_requests_have_the_new_rules_and_those_under_way_the_old(tmp_path: Path) -> None:
    made = services(PLIMSOLL_RULES=str(tmp_path))
    old = made.gateway
    (tmp_path / "windows.toml").write_text('[[window]]\nmodel = "harbour"\ntokens = 9000\n')
    (tmp_path / "ladder.toml").write_text('[[use]]\nmodel = "harbour"\nladder = "agent"\n')
    (tmp_path / "summary.txt").write_text("In one word.")

    async def check() -> None:
        made.reloader.request()
        await made.reloader.poll()

    asyncio.run(check())
    new = made.gateway
    assert new is not old and made.reloader.valid
    for gateway, ladder, window in ((old, "default", 8192), (new, "agent", 9000)):
        planner = gateway.planner
        assert planner.ladder_for("harbour", NOTHING_ASKED).name == ladder
        assert planner.knowledge is gateway.knowledge is gateway.healer.knowledge is gateway.learning.knowledge
        assert gateway.knowledge.known("harbour").tokens == window
    assert made.inspecting.planner is new.planner and made.knowledge is new.knowledge
    summaries = made.providers["summary"]
    assert isinstance(summaries, Summaries) and summaries.instructions == "In one word."
    assert (new.upstream, new.metrics, new.tell, new.budget) == (old.upstream, old.metrics, old.tell, old.budget)
    made.metrics.observe(Outcome("chat", "passed", 200, model="harbour"))
    assert b'model="harbour"' in made.metrics.exposition()


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


def changed(**environment: str) -> Services:
    """A house whose keys have changed."""
    made = services(
        PLIMSOLL_SECRET="old", PLIMSOLL_SUMMARY_API_KEY="old", PLIMSOLL_DRAIN="30", PLIMSOLL_REDIS="redis://h/0"
    )
    url = {"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1", "PLIMSOLL_REDIS": "redis://h/0"}
    made.adopt(Loaded(read_settings({**url, **environment}), made.rules, made.windows))
    return made


def test_new_keys_are_used_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    made = changed(PLIMSOLL_API_KEY="new", PLIMSOLL_SECRET="new", PLIMSOLL_SUMMARY_API_KEY="new")
    assert made.upstream.has_key and made.clients["summary"].upstream.has_key
    assert made.gateway.extra_calls is made.extra_calls
    assert capfd.readouterr().err == ""
    made.adopt(Loaded(replace(made.settings, api_key=None, summary_api_key=None), made.rules, made.windows))
    assert not made.upstream.has_key and not made.clients["summary"].upstream.has_key


def test_what_else_has_changed_is_said_once_to_take_effect_at_the_next_start(capfd: pytest.CaptureFixture[str]) -> None:
    made = changed(PLIMSOLL_DRAIN="31", PLIMSOLL_EMBEDDINGS_API_KEY="canary")
    made.adopt(Loaded(made.settings, made.rules, made.windows))
    told = capfd.readouterr().err
    names = re.findall(r"takes effect at the next start setting=(\S+)", told)
    assert names == ["PLIMSOLL_SECRET", "PLIMSOLL_DRAIN", "PLIMSOLL_EMBEDDINGS_API_KEY"]
    assert "canary" not in told
    assert made.gateway.settings.drain == 30
