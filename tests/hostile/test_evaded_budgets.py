"""Attacks on budgets by what an answer does not say, and by what a budget that is only told must not do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.request.budgets import UNCOUNTED_REPLY
from tests.e2e.budgeted import SHORT, TALK, TEAM, Budgeted, budgeted, rules, settings, with_usage
from tests.hostile.harness import CHAT, eventually, running, upstream
from tests.hostile.test_budgets import LARGE, WORDY, counted
from tests.recorder import Peer, Request

COMPLETIONS, RESPONSES = "/v1/completions", "/v1/responses"


def answering(head: bytes, body: bytes, to: bytes = b"") -> Any:
    """An upstream that answers so whatever has these bytes, and all else in short."""

    async def script(request: Request, peer: Peer) -> None:
        if to not in request.body:
            await peer.send(with_usage(10, 0, 1))
            return
        lines = b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n" % (head, len(body))
        await peer.send(lines + body)

    return script


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": SHORT, "max_tokens": 100, "n": 100}),
        (COMPLETIONS, {"prompt": "word " * 100, "max_tokens": 100, "n": 100}),
        (COMPLETIONS, {"prompt": "word " * 100, "max_tokens": 100, "best_of": 100}),
        (COMPLETIONS, {"prompt": ["word"] * 100, "max_tokens": 100}),
    ],
    ids=str,
)
def test_M22_many_replies_are_held_for_all_of_them(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    with budgeted(tmp_path, rules(tokens=5_000, over="refuse"), lambda body: (100, 0, 10_000)) as one:
        got = one.proxy.ask({"model": "gpt-4o", **body}, path, key=TEAM)
        assert got.status == 403 and got.json["error"]["code"] == "insufficient_quota"
        assert one.proxy.ask({"model": "gpt-4o", "messages": SHORT, "max_tokens": 100}, key=TEAM).status == 200


QUEUED = json.dumps({"id": "resp_1", "object": "response", "status": "queued", "output": [], "usage": None}).encode()
JSON = b"content-type: application/json\r\n"


def test_M22_a_reply_that_is_fetched_later_takes_its_limit(tmp_path: Path) -> None:
    with upstream(answering(JSON, QUEUED)) as there:
        with running(there.url, admin=True, **settings(tmp_path, rules(tokens=LARGE, over="refuse"))) as proxy:
            one = Budgeted(proxy, there)
            asked: dict[str, Any] = {"model": "gpt-4o", "input": "count", "background": True}
            assert counted(one, lambda: proxy.ask({**asked, "max_output_tokens": 9_000}, RESPONSES, key=TEAM)) > 9_000
            got = proxy.ask(asked, RESPONSES, key=TEAM)
            assert got.status == 400 and got.json["error"]["code"] == "not_counted"
            assert UNCOUNTED_REPLY in got.json["error"]["message"]


def test_M22_an_answer_in_a_coding_that_nobody_reads_is_not_asked_for(tmp_path: Path) -> None:
    with budgeted(tmp_path, rules(tokens=LARGE)) as one:
        for asked in ("br", "zstd, gzip;q=0.5", "gzip, deflate"):
            assert one.ask(TEAM, SHORT, headers={"accept-encoding": asked}).status == 200
        sent = [r.header(b"accept-encoding") for r in one.there.requests if r.method == b"POST"]
        assert sent == [[b"identity"], [b"gzip;q=0.5"], [b"gzip, deflate"]]


@pytest.mark.parametrize("usage", [{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None])
def test_M22_a_server_that_reports_nothing_gives_nothing_away(tmp_path: Path, usage: Any) -> None:
    body = {"object": "chat.completion", "choices": [{"message": {"content": "x"}}], "usage": usage}
    with upstream(answering(JSON, json.dumps(body).encode())) as there:
        with running(there.url, admin=True, **settings(tmp_path, rules(tokens=LARGE))) as proxy:
            one = Budgeted(proxy, there)
            assert counted(one, lambda: one.ask(TEAM, WORDY, max_tokens=2_000)) > 3_000


def test_M22_events_of_many_tokens_are_counted_by_their_text(tmp_path: Path) -> None:
    event = b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": "word " * 500}}]}).encode() + b"\n\n"
    with upstream(answering(b"content-type: text/event-stream\r\n", event * 10, b"stream")) as there:
        with running(there.url, admin=True, **settings(tmp_path, rules(tokens=LARGE))) as proxy:
            one = Budgeted(proxy, there)
            assert counted(one, lambda: one.ask(TEAM, WORDY, stream=True, max_tokens=9_000)) > 5_500


@pytest.mark.parametrize(
    "path",
    ["/v1/images/generations;/count_tokens", "/v1/images/generations%3F/count_tokens", "/v1//x/../y/count_tokens"],
)
def test_M22_a_path_that_may_be_read_as_another_is_no_count(tmp_path: Path, path: str) -> None:
    with budgeted(tmp_path, rules(tokens=LARGE)) as one:
        assert one.proxy.ask({"model": "gpt-4o"}, path, key=TEAM).status in (403, 404) and not one.sent()
        assert one.proxy.ask({"model": "m", "messages": SHORT}, "/v1/messages/count_tokens", key=TEAM).status == 200


@pytest.mark.parametrize("scope", ["caller", "all"])
def test_M22_nobody_learns_what_others_use_by_a_common_budget(tmp_path: Path, scope: str) -> None:
    with budgeted(tmp_path, rules(**{"tokens": 5_000, "for": scope})) as one:
        while (got := one.ask(TEAM, WORDY)).status == 200:
            told = {name for name in got.headers if name.startswith("x-plimsoll-budget")}
        assert ("x-plimsoll-budget-remaining-tokens" in told) is (scope == "caller")
        assert (" are left" in got.json["error"]["message"]) is (scope == "caller") and got.status == 403


# A budget that is only told.


def test_M22_a_budget_that_is_only_told_leaves_each_request_its_headers_and_its_mode(tmp_path: Path) -> None:
    with budgeted(tmp_path, rules(tokens=1_000, over="observe", window=1_000)) as one:
        for mode in ("off", "observe"):
            got = one.ask(TEAM, TALK, headers={"x-plimsoll-mode": mode, "accept-encoding": "br"})
            assert got.status == 200 and one.sent()[-1]["messages"] == TALK
            assert "x-plimsoll-mode" not in got.headers.get("x-plimsoll-notice", "")
        assert got.headers["x-plimsoll-mode"] == "observe"
        assert one.there.requests[-1].header(b"accept-encoding") == [b"br"]


def test_M22_metrics_forget_a_budget_that_no_rule_has_any_more(tmp_path: Path) -> None:
    with budgeted(tmp_path, rules(tokens=LARGE)) as one:
        assert one.ask(TEAM, SHORT).status == 200
        (tmp_path / "callers.toml").write_text(rules(tokens=LARGE).replace("small", "large"))
        eventually(lambda: one.ask(TEAM, SHORT).headers["x-plimsoll-budget"].startswith("large"))
        metrics = one.proxy.ask(path="/metrics", admin=True).body.decode().splitlines()
        series = [line for line in metrics if line.startswith("plimsoll_budget_stage{")]
        assert len(series) == 1 and 'budget="large"' in series[0]


ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": SHORT},
    COMPLETIONS: {"prompt": "word " * 300},
    RESPONSES: {"input": "word " * 300},
    "/v1/embeddings": {"input": "word " * 300},
    "/v1/messages": {"messages": SHORT, "max_tokens": 50},
    "/api/chat": {"messages": SHORT},
    "/api/generate": {"prompt": "word " * 300},
}


def test_M22_each_api_says_for_good_that_a_budget_is_used_up_in_a_stream_too(tmp_path: Path) -> None:
    with budgeted(tmp_path, rules(tokens=50, over="refuse")) as one:
        for path, body in ASKED.items():
            for stream in ({},) if path == "/v1/embeddings" else ({}, {"stream": True}):
                got = one.proxy.ask({"model": "gpt-4o", **body, **stream}, path, key=TEAM)
                assert (got.status, got.headers["x-should-retry"]) == (403, "false"), path
                assert got.headers["content-type"] == "application/json" and "retry-after" not in got.headers
                assert "is used up" in json.dumps(got.json["error"])
        assert not one.sent()
