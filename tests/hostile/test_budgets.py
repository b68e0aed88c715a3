"""Attacks on budgets: to raise one's own, to use another's, to hide what one uses, to take what others have."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from proxy.request.callers import hash_of
from tests.e2e.budgeted import OTHER, SHORT, TALK, TEAM, Budgeted, budgeted, rules, settings, with_usage
from tests.hostile.harness import CHAT, eventually, running, upstream
from tests.hostile.test_callers import BORROWING, HASHES, HIDING, MOST, SECRET, Ruled, mine
from tests.recorder import Peer, Request, answer

LARGE = 10_000_000
SINKING = f"""
[[caller]]
name = "premium"
match = ["{HASHES["PREMIUM"]}"]

[[caller]]
name = "held"
match = "{HASHES["HELD"]}"
models = ["gpt-4o*"]
usage = "sent"
budget = "small"

[[caller]]
name = "rest"
match = "*"
window = 2000

[[budget]]
name = "small"
per = "30d"
tokens = {LARGE}
soft = 0.0001
window = 1000
over = "fit"
"""


@pytest.fixture(scope="module")
def sunk(workers: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ruled]:
    """A proxy whose caller `held` is in the first stage of its budget: its window is of 4,000 tokens."""
    folder = tmp_path_factory.mktemp("rules")
    (folder / "callers.toml").write_text(SINKING)
    more: dict[str, Any] = {"PLIMSOLL_CALLER_HEADER": "x-team", "PLIMSOLL_TRUSTED_PROXIES": "10.0.0.0/8"}
    named: dict[str, Any] = {"PLIMSOLL_RULES": str(folder), "PLIMSOLL_SECRET": SECRET}
    with upstream() as there, running(there.url, workers=workers, **named, **more) as proxy:
        ruled = Ruled(proxy, there)
        eventually(lambda: all(len(request.body) < MOST for request in ruled.hit(mine())[2]))
        with proxy.each_worker() as connections:  # each has a share of the budget
            for connection in connections:
                eventually(lambda connection=connection: is_held(ruled, connection))  # type: ignore[misc]
        yield ruled


def is_held(ruled: Ruled, on: http.client.HTTPConnection) -> bool:
    """Whether the worker of a connection cuts what the caller asks for."""
    asked = {name: value for name, _, value in (line.partition(": ") for line in mine().headers)}
    ruled.there.requests.clear()
    assert ruled.proxy.ask(mine().body, headers=asked, key=None, on=on).status == 200
    return all(len(request.body) < MOST for request in ruled.there.requests)


@pytest.mark.parametrize("attack", HIDING)
def test_M22_no_request_of_a_caller_whose_budget_sinks_is_sent_whole_whatever_it_tries(
    sunk: Ruled, attack: str
) -> None:
    status, _, sent = sunk.hit(HIDING[attack])
    assert sent or 400 <= status < 500
    assert all(len(request.body) < MOST for request in sent)


@pytest.mark.parametrize("attack", BORROWING)
def test_M22_nobody_is_rid_of_its_budget_by_what_it_knows_of_another(sunk: Ruled, attack: str) -> None:
    status, _, sent = sunk.hit(BORROWING[attack])
    assert sent or 400 <= status < 500
    assert all(len(request.body) < MOST for request in sent)


ASKING = {
    "budget": "x-plimsoll-budget: other; stage=0",
    "budget_limit": "x-plimsoll-budget-limit-tokens: 99999999",
    "budget_reset": "x-plimsoll-budget-reset: 1",
    "on_full": "x-plimsoll-on-full: agent",
    "effective": "x-plimsoll-effective: 100000",
    "window": "x-plimsoll-window: 100000",
    "ladder_that_refuses": "x-plimsoll-ladder: refuse",
    "lorebook": "x-plimsoll-lorebook: none",
    "beta_of_a_large_window": "anthropic-beta: context-1m-2025-08-07",
}


@pytest.mark.parametrize("asked", ASKING)
def test_M22_no_header_widens_the_window_of_a_stage(sunk: Ruled, asked: str) -> None:
    status, _, sent = sunk.hit(mine(ASKING[asked]))
    assert sent or 400 <= status < 500
    assert all(len(request.body) < MOST for request in sent)


FIELDS: Mapping[str, dict[str, Any]] = {
    "no_limit": {"max_tokens": None},
    "a_limit_of_zero": {"max_tokens": 0},
    "a_limit_below_zero": {"max_tokens": -1_000_000},
    "a_limit_that_is_no_number": {"max_tokens": "100"},
    "many_choices": {"n": 100},
    "user": {"user": "premium"},
    "metadata": {"metadata": {"caller": "premium", "budget": "none"}},
    "service_tier": {"service_tier": "flex"},
    "cache_key": {"prompt_cache_key": "x"},
    "store": {"store": True},
}


@pytest.mark.parametrize("fields", FIELDS)
def test_M22_no_field_of_a_request_takes_it_out_of_its_budget(sunk: Ruled, fields: str) -> None:
    status, headers, sent = sunk.hit(mine(**FIELDS[fields]))
    assert (sent and headers["x-plimsoll-budget"].startswith("small; stage=")) or 400 <= status < 500
    assert all(len(request.body) < MOST for request in sent)


# What is used is counted, however it is asked for.


def left(one: Budgeted, key: str = TEAM) -> int:
    """What is left of a caller's budget, once all that it asked for is settled."""
    seen = -1
    while True:
        got = one.ask(key, [{"role": "user", "content": "?"}], max_tokens=1)
        now = int(got.headers["x-plimsoll-budget-remaining-tokens"])
        if got.status != 200 or abs(seen - now) < 30:
            return now
        seen = now
        time.sleep(0.05)


