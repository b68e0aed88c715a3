"""Whose rule a request is under, by its keys, its gateway, its model and its path."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.apis.openai_chat import API
from proxy.config.callers import parse_callers
from proxy.config.settings import read_settings
from proxy.errors import ClientError, ConfigError
from proxy.model.plan import Mode
from proxy.model.terms import OnFull, Reported, Terms
from proxy.request.callers import MAX_WORDS, Callers, hash_of, make_callers, mark_of
from proxy.request.stages import Planned, Received, Record
from proxy.services import build
from proxy.wire.controls import controls
from proxy.wire.headers import Header

SECRET = b"a secret of the tests"
ANN, BOB = b"sk-ann-0123456789", b"sk-bob-0123456789"
ENVIRONMENT = {
    "PLIMSOLL_SECRET": SECRET.decode(),
    "PLIMSOLL_CALLER_HEADER": "x-team",
    "PLIMSOLL_TRUSTED_PROXIES": "10.0.0.0/8,2001:db8::/32",
}
CHAT = "/v1/chat/completions"


def made(text: str, **environment: str) -> Callers:
    text = text.replace("ANN", hash_of(SECRET, ANN)).replace("BOB", hash_of(SECRET, BOB))
    rules, problems = parse_callers(tomllib.loads(text))
    assert not problems
    callers = make_callers(rules, read_settings({**ENVIRONMENT, **environment}))
    assert callers is not None
    return callers


TWO = made(
    """
[[caller]]
name = "ann"
match = "ANN"
[[caller]]
name = "bob"
match = ["BOB"]
"""
)


def name_of(callers: Callers, *headers: Header, address: str = "", path: str = CHAT, model: str = "gpt-4o") -> str:
    rule = callers.find(headers, address, path, model)
    return "" if rule is None else rule.name


def bearer(key: bytes) -> Header:
    return b"authorization", b"Bearer " + key


@pytest.mark.parametrize(
    "headers",
    [
        [bearer(ANN)],
        [(b"authorization", b"bearer   " + ANN)],
        [(b"authorization", ANN)],
        [(b"authorization", b"Token " + ANN)],
        [(b"x-api-key", ANN)],
        [(b"api-key", ANN), bearer(ANN)],
        [(b"x-goog-api-key", ANN)],
        [(b"x-plimsoll-query", b"alt=sse&key=" + ANN + b"&x=1")],
        [(b"x-plimsoll-query", b"key=nothing&key=" + ANN)],
        [(b"sec-websocket-protocol", b"realtime, openai-insecure-api-key." + ANN)],
        [bearer(b"sk-somebody"), (b"x-api-key", ANN)],
        [bearer(b"sk-somebody"), bearer(ANN)],
        [(b"authorization", b"Bearer sk-somebody, Bearer " + ANN)],
    ],
)
def test_a_key_is_found_wherever_and_however_it_is_sent(headers: Sequence[Header]) -> None:
    for _ in range(2):  # the second time it is remembered
        assert name_of(TWO, *headers) == "ann"


@pytest.mark.parametrize("headers", [[], [bearer(b"sk-somebody")], [(b"x-other", ANN)], [(b"x-plimsoll-query", ANN)]])
def test_who_brings_no_key_of_a_row_has_no_rule(headers: Sequence[Header]) -> None:
    assert name_of(TWO, *headers) == ""


@pytest.mark.parametrize(
    "headers",
    [
        [bearer(ANN), (b"x-api-key", BOB)],
        [bearer(ANN), bearer(BOB)],
        [(b"authorization", b" ".join(b"%d" % n for n in range(MAX_WORDS + 2)))],
    ],
)
def test_keys_of_several_callers_are_an_error_each_time(headers: Sequence[Header]) -> None:
    for _ in range(2):
        with pytest.raises(ClientError, match="keys of several callers"):
            TWO.find(headers, "", CHAT, "")


HEADERS = made(
    """
[[caller]]
name = "search"
match = { headers = ["search"] }
[[caller]]
name = "rest"
match = "*"
"""
)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("10.1.2.3", "search"),
        ("2001:db8::7", "search"),
        ("::ffff:10.1.2.3", "search"),
        ("11.1.2.3", "rest"),
        ("2001:db9::7", "rest"),
        ("", "rest"),
        ("unix", "rest"),
    ],
)
def test_a_header_counts_from_a_trusted_gateway_alone(address: str, name: str) -> None:
    for _ in range(2):
        assert name_of(HEADERS, (b"x-team", b"search"), address=address) == name
    assert name_of(HEADERS, (b"x-team", b"Search"), address=address) == "rest"


def test_two_values_of_the_header_are_an_error() -> None:
    with pytest.raises(ClientError, match="several callers"):
        HEADERS.find([(b"x-team", b"search"), (b"x-team", b"other")], "10.0.0.1", CHAT, "")


GLOBS = made(
    """
