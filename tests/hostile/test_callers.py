"""Attacks on rules by caller: to hide from one's own, to borrow another's, to raise what it allows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from proxy.request.callers import hash_of
from tests.hostile.harness import CHAT, HELLO, Running, eventually, running, running_anew, upstream
from tests.hostile.raw import post, tried
from tests.recorder import Recorder, Request

SECRET = "a secret of the tests"
HELD, PREMIUM, MOVED, FREE = (f"sk-{name}-0123456789" for name in ("held", "premium", "moved", "free"))
HASHES = {name: hash_of(SECRET.encode(), key.encode()) for name, key in (("HELD", HELD), ("PREMIUM", PREMIUM))}
TALK = [
    {"role": "user" if n % 2 == 0 else "assistant", "content": f"{n} " + "some words of it " * 40} for n in range(61)
]
BODY = {"model": "gpt-4o", "messages": TALK, "max_tokens": 50}
SIZE = len(json.dumps(BODY))
MOST = SIZE // 2  # bytes that a window of 3,000 tokens holds are fewer: the talk has about 10,000
RULES = f"""
[[caller]]
name = "premium"
match = ["{HASHES["PREMIUM"]}"]
window = 100000

[[caller]]
name = "team"
match = {{ headers = ["premium"] }}
window = 100000

[[caller]]
name = "held"
match = "{HASHES["HELD"]}"
window = 3000
mode = "fit"
ladder = "default"
models = ["gpt-4o*"]
usage = "sent"