def counted(one: Budgeted, ask: Callable[[], Any]) -> int:
    """How much less is left after a request."""
    before = left(one)
    ask()
    deadline = time.monotonic() + 30
    while (used := before - left(one)) < 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    return used


@pytest.fixture(scope="module")
def open_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Budgeted]:
    """A proxy with a budget that is not used up."""
    with budgeted(tmp_path_factory.mktemp("rules"), rules(tokens=LARGE, window=16_000)) as one:
        yield one


WORDY = [{"role": "user", "content": "count " * 1_000}]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"headers": {"x-plimsoll-mode": "off"}},
        {"headers": {"x-plimsoll-mode": "observe"}},
        {"headers": {"cookie": "session=2"}},
        {"headers": {"openai-organization": "org-2"}},
        {"headers": {"x-forwarded-for": "10.0.0.9"}},
        {"headers": {"x-stainless-retry-count": "1", "idempotency-key": "1"}},
        {"model": "gpt-4o-2024-08-06"},
        {"model": "a-model-that-nobody-knows"},
        {"model": "GPT-4O"},
        {"model": ""},
        {"user": "somebody-else"},
    ],
    ids=str,
)
def test_M22_what_a_request_uses_is_counted_however_it_is_asked_for(open_one: Budgeted, how: dict[str, Any]) -> None:
    used = counted(open_one, lambda: open_one.ask(TEAM, WORDY, **how))
    assert used >= 1_000


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1//chat/completions", "/chat/completions", f"{CHAT}?key=x"]
)
def test_M22_the_path_changes_nothing(open_one: Budgeted, path: str) -> None:
    body = {"model": "gpt-4o", "messages": WORDY, "max_tokens": 50}
    assert counted(open_one, lambda: open_one.proxy.ask(body, path, key=TEAM)) >= 1_000