[[caller]]
name = "ann-large"
match = { keys = ["ANN"], models = ["gpt-4o*"], paths = ["/v1/chat/*"] }
[[caller]]
name = "ann"
match = "ANN"
[[caller]]
name = "embeds"
match = { paths = ["/v1/embeddings"] }
"""
)


@pytest.mark.parametrize(
    ("path", "model", "name"),
    [
        (CHAT, "gpt-4o-mini", "ann-large"),
        (CHAT, " GPT-4O ", "ann-large"),
        (CHAT, "openai/gpt-4o", "ann-large"),
        (CHAT, "us.openai.gpt-4o-2024-08-06", "ann-large"),
        ("//v1//chat//completions/", "gpt-4o", "ann-large"),
        ("/V1/Chat/Completions", "gpt-4o", "ann-large"),
        ("/v1/embeddings/../chat/completions", "gpt-4o", "ann-large"),
        ("/v1/responses", "gpt-4o", "ann"),
        (CHAT, "gpt-5", "ann"),
        (CHAT, "", "ann"),
    ],
)
def test_the_first_row_wins_whose_models_and_paths_match_under_all_their_names(
    path: str, model: str, name: str
) -> None:
    for _ in range(2):
        assert name_of(GLOBS, bearer(ANN), path=path, model=model) == name
    assert name_of(GLOBS, path="/v1/embeddings") == "embeds" and name_of(GLOBS) == ""


def test_a_row_is_for_everybody_where_it_names_nobody() -> None:
    assert name_of(HEADERS) == name_of(HEADERS, bearer(b"sk-rotating")) == "rest"


def test_what_is_remembered_is_bounded() -> None:
    callers = made('[[caller]]\nname = "ann"\nmatch = "ANN"')
    for number in range(10_000):
        name_of(callers, bearer(b"sk-%d" % number))
    name_of(callers, bearer(b"x" * 10_000))
    assert len(callers._known) <= 4_096
    assert all(sum(map(len, brought)) <= 4_096 for brought, _ in callers._known)


def test_without_rows_there_is_nothing_to_compare() -> None:
    rules, _ = parse_callers({"callers": ["search"]})
    assert make_callers(rules, read_settings({})) is None


def test_the_hash_of_a_key_depends_on_the_secret_and_has_its_mark() -> None:
    one, other = hash_of(b"one", ANN), hash_of(b"other", ANN)
    assert one != other and one.startswith(f"key:{mark_of(b'one')}:") and mark_of(None) is None
    rules, _ = parse_callers({"caller": [{"name": "ann", "match": one}]})
    with pytest.raises(ConfigError, match="another PLIMSOLL_SECRET"):
        make_callers(rules, read_settings({"PLIMSOLL_SECRET": "other"}))
    with pytest.raises(ConfigError, match="need PLIMSOLL_SECRET"):
        make_callers(rules, read_settings({}))
    assert make_callers(rules, read_settings({}), check=False) is not None


RULED = """
[[caller]]
name = "ann"
match = "ANN"
window = 4000
mode = "observe"
ladder = "agent"
models = ["gpt-4*"]
"""


def ruled(text: str = RULED, model: str = "gpt-4o", dry_run: bool = False, **asked: Any) -> Any:
    callers, record = made(text), Record()
    given: list[Header] = [(f"x-plimsoll-{name}".encode(), value.encode()) for name, value in asked.items()]
    headers = given if dry_run else [bearer(ANN), *given]
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode()
    services = build(read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1"}), lambda outcome: None)
    received = Received(API, Mode.FIT, CHAT, headers, controls(headers), body, dry_run=dry_run)
    return asyncio.run(callers.ruled(received, record, services.gateway.default.planner.scanner))


def test_a_rule_stands_in_the_place_of_headers_and_a_smaller_window_alone_is_heeded() -> None:
    found = ruled(window="3000", mode="off", ladder="rag")
    under = found.received.controls
    assert (under.window, under.mode, under.ladder) == (3000, Mode.OBSERVE, "agent")
    assert under.overruled == ("ladder", "mode") and found.received.mode is Mode.OBSERVE and found.error is None
    assert ruled(window="9000").received.controls.overruled == ("window",)
    assert not ruled(window="4000", mode="observe").received.controls.overruled


def test_what_a_rule_does_not_say_a_header_may_say() -> None:
    found = ruled('[[caller]]\nname = "ann"\nmatch = "ANN"', window="3000", mode="off", pin="0").received.controls
    assert (found.window, found.mode, found.pins, found.overruled) == (3000, Mode.OFF, {0}, ())


def test_a_model_that_the_rule_does_not_allow_is_an_error_that_names_none() -> None:
    assert ruled().error is None
    error = ruled(model="gpt-5").error
    assert (error.status, error.code) == (404, "model_not_found")


def test_a_dry_run_may_name_the_caller_and_no_other_request() -> None:
    assert ruled(dry_run=True, caller="ann").received.controls.caller == "ann"
    assert ruled(dry_run=True, caller="nobody").received.controls.caller == ""
    text = '[[caller]]\nname = "bob"\nmatch = "BOB"\nmode = "off"'
    assert ruled(text, caller="bob").received.controls.caller == ""


def test_a_dry_run_may_name_the_caller_as_its_gateway_does_or_by_the_hash_of_its_key() -> None:
    text = """
