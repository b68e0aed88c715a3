"""/learned and /forget: what is shown, and to whom."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.cache.cache import Cache
from proxy.config.settings import Settings, read_settings
from proxy.http.memory_budget import Budget
from proxy.model.limits import LearnedLimits, Proof
from proxy.request.learned_endpoint import Learning, is_loopback, learned_of, refusal_of
from proxy.tokens.families import BUILT_IN
from tests.cache.lessons import VOTE, teach

ANN, BOB = b"ann's key, hashed", b"bob's key, hashed"
PROOF = Proof(0, 0, "context_length", 5_000, 0, 5_100, "exact")
ADMIN = [(b"x-plimsoll-admin", b"1")]


def settings(**environment: str) -> Settings:
    return read_settings(environment)


def taught() -> Cache:
    cache = Cache()
    cache.record_proof("a/b", ANN, LearnedLimits(4_096, scale=1.5, alternates=True), PROOF)
    teach(cache, "a/b", BOB, 1.2)
    return cache


def test_each_limit_is_told_with_its_evidence_and_its_end() -> None:
    told = learned_of(taught(), BUILT_IN, "a/b")
    limits = {limit["kind"]: limit for limit in told["limits"]}
    assert {kind: limit["value"] for kind, limit in limits.items()} == {"window": 4_096, "scale": 1.5, "alternates": 1}
    window = limits["window"]
    assert (window["rule"], window["counted"], window["named"], window["reply"]) == (
        "context_length",
        5_000,
        5_100,
        None,
    )
    assert window["taught_at"] < window["probe_due"] < window["until"] and window["until"].endswith("Z")
    assert limits["alternates"]["probe_due"] is None
    (count,) = told["counts"]
    assert (count["shape"], count["ratio"], count["margin"], count["answers"]) == ("text", 1.2, None, 1)
    assert 0 <= count["offset"] < 200
    assert told["agreed"] == [
        {"shape": shape, "callers": 0, "offset": None, "ratio": None} for shape in ("text", "tools")
    ]


def test_what_callers_agree_on_is_told_by_the_shape_of_prompts() -> None:
    cache = Cache()
    for number in range(10):
        teach(cache, "a/b", b"%d" % number, 1.2, VOTE, votes=True)
    text, tools = learned_of(cache, BUILT_IN, "a/b")["agreed"]
    assert (text["callers"], text["ratio"], tools["callers"], tools["ratio"]) == (10, 1.2, 0, None)


def test_one_tenant_is_told_of_itself_and_nobody_of_a_key() -> None:
    cache = taught()
    assert learned_of(cache, BUILT_IN, "a/b", BOB)["limits"] == [] == learned_of(cache, BUILT_IN, "a/b", ANN)["counts"]
    assert len(learned_of(cache, BUILT_IN, "a/b", ANN)["limits"]) == 3
    assert not any(
        part in json.dumps(learned_of(cache, BUILT_IN, "a/b")) for part in ("ann", ANN.hex(), "bob", BOB.hex())
    )


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("localhost", True), ("::1", True), ("[::1]", True)]
    + [(host, False) for host in ("0.0.0.0", "::", "", "10.0.0.1", "localhost.example.com")],
)
def test_without_an_admin_port_only_this_machine_is_told(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    given = settings(**({"PLIMSOLL_HOST": host} if host else {}))
    if host:
        assert (refusal_of(ADMIN, given) is None) is loopback
        behind = settings(PLIMSOLL_HOST=host, PLIMSOLL_ADMIN_PORT="9000")
        assert refusal_of(ADMIN, behind) is None


@pytest.mark.parametrize("headers", [[], [(b"x-plimsoll-admin", b"yes")], [*ADMIN, (b"origin", b"null")]])
def test_a_page_in_a_browser_is_told_nothing(headers: list[tuple[bytes, bytes]]) -> None:
    refusal = refusal_of(headers, settings())
    assert refusal is not None and refusal.status == 403


def test_what_is_forgotten_is_told_once_and_counts_go_too() -> None:
    cache, sent = taught(), []
    learning = Learning(settings(), BUILT_IN, cache, Budget(1 << 20), forgets=True)

    async def receive() -> Any:
        return {"type": "http.request", "body": b'{"model":"a/b"}', "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    for _ in range(2):
        asyncio.run(learning({"type": "http", "method": "POST", "path": "/forget", "headers": ADMIN}, receive, send))
    first, second = (json.loads(message["body"]) for message in sent[1::2])
    assert len(first["limits"]) == 3 and len(first["counts"]) == 1
    assert (second["limits"], second["counts"], second["agreed"][0]["callers"]) == ([], [], 0)
    assert not cache.has_corrections("a/b")