def test_M22_the_key_in_the_query_is_the_same_caller(open_one: Budgeted) -> None:
    body = {"model": "gpt-4o", "messages": WORDY, "max_tokens": 50}
    assert counted(open_one, lambda: open_one.proxy.ask(body, f"{CHAT}?api_key={TEAM}", key=None)) >= 1_000


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/images/generations"),
        ("POST", "/v1/audio/speech"),
        ("POST", "/v1/batches"),
        ("PUT", "/v1/anything"),
        ("POST", "/v1/chat/completion%73"),
        ("POST", "/v1/./chat/completions"),
        ("POST", "/V1/Chat/Completions"),
    ],
)
def test_M22_what_cannot_be_counted_is_not_sent_under_a_budget(open_one: Budgeted, method: str, path: str) -> None:
    open_one.there.requests.clear()
    got = open_one.proxy.ask({"model": "gpt-4o", "messages": WORDY}, path, method, key=TEAM)
    assert got.status in (403, 404) and not open_one.sent()
    assert open_one.proxy.ask(path="/v1/models", key=TEAM).status == 200, "what calls no model passes"


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "gpt-4o", "messages": "all of it"}',
        b'{"model": "gpt-4o", "messages": [7]}',
        b'{"model": "gpt-4o", "messages": [}',
        b"not even JSON",
        b"\x00\x01",
    ],
)
def test_M22_what_is_not_understood_is_not_sent_under_a_budget(open_one: Budgeted, body: bytes) -> None:
    open_one.there.requests.clear()
    got = open_one.proxy.ask(body, key=TEAM, headers={"content-type": "application/json"})
    assert got.status == 400 and got.json["error"]["code"] in ("not_counted", "not_understood")
    assert not open_one.there.requests


def test_M22_a_budget_is_nobody_elses(open_one: Budgeted) -> None:
    before = left(open_one, OTHER)
    for _ in range(5):
        open_one.ask(TEAM, WORDY)
    assert before - left(open_one, OTHER) < 200


def test_M22_keys_of_one_row_have_one_budget(tmp_path: Path) -> None:
    both = f'match = ["{hash_of(SECRET.encode(), TEAM.encode())}", "{hash_of(SECRET.encode(), OTHER.encode())}"]'
    text = f'[[caller]]\nname = "team"\n{both}\nbudget = "b"\n[[budget]]\nname = "b"\nper = "1d"\ntokens = {LARGE}\n'
    with budgeted(tmp_path, text) as one:
        before = left(one, OTHER)
        one.ask(TEAM, WORDY)
        eventually(lambda: before - left(one, OTHER) > 1_000)


def test_M22_strangers_have_one_budget_by_their_address_whatever_keys_they_invent(tmp_path: Path) -> None:
    text = (
        f'[[caller]]\nname = "rest"\nmatch = "*"\nbudget = "b"\n[[budget]]\nname = "b"\nper = "1d"\ntokens = {LARGE}\n'
    )

    async def refuses(request: Request, peer: Peer) -> None:
        known = request.header(b"authorization") == [b"Bearer sk-true"]
        if request.method == b"POST" and known:
            await peer.send(with_usage(1_000, 0, 10))
        else:
            await peer.send(
                b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"
            )

    with upstream(refuses) as there, running(there.url, admin=True, **settings(tmp_path, text)) as proxy:
        one = Budgeted(proxy, there)
        for number in range(20):
            assert one.ask(f"sk-invented-{number}", WORDY).status == 401
        assert one.ask("sk-true", WORDY).status == 200
        assert len([line for line in there.requests if line.method == b"POST"]) == 21


def test_M22_strangers_whose_keys_were_accepted_have_a_budget_each(tmp_path: Path) -> None:
    """Behind a load balancer all have one address. Whoever adds a key that nobody reads counts by that."""
    text = '[[caller]]\nname = "rest"\nmatch = "*"\nbudget = "b"\n[[budget]]\nname = "b"\nper = "1d"\n'
    text += 'tokens = 3000\nover = "refuse"\n'

    async def checks(request: Request, peer: Peer) -> None:
        known = b"Bearer sk-true" in b"".join(request.header(b"authorization"))
        await peer.send(with_usage(1_000, 0, 10) if known else answer(b"{}", b"401 Unauthorized"))

    with upstream(checks) as there, running(there.url, admin=True, **settings(tmp_path, text)) as proxy:
        one = Budgeted(proxy, there)
        assert one.ask("sk-invented", WORDY).status == 401
        first = [one.ask("sk-true-1", WORDY).status for _ in range(6)]
        assert first.count(200) in (2, 3) and first[-1] == 403
        assert one.ask("sk-true-2", SHORT).status == 200, "whose key is not known yet counts by its address"
        assert one.ask("sk-true-2", WORDY).status == 200
        junk = [one.ask("sk-true-1", WORDY, headers={"x-goog-api-key": f"junk-{n}"}).status for n in range(8)]
        assert junk.count(200) <= 3 and junk[-1] == 403