[[caller]]
name = "dear"
match = { keys = ["ANN"], models = ["gpt-5*"] }
[[caller]]
name = "ann"
match = { keys = ["ANN"], headers = ["search"] }
[[caller]]
name = "rest"
match = "*"
"""
    for named in ("search", "ann", hash_of(SECRET, ANN)):
        assert ruled(text, dry_run=True, caller=named).received.controls.caller == "ann"
    assert ruled(text, "gpt-5", dry_run=True, caller=hash_of(SECRET, ANN)).received.controls.caller == "dear"
    assert ruled(text, "gpt-5", dry_run=True, caller="search").received.controls.caller == "ann"
    for other in ("dear", "nobody", hash_of(SECRET, BOB), hash_of(b"another secret", ANN), "key:", "key:0000:"):
        assert ruled(text, dry_run=True, caller=other).received.controls.caller == "rest"


def test_a_request_of_a_caller_with_a_rule_is_proven_as_fast_as_any(tmp_path: Path) -> None:
    (tmp_path / "callers.toml").write_text('[[caller]]\nname = "all"\nmatch = "*"\nwindow = 40000\nladder = "agent"')
    services = build(
        read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1", "PLIMSOLL_RULES": str(tmp_path)}),
        lambda outcome: None,
    )
    gateway = services.gateway
    assert gateway.callers is not None
    planner = gateway.default.planner
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}).encode()
    received = Received(API, Mode.FIT, CHAT, (), body=body)
    under = asyncio.run(gateway.callers.ruled(received, Record(), planner.scanner)).received
    planned = planner.at_once(under)
    assert isinstance(planned, Planned) and planned.payload is body and planned.counted is not None
    assert (planned.counted.window.tokens, planned.counted.window.source) == (40000, "header")
    assert planned.scanned is not None and planned.scanned.ladder is not None
    assert planned.scanned.ladder.name == "agent"


def test_U25_what_a_rule_pins_stays_whole_in_a_cut(tmp_path: Path) -> None:
    rule = 'name = "all"\nmatch = "*"\nwindow = 4000\npin = { texts = ["Zebra Stripe"] }'
    (tmp_path / "callers.toml").write_text(f"[[caller]]\n{rule}")
    talk: list[dict[str, Any]] = [{"role": "user", "content": f"{n} " + "word " * 150} for n in range(60)]
    talk[20]["content"] = "zebra stripe " + "note " * 100
    body = json.dumps({"model": "gpt-4o", "messages": talk, "max_tokens": 100}).encode()

    def sent(**environment: str) -> list[str]:
        services = build(
            read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1", **environment}), lambda outcome: None
        )
        services.go_offline()
        headers = [(b"x-plimsoll-window", b"4000")]
        report: Any = asyncio.run(services.inspecting.plan_of(API, body, headers))
        return [message["content"] for message in json.loads(bytes(report["request"]))["messages"]]

    without, ruled = sent(), sent(PLIMSOLL_RULES=str(tmp_path))
    assert talk[20]["content"] not in without and talk[20]["content"] in ruled
    assert len(ruled) < 60


def test_the_terms_of_a_rule_hold_and_the_smaller_effective_window() -> None:
    text = '[[caller]]\nname = "ann"\nmatch = "ANN"\nusage = "asked"\neffective = 8000\non_full = "agent"'
    assert ruled(text).received.terms == Terms(Reported.ASKED, 8000, OnFull.AGENT)
    more: dict[str, Any] = {"usage": "sent", "effective": "4000", "on-full": "fit"}
    found = ruled(text, **more).received
    assert found.terms == Terms(Reported.ASKED, 4000, OnFull.AGENT)
    assert found.controls.overruled == ("on-full", "usage")
