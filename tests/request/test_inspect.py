"""/inspect: plans are told as JSON, and mistakes in OpenAI's shape; nothing is sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.apis.openai_chat import API
from proxy.config.settings import read_settings
from proxy.errors import ClientError
from proxy.model.limits import Shape
from proxy.services import Services, build
from proxy.upstreams.internal_client import tenant_of
from proxy.wire.report import figures
from tests.e2e.services import body, talk

LONG = body(talk(400), max_tokens=500)


def services(**environment: str) -> Services:
    """A house whose upstream nobody asks."""
    settings = read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1", **environment})
    made = build(settings, lambda outcome: None)
    made.gateway.default.planner.knowledge.offline = True
    return made


def asked(made: Services, *pieces: bytes, gone: bool = False, headers: Any = ()) -> list[Any]:
    """What is sent to a client whose body comes in pieces."""
    waiting = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces[:-1]]
    waiting += [{"type": "http.request", "body": piece, "more_body": gone} for piece in pieces[-1:]]
    sent: list[Any] = []

    async def receive() -> Any:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/inspect/v1/chat/completions", "headers": [*headers]}
    asyncio.run(made.inspecting(API, scope, receive, send))
    return sent


def test_a_plan_is_told_as_json_of_a_known_length() -> None:
    start, told = asked(services(), LONG[:100], LONG[100:])
    headers = dict(start["headers"])
    assert (start["status"], headers[b"content-type"]) == (200, b"application/json")
    assert headers[b"content-length"] == b"%d" % len(told["body"])
    plan = json.loads(told["body"])
    assert plan["fits"] and plan["steps"][0]["step"] == "prune_history"
    assert len(plan["request"]["messages"]) == plan["messages"]["sent"] < plan["messages"]["in"] == 402


def test_a_plan_is_made_as_for_the_tenant_that_asks() -> None:
    made, ann, bob = services(), [(b"authorization", b"Bearer ann")], [(b"authorization", b"Bearer bob")]
    before = asyncio.run(made.inspecting.plan_of(API, LONG, bob))["tokens"]
    for _ in range(3):  # a system prompt of its gateway
        made.cache.record_sample("gpt-4", tenant_of(ann), Shape.TEXT, (5_000, 5_300))
    tokens: Any = asyncio.run(made.inspecting.plan_of(API, LONG, ann))["tokens"]
    assert asyncio.run(made.inspecting.plan_of(API, LONG, bob))["tokens"] == before
    assert (tokens["quality"], tokens["prompt"] > before["prompt"]) == ("calibrated", True)  # type: ignore[index]


def test_the_plan_alone_has_the_figures_of_the_report() -> None:
    made, headers = services(), [(b"x-plimsoll-window", b"5000")]
    plan = asyncio.run(made.inspecting.planned(API, LONG, headers)).descent.plan
    report = asyncio.run(made.inspecting.plan_of(API, LONG, headers))
    found = figures(plan)
    counts = found.pop("messages")
    assert plan.changed and {key: report[key] for key in found} == found
    assert report["messages"] == {**report["messages"], **counts}  # type: ignore[dict-item]


@pytest.mark.parametrize(("sent", "headers"), [(b"{", ()), (LONG, ((b"x-plimsoll-window", b"few"),))])
def test_mistakes_are_raised_for_the_plan_alone_too(sent: bytes, headers: Any) -> None:
    with pytest.raises(ClientError):
        asyncio.run(services().inspecting.planned(API, sent, headers))


def test_a_body_that_fits_is_told_as_it_came() -> None:
    sent = b'{"messages" : [{"role":"user","content":"Hi"}],  "model":"gpt-4o"}'
    plan = asyncio.run(services().inspecting.plan_of(API, sent, ()))
    assert bytes(plan["request"]) == sent and plan["steps"] == []  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("sent", "headers", "code"),
    [
        (b"{", (), "not_understood"),
        (LONG, ((b"content-encoding", b"br"),), "not_understood"),
        (LONG, ((b"x-plimsoll-window", b"few"),), "invalid_header"),
        (LONG, ((b"x-plimsoll-ladder", b"nobodys"),), "invalid_header"),
    ],
)
def test_mistakes_are_told(sent: bytes, headers: Any, code: str) -> None:
    start, told = asked(services(), sent, headers=headers)
    assert (start["status"], json.loads(told["body"])["error"]["code"]) == (400, code)


def test_our_own_bug_is_told_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise LookupError("canary")

    monkeypatch.setattr("proxy.request.inspect.inspection", broken)
    with pytest.raises(ClientError) as raised:
        asyncio.run(services().inspecting.plan_of(API, LONG, ()))
    assert (raised.value.status, raised.value.code) == (500, "proxy_error")
    assert "canary" not in raised.value.message


def test_a_client_that_leaves_is_told_nothing() -> None:
    assert asked(services(), LONG[:100], gone=True) == []