def streaming(chunks: int, usage: bool) -> Any:
    """An upstream that streams so many words, and then says what they cost, or not."""

    async def script(request: Request, peer: Peer) -> None:
        if request.method != b"POST" or not json.loads(request.body).get("stream"):
            await peer.send(with_usage(10, 0, 1))
            return
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for _ in range(chunks):
            told = {"choices": [{"index": 0, "delta": {"content": "word "}}]}
            await peer.send(b"data: " + json.dumps(told).encode() + b"\n\n")
            await asyncio.sleep(0)
        if usage:
            counts = {"prompt_tokens": 1_000, "completion_tokens": chunks, "total_tokens": 1_000 + chunks}
            await peer.send(b"data: " + json.dumps({"choices": [], "usage": counts}).encode() + b"\n\n")
        await peer.send(b"data: [DONE]\n\n")
        peer.close()

    return script


@pytest.mark.parametrize("usage", [True, False])
def test_M22_a_stream_is_counted_with_its_reply_whether_it_reports_a_usage_or_not(tmp_path: Path, usage: bool) -> None:
    with upstream(streaming(1_000, usage)) as there:
        with running(there.url, admin=True, **settings(tmp_path, rules(tokens=LARGE))) as proxy:
            one = Budgeted(proxy, there)
            used = counted(one, lambda: one.ask(TEAM, WORDY, stream=True, max_tokens=5_000))
            assert used > 1_900


def test_M22_a_client_that_leaves_its_stream_is_counted_with_what_came(tmp_path: Path) -> None:
    with upstream(streaming(5_000, usage=True)) as there:
        with running(there.url, admin=True, **settings(tmp_path, rules(tokens=LARGE))) as proxy:
            one = Budgeted(proxy, there)

            def leave() -> None:
                body = {"model": "gpt-4o", "messages": WORDY, "stream": True}
                connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)
                connection.request("POST", CHAT, json.dumps(body), {"authorization": f"Bearer {TEAM}"})
                connection.getresponse().read(20_000)
                assert isinstance(connection.sock, socket.socket) or connection.sock is None
                connection.close()

            assert counted(one, leave) > 1_200


def test_M22_what_an_upstream_refuses_costs_nothing_and_nothing_stays_held(tmp_path: Path) -> None:
    async def broken(request: Request, peer: Peer) -> None:
        if request.method == b"POST" and b"break" in request.body:
            await peer.send(b"HTTP/1.1 500 Oops\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}")
        else:
            await peer.send(with_usage(10, 0, 1))

    with upstream(broken) as there:
        with running(there.url, admin=True, **settings(tmp_path, rules(tokens=20_000))) as proxy:
            one = Budgeted(proxy, there)
            before = left(one)
            for _ in range(30):
                assert one.ask(TEAM, [{"role": "user", "content": "break " * 1_000}]).status == 500
            assert before - left(one) < 200


def test_M22_a_split_request_whose_last_piece_is_refused_costs_what_the_others_do(tmp_path: Path) -> None:
    inputs = [*(f"word {number}" for number in range(2_900)), "poison"]  # OpenAI takes 2,048

    async def picky(request: Request, peer: Peer) -> None:
        if b"poison" in request.body:
            error = b'{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}'
            await asyncio.sleep(0.3)
            await peer.send(answer(error, b"400 Bad Request"))
        elif b"embedding" in request.body:
            items = [{"object": "embedding", "index": n, "embedding": [0.5]} for n in range(2_048)]
            usage = {"prompt_tokens": 6_000, "total_tokens": 6_000}
            await peer.send(answer(json.dumps({"object": "list", "data": items, "usage": usage}).encode()))
        else:
            await peer.send(with_usage(10, 0, 1))

    with upstream(picky) as there:
        with running(there.url, admin=True, **settings(tmp_path, rules(tokens=LARGE))) as proxy:
            one = Budgeted(proxy, there)
            asked = {"model": "text-embedding-3-small", "input": inputs}

            def refused() -> None:
                assert proxy.ask(asked, "/v1/embeddings", key=TEAM).status == 400

            assert 2 * 2_048 < counted(one, refused) < 4 * 2_048
            assert sum(b"embedding" in request.body for request in there.requests) == 2


