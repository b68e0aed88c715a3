"""Which upstream serves a request, driven by hand; tests/e2e/test_upstreams.py has the whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.apis.openai_chat import API
from proxy.config.settings import read_settings
from proxy.errors import ClientError
from proxy.model.plan import Mode
from proxy.request.routes import OneUpstream, Routed, Routes
from proxy.request.stages import Received, Record
from proxy.services import Services, build
from proxy.wire.controls import controls
from proxy.wire.headers import Header
from tests.e2e.services import body, talk

ROWS = """
[[upstream]]
name = "local"
url = "http://127.0.0.1:9/v1"
models = ["llama*"]
window = 5000

[[upstream]]
name = "messages"
url = "http://127.0.0.1:9/v1"
api = "anthropic"
paths = ["/v1/messages*"]
"""


@pytest.fixture
def services(tmp_path: Path) -> Services:
    (tmp_path / "upstreams.toml").write_text(ROWS, "utf-8")
    return build(read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1", "PLIMSOLL_RULES": str(tmp_path)}))


@pytest.fixture
def routes(services: Services) -> Routes:
    assert services.routes is not None
    return services.routes


def received(sent: bytes, *headers: Header, mode: Mode = Mode.FIT) -> Received:
    return Received(API, mode, API.paths[0], headers, controls(headers), sent)


def begun(routes: Routes, request: Received) -> Routed:
    """Where a request goes."""
    return asyncio.run(routes.begin(request, Record()))


def test_without_rows_there_are_no_routes() -> None:
    made = build(read_settings({}))
    assert made.routes is None and made.knowledge.peers is None and isinstance(made.gateway.routes, OneUpstream)


def test_a_request_is_scanned_once_to_be_routed(routes: Routes) -> None:
    context = received(body(talk(2), "llama-3"))
    routed = begun(routes, context)
    assert routed.home is routes.backends["local"] and routed.error is None
    assert routed.scanned is not None and routed.scanned.model == "llama-3"


def test_in_the_mode_off_nothing_of_it_stays(routes: Routes) -> None:
    routed = begun(routes, received(body(talk(2), "llama-3"), mode=Mode.OFF))
    assert routed.home.name == "local" and routed.scanned is None


def test_a_failure_of_our_own_scan_leads_to_the_default_upstream(
    routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(type(routes.backends["default"].planner.scanner), "scan_now", broken)
    assert begun(routes, received(body(talk(2), "llama-3"))).home.name == "default"


def test_an_upstream_of_another_api_cannot_be_named(routes: Routes) -> None:
    with pytest.raises(ClientError, match="does not have the API of this path"):
        begun(routes, received(body(talk(2)), (b"x-plimsoll-upstream", b"messages")))
    assert asyncio.run(routes.other((), b"/v1/messages/count_tokens?beta=true")).name == "messages"
    assert asyncio.run(routes.other((), b"//v1/messages/count_tokens/")).name == "messages"


def test_the_row_bounds_the_windows_of_its_models(services: Services, routes: Routes) -> None:
    ladder = services.rules.ladders["default"]
    local, default = (routes.backends[name].knowledge for name in ("local", "default"))
    assert (local.window_now("gpt-4o", ladder, None).tokens, default.window_now("gpt-4o", ladder, None).tokens) == (
        5_000,
        128_000,
    )


def test_a_request_that_was_not_moved_has_nowhere_else_to_stay(routes: Routes) -> None:
    context = received(body(talk(2), "llama-3"))
    home = begun(routes, context).home
    planned = asyncio.run(home.planner.prepare(context, Record()))
    assert routes.target(planned, home) is home
    assert asyncio.run(routes.without(planned, home, home, Record(), None)) is None


def test_offline_no_upstream_is_called(services: Services, routes: Routes) -> None:
    services.go_offline()
    assert all(backend.knowledge.offline for backend in routes.backends.values())