[[caller]]
name = "rest"
match = "*"
window = 2000
"""


class Hit(NamedTuple):
    """What an attack sends: header lines, a body, a target."""

    headers: tuple[str, ...] = (f"authorization: Bearer {HELD}",)
    body: bytes = json.dumps(BODY).encode()
    target: str = CHAT


class Ruled(NamedTuple):
    """A proxy with rules by caller, and its upstream."""

    proxy: Running
    there: Recorder

    def hit(self, hit: Hit) -> tuple[int, dict[str, str], list[Request]]:
        """The status and headers that an attack gets, and what of it reached the upstream."""
        self.there.requests.clear()
        lines = [line.encode() for line in hit.headers]
        got = tried(self.proxy.port, post(hit.body, *lines, target=hit.target.encode()))
        assert got is not None
        return got.status, dict(got.headers), [r for r in self.there.requests if r.method == b"POST"]


@pytest.fixture(scope="module")
def ruled(workers: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ruled]:
    """A proxy with `RULES`, which trusts a gateway that no test comes from."""
    folder = tmp_path_factory.mktemp("rules")
    (folder / "callers.toml").write_text(RULES)
    settings: dict[str, Any] = {
        "PLIMSOLL_RULES": str(folder),
        "PLIMSOLL_SECRET": SECRET,
        "PLIMSOLL_CALLER_HEADER": "x-team",
        "PLIMSOLL_TRUSTED_PROXIES": "10.0.0.0/8",
    }
    with upstream() as there, running(there.url, workers=workers, **settings) as proxy:
        yield Ruled(proxy, there)


def mine(*more: str, **changes: Any) -> Hit:
    """A request of the caller that is held, with more headers, or other fields of its body."""
    return Hit((f"authorization: Bearer {HELD}", *more), json.dumps({**BODY, **changes}).encode())


def to(target: str, **changes: Any) -> Hit:
    return mine(**changes)._replace(target=target)


def asked(name: str, value: str) -> Hit:
    return mine(f"x-plimsoll-{name}: {value}")


PINNED = [{**message, "plimsoll": {"pin": True}} for message in TALK]
JUNK = "&".join(f"a{n}=b" for n in range(90))
TWICE = json.dumps(BODY).encode().replace(b'"model": "gpt-4o"', b'"model": "gpt-4o", "model": "gpt-5"', 1)
HIDING = {
    # what its headers ask for
    "mode_off": asked("mode", "off"),
    "mode_observe": asked("mode", "observe"),
    "mode_in_capitals": asked("mode", "OFF"),
    "mode_with_underscores": mine("x_plimsoll_mode: off"),
    "window_larger": asked("window", "100000"),
    "window_twice": mine("x-plimsoll-window: 3000", "x-plimsoll-window: 100000"),
    "ladder_that_refuses_nothing": asked("ladder", "lossless"),
    "ladder_of_nobody": asked("ladder", "nothing"),
    "upstream_default": asked("upstream", "default"),
    "name_of_another": asked("caller", "premium"),
    "query_as_a_header": asked("query", "key=x"),
    "usage": asked("usage", "asked"),
    "pins": asked("pin", ",".join(str(n) for n in range(61))),
    "pins_in_messages": mine(messages=PINNED),
    # its key, written otherwise or elsewhere
    "scheme_in_small_letters": Hit((f"authorization: bearer {HELD}",)),
    "no_scheme": Hit((f"authorization: {HELD}",)),
    "another_scheme": Hit((f"authorization: Token {HELD}",)),
    "spaces_and_tabs": Hit((f"authorization: Bearer \t  {HELD}  ",)),
    "x_api_key": Hit((f"x-api-key: {HELD}",)),
    "api_key": Hit((f"api-key: {HELD}",)),
    "a_gateways_header": Hit((f"x-litellm-api-key: {HELD}",)),
    "a_header_with_underscores": Hit((f"x_api_key: {HELD}",)),
    "query": Hit((), target=f"{CHAT}?key={HELD}"),
    "query_encoded": Hit((), target=f"{CHAT}?api%5Fkey={quote(HELD.replace('-', '%2D'), safe='%')}"),
    "query_behind_others": Hit((), target=f"{CHAT}?{JUNK}&key=no&key={HELD}"),
    "another_key_before": Hit(("authorization: Bearer sk-nobody-1", f"authorization: Bearer {HELD}")),
    "another_key_behind": Hit((f"authorization: Bearer {HELD}", "authorization: Bearer sk-nobody-1")),
    "two_keys_in_one_line": Hit((f"authorization: Bearer sk-nobody-1, Bearer {HELD}",)),
    "another_header_with_a_key": mine("x-api-key: sk-nobody-1"),
    "many_words": Hit((f"authorization: {' '.join(map(str, range(100)))} {HELD}",)),
    # what tenants are told apart by
    "cookie": mine("cookie: session=1"),
    "organisation": mine("openai-organization: org-1"),
    "project": mine("openai-project: proj-1"),
    # its address
    "header_of_a_gateway": mine("x-team: premium"),
    "forwarded_for": mine("x-team: premium", "x-forwarded-for: 10.0.0.1", "forwarded: for=10.0.0.1"),
    "real_ip": mine("x-team: premium", "x-real-ip: 10.0.0.1"),
    # the model
    "model_with_a_vendor": mine(model="openai/gpt-4o"),
    "model_in_capitals": mine(model="GPT-4O"),
    "model_with_a_space": mine(model=" gpt-4o"),
    "model_in_unicode": mine(model="gpt\u20114o"),
    "model_of_full_width": mine(model="ｇｐｔ-4o"),
    "another_model": mine(model="gpt-5"),
    "no_name": mine(model=7),
    "model_twice": Hit(body=TWICE),
    "no_json": Hit(body=json.dumps(BODY).encode() + b"}"),
    "packed": mine("content-encoding: gzip")._replace(body=gzip.compress(json.dumps(BODY).encode())),
    "packed_in_a_strange_way": mine("content-encoding: zstd-2"),
    # the path
    "slashes": to("//v1//chat//completions"),
    "trailing_slash": to(CHAT + "/"),
    "no_prefix": to("/chat/completions"),
    "percent_sign": to("/v1/chat/completion%73"),
    "percent_slash": to("/v1/chat%2Fcompletions"),
    "dots": to("/v1/files/../chat/completions"),
    "capitals": to("/V1/Chat/Completions"),
    "parameters": to("/v1/chat/completions;x=1"),
    "another_endpoint": to("/v1/audio/speech"),
    "percent_sign_without_a_key": Hit((), target="/v1/chat/completion%73"),
    "dots_without_a_key": Hit((), target="/v1/./chat/completions"),
    "capitals_without_a_key": Hit((), target="/v1/chat/Completions"),
    # how it is asked for
    "stream": mine(stream=True),
    "idempotency": mine("idempotency-key: 1"),
}


@pytest.mark.parametrize("attack", HIDING)
def test_U29_a_caller_that_is_held_sends_no_more_whatever_it_tries(ruled: Ruled, attack: str) -> None:
    status, _, sent = ruled.hit(HIDING[attack])
    assert sent or 400 <= status < 500
    assert all(len(request.body) < MOST for request in sent)


BORROWING = {
    "its_name": Hit(("authorization: Bearer premium",)),
    "its_hash": Hit((f"authorization: Bearer {HASHES['PREMIUM']}",)),
    "the_digest": Hit((f"authorization: Bearer {HASHES['PREMIUM'].rpartition(':')[2]}",)),
    "a_part_of_its_key": Hit((f"authorization: Bearer {PREMIUM[:-1]}",)),
    "its_key_in_capitals": Hit((f"authorization: Bearer {PREMIUM.upper()}",)),
    "its_key_in_a_cookie": Hit((f"cookie: key={PREMIUM}",)),
    "its_key_in_a_header_of_no_key": Hit((f"x-note: {PREMIUM}",)),
    "its_key_in_a_parameter_of_no_key": Hit((), target=f"{CHAT}?note={PREMIUM}"),
    "its_key_beside_ones_own": mine(f"x-api-key: {PREMIUM}"),
    "its_key_and_ones_own_in_one_line": Hit((f"authorization: Bearer {PREMIUM}, Bearer {HELD}",)),
    "its_key_in_the_query": mine()._replace(target=f"{CHAT}?key={PREMIUM}"),
    "its_header": Hit(("x-team: premium",)),
    "no_key": Hit(()),
}


@pytest.mark.parametrize("attack", BORROWING)
def test_U29_nobody_gets_the_rule_of_another_caller_without_its_key_alone(ruled: Ruled, attack: str) -> None:
    status, _, sent = ruled.hit(BORROWING[attack])
    assert sent or 400 <= status < 500
    assert all(len(request.body) < MOST for request in sent)


def test_U29_who_has_the_key_gets_what_its_rule_allows(ruled: Ruled) -> None:
    premium = Hit((f"authorization: Bearer {PREMIUM}",))
    status, _, sent = ruled.hit(premium)
    assert status == 200 and [request.body for request in sent] == [premium.body]


def test_U29_the_rule_holds_with_a_smaller_window_that_the_client_asks_for(ruled: Ruled) -> None:
    _, _, ruled_alone = ruled.hit(mine())
    status, headers, smaller = ruled.hit(asked("window", "1500"))
    assert status == 200 and "x-plimsoll-notice" not in headers
    assert len(smaller[0].body) < len(ruled_alone[0].body) < MOST


def test_U29_the_answer_says_what_the_rule_did_not_heed(ruled: Ruled) -> None:
    status, headers, _ = ruled.hit(mine("x-plimsoll-mode: off", "x-plimsoll-window: 90000"))
    assert status == 200
    assert headers["x-plimsoll-notice"].endswith("not what the request asks for: mode, window")


def test_U27_the_name_of_the_caller_is_in_metrics_and_log_and_no_key_is(ruled: Ruled) -> None:
    before = ruled.proxy.metric("plimsoll_requests_total", caller="held")
    ruled.hit(mine())
    eventually(lambda: ruled.proxy.metric("plimsoll_requests_total", caller="held") > before)
    assert ruled.proxy.log('"caller":"held"')
    assert not [line for line in ruled.proxy.lines if HELD in line or HASHES["HELD"] in line]


def test_U29_a_handshake_past_a_rule_is_refused(ruled: Ruled) -> None:
    upgrade = ("connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: eA==")
    raw = "\r\n".join(
        ("GET /v1/responses HTTP/1.1", "host: localhost", *upgrade, "x-plimsoll-mode: off", *mine().headers)
    )
    got = tried(ruled.proxy.port, raw.encode() + b"\r\n\r\n")
    assert got is not None and got.status == 426


def test_U29_a_caller_that_a_rule_moves_brings_its_key_to_no_other_host(tmp_path: Path, workers: int) -> None:
    with upstream() as here, upstream() as there:
        row = f'name = "other"\nurl = "{there.url}"\nkey = "LARGE_KEY"\ncallers = "any"'
        (tmp_path / "upstreams.toml").write_text(f"[[upstream]]\n{row}")
        match = hash_of(SECRET.encode(), MOVED.encode())
        rule = f'name = "moved"\nmatch = "{match}"\nupstream = "other"'
        (tmp_path / "callers.toml").write_text(f"[[caller]]\n{rule}")
        settings: dict[str, Any] = {
            "PLIMSOLL_RULES": str(tmp_path),
            "PLIMSOLL_SECRET": SECRET,
            "LARGE_KEY": "operators-own-key",
        }
        with running(here.url, workers=workers, **settings) as proxy:
            for more in ({}, {"x-plimsoll-upstream": "default"}, {"x-plimsoll-upstream": "nobody"}, {"api-key": MOVED}):
                assert proxy.ask(HELLO, headers=more, key=MOVED).status == 200
            assert proxy.ask(path=f"/v1/files?key={MOVED}", headers={"cookie": MOVED}, key=MOVED).status == 200
            assert proxy.ask(HELLO, "/v1/messages", key=MOVED).status == 404
            assert len(there.requests) == 5 and not here.requests
            for request in there.requests:
                assert MOVED.encode() not in request.head
            assert there.requests[0].header(b"authorization") == [b"Bearer operators-own-key"]
            assert proxy.ask(HELLO, key=FREE).status == 200
            assert len(here.requests) == 1, "who has no rule goes where all go"


@pytest.mark.parametrize(
    ("row", "settings", "problem"),
    [
        (f'match = "{HASHES["HELD"]}"', {}, "hashes of keys need PLIMSOLL_SECRET"),
        (f'match = "{HASHES["HELD"]}"', {"PLIMSOLL_SECRET": "another"}, "made with another PLIMSOLL_SECRET"),
        ('match = { headers = ["a"] }', {"PLIMSOLL_CALLER_HEADER": "x-team"}, "PLIMSOLL_TRUSTED_PROXIES"),
    ],
)
def test_U29_a_rule_that_could_not_hold_stops_the_start(
    tmp_path: Path, row: str, settings: dict[str, Any], problem: str
) -> None:
    (tmp_path / "callers.toml").write_text(f'[[caller]]\nname = "held"\n{row}\nwindow = 3000')
    with (
        pytest.raises(TimeoutError) as failed,
        running_anew("http://127.0.0.1:9/v1", PLIMSOLL_RULES=str(tmp_path), **settings),
    ):
        pass
    assert problem in str(failed.value) and "callers.toml, caller 1 (held)" in str(failed.value)


def test_U29_the_header_of_a_trusted_gateway_names_the_caller(tmp_path: Path, workers: int) -> None:
    (tmp_path / "callers.toml").write_text(RULES)
    settings: dict[str, Any] = {"PLIMSOLL_CALLER_HEADER": "x-team", "PLIMSOLL_TRUSTED_PROXIES": "127.0.0.1"}
    with (
        upstream() as there,
        running(there.url, workers=workers, PLIMSOLL_RULES=str(tmp_path), PLIMSOLL_SECRET=SECRET, **settings) as proxy,
    ):
        one = Ruled(proxy, there)
        team = Hit(("authorization: Bearer sk-rotating-1", "x-team: premium"))
        assert [request.body for request in one.hit(team)[2]] == [team.body]
        for headers in (("x-team: premium", "x-team: else"), ("x-team: premium, else",), ("x-team: nobody",)):
            status, _, sent = one.hit(Hit(headers))
            assert status == 400 or all(len(request.body) < MOST for request in sent)