@pytest.mark.parametrize("over", ["fit", "refuse"])
def test_M22_a_burst_sends_no_more_than_there_is(tmp_path: Path, over: str) -> None:
    limit = 12_000
    with budgeted(tmp_path, rules(tokens=limit, over=over, window=2_000), lambda body: (1_008, 0, 50)) as one:
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda _: one.ask(TEAM, WORDY), range(32)))
        answered = [got for got in found if got.status == 200]
        assert {got.status for got in found} <= {200, 403, 429}
        assert limit - 2 * 1_058 < len(answered) * 1_058 <= limit


def test_M22_the_error_of_a_used_up_budget_is_one_that_clients_do_not_repeat(tmp_path: Path) -> None:
    with budgeted(tmp_path, rules(tokens=500)) as one:
        while (got := one.ask(TEAM, SHORT)).status == 200:
            pass
        assert got.status == 403 and got.headers["x-should-retry"] == "false"
        assert (got.json["error"]["type"], got.json["error"]["code"]) == ("insufficient_quota", "insufficient_quota")
        assert int(got.headers["x-plimsoll-budget-reset"]) > 0
        messages = {"model": "claude-sonnet-4-5", "max_tokens": 50, "messages": SHORT}
        got = one.proxy.ask(messages, "/v1/messages", key=TEAM)
        assert got.status == 403 and got.json["error"]["type"] == "permission_error"
        assert one.ask(OTHER, SHORT).status == 200


@pytest.mark.parametrize("scope", ["session"])
def test_M22_a_session_has_a_budget_of_its_own_that_other_words_later_do_not_renew(tmp_path: Path, scope: str) -> None:
    text = rules(**{"for": scope, "per": "session", "tokens": 5_000})
    with budgeted(tmp_path, text) as one:
        begin = [{"role": "system", "content": "You sail."}, {"role": "user", "content": "begin " * 300}]
        status = 200
        for turn in range(30):
            later = [{"role": "user", "content": f"turn {turn}"}] if turn % 2 else []
            status = one.ask(
                TEAM, [*begin, *([{"role": "assistant", "content": "aye"}, *later] if later else [])]
            ).status
            if status != 200:
                break
        assert status == 403
        assert one.ask(TEAM, [{"role": "user", "content": "another session"}]).status == 200


def test_M22_a_dry_run_uses_nothing_and_is_refused_nothing(tmp_path: Path) -> None:
    with budgeted(tmp_path, rules(tokens=3_000)) as one:
        body = {"model": "gpt-4o", "messages": TALK, "max_tokens": 50}
        before = left(one)
        for _ in range(3):
            assert one.proxy.ask(body, f"/inspect{CHAT}", key=TEAM, admin=True).status == 200
        assert before - left(one) < 100


def test_M22_no_key_and_no_content_is_in_the_log_and_the_metrics_of_a_budget(tmp_path: Path) -> None:
    with budgeted(tmp_path, rules(tokens=500)) as one:
        while one.ask(TEAM, [{"role": "user", "content": "mizzen " * 50}]).status == 200:
            pass
        metrics = one.proxy.ask(path="/metrics", admin=True).body.decode()
        assert 'plimsoll_budget_used_ratio{budget="small",caller="team"}' in metrics
        assert one.proxy.log('"budget":"small"')
        for text in (*one.proxy.lines, metrics):
            assert TEAM not in text and "mizzen" not in text and "key:" not in text
