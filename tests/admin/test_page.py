"""The page and its API in one process: what each path answers, and that texts go."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import types
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proxy.admin import page as module
from proxy.admin.conversations import MAX_ROWS
from proxy.admin.page import budgets_of
from proxy.app import create_admin
from proxy.config.settings import read_settings
from proxy.model.outcome import Outcome
from proxy.model.structs import replace
from proxy.observe import recent
from proxy.observe.recent import Shown
from proxy.services import Services, build
from proxy.wire.breakdown import Breakdown
from proxy.wire.rows import Row
from tests.serving import eventually, run

FITTED = Outcome("chat", "fitted", 200, "fit", "default", "gpt-4o", "gpt-4o", 1000, prompt=900, load_before=1.1)


class Texts:
    """Texts that weigh nothing."""

    weight = 0


def services(**settings: str) -> Services:
    url = {"PLIMSOLL_UPSTREAM": "http://me.example/v1", "PLIMSOLL_ADMIN_PORT": "1"}
    return build(read_settings({**url, **settings}), lambda outcome: None)


async def asked(made: Services, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> tuple[int, Any]:
    """The status and the body of an answer; JSON is decoded."""
    sent: list[Any] = []
    path, _, query = path.partition("?")
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": given}
    await create_admin(made)({**scope, "query_string": query.encode()}, receive, send)
    raw = b"".join(message.get("body", b"") for message in sent)
    kind = dict(sent[0]["headers"])[b"content-type"]
    return sent[0]["status"], json.loads(raw) if raw and kind == b"application/json" else raw


def test_a_viewer_that_reads_nothing_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNREAD_S", 0.05)

    async def test() -> None:
        made, blocked = services(), asyncio.Event()

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                blocked.set()
                await asyncio.Event().wait()

        scope = {"type": "http", "method": "GET", "path": "/api/events", "raw_path": b"/api/events", "headers": []}
        viewer = asyncio.ensure_future(create_admin(made)({**scope, "query_string": b""}, receive, send))
        await blocked.wait()
        assert made.page is not None and made.page.feed.viewers
        async with asyncio.timeout(20):
            await viewer
        assert not made.page.feed.viewers
        await made.close()

    run(test())


def test_each_path_answers_with_its_methods() -> None:
    async def test() -> None:
        made = services()
        assert (await asked(made, "/"))[1].startswith(b"<!doctype html>")
        assert await asked(made, "/", "HEAD") == (200, b"")
        for path in ("/", "/api/overview", "/api/requests"):
            assert (await asked(made, path, "POST"))[0] == 405
        assert (await asked(made, "/api/inspect"))[0] == 405
        for path in ("/api", "/api/", "/api/x", "/api/overview/x", "/favicon.ico"):
            assert (await asked(made, path))[0] == 404
        status, found = await asked(made, "/api/inspect?path=/v1/nothing", "POST", b"{}")
        assert (status, found["error"]["code"]) == (400, "unknown_path")
        body = json.dumps(
            {"model": "gpt-4o", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        ).encode()
        made.go_offline()
        status, found = await asked(made, "/api/inspect", "POST", body)
        assert (status, found["messages"]["detail"][0]["state"]) == (200, "kept")
        await made.close()

    run(test())


def test_requests_are_found_filtered_and_paged() -> None:
    async def test() -> None:
        made = services()
        assert made.page is not None
        for number in range(5):
            made.page.recent.add(FITTED if number % 2 else Outcome("embeddings", "passed", 200, model="ada"))
        _, found = await asked(made, "/api/requests?limit=2")
        assert len(found["requests"]) == 2 and found["more"] is True
        _, found = await asked(made, "/api/requests?result=fitted&model=GPT&min_load=1")
        assert [entry["endpoint"] for entry in found["requests"]] == ["chat", "chat"] and found["more"] is False
        first = found["requests"][0]["id"]
        status, detail = await asked(made, f"/api/requests/{first}")
        assert (status, detail["id"], detail["rows"]) == (200, first, None)
        assert (await asked(made, "/api/requests?before=nothing"))[0] == 404
        await made.close()

    run(test())


def test_an_overview_that_is_asked_for_while_workers_forget_is_not_kept() -> None:
    async def test() -> None:
        made = services()
        assert made.page is not None
        page, ask, states = made.page, made.page.peers.ask, []

        async def asking(question: Any) -> Any:
            if question["ask"] == "forget":
                await page.overview()
            states.append(question["ask"])
            return await ask(question)

        page.peers.ask = asking  # type: ignore[method-assign]
        body = json.dumps({"model": "gpt-4o"}).encode()
        assert (await asked(made, "/api/forget", "POST", body, x_plimsoll_admin=page.token))[0] == 200
        await page.overview()
        assert [ask for ask in states if ask != "periods"] == ["state", "forget", "state"]
        await made.close()

    run(test())


def test_errors_that_recur_keep_nothing_of_their_requests() -> None:
    """An error that is raised again and again collects the frames of each time, and with them its headers."""

    async def test() -> None:
        made = services(PLIMSOLL_ADMIN_TOKEN="0123456789-a-token")
        gc.collect()
        before = len([one for one in gc.get_objects() if isinstance(one, types.TracebackType)])
        for _ in range(50):
            assert (await asked(made, "/api/overview"))[0] == 401
        gc.collect()
        assert len([one for one in gc.get_objects() if isinstance(one, types.TracebackType)]) < before + 20
        await made.close()

    run(test())


def test_the_overview_names_upstreams_settings_and_versions() -> None:
    async def test() -> None:
        made = services(PLIMSOLL_API_KEY="sk-secret")
        _, found = await asked(made, "/api/overview")
        (upstream,) = found["upstreams"]
        assert upstream.pop("recent")["requests"] == 0
        assert upstream == {"name": "default", "url": "http://me.example/v1", "requests": 0, "failed": 0}
        assert found["version"]["plimsoll"] and found["workers"] == {"count": 1, "reached": 1}
        assert "sk-secret" not in json.dumps(found) and found["content"] is False
        await made.close()

    run(test())


def test_no_quantile_of_loads_is_over_the_highest_load() -> None:
    async def test() -> None:
        made = services()
        assert made.page is not None
        for load in (2.1, 0.3, 2.2):
            made.page.recent.add(seen := replace(FITTED, load_before=load))
            made.metrics.observe(seen)
        (model,) = (await asked(made, "/api/overview"))[1]["models"]
        assert (model["load_max"], model["load_last"], model["load_p95"]) == (2.2, 2.2, 2.2)
        assert model["load_p50"] <= 2.2
        await made.close()

    run(test())


def test_the_overview_says_since_when_the_only_upstream_fails() -> None:
    async def test() -> None:
        made = services()
        assert made.page is not None
        for result, status in (("passed", 200), ("upstream_error", 504), ("upstream_error", 502), ("unfit", 400)):
            made.page.recent.add(Outcome("chat", result, status))
        _, found = await asked(made, "/api/overview")
        told, failed = found["upstreams"][0]["recent"], (await asked(made, "/api/requests"))[1]["requests"][1:3]
        assert (told["requests"], told["failed"], told["failed_in_a_row"]) == (3, 2, 2)
        assert (told["last_result"], told["last_status"]) == ("upstream_error", 502)
        assert told["failing_since"] == round(failed[1]["at"], 3)
        await made.close()

    run(test())


def test_texts_go_where_no_request_comes_and_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXPIRY_S", 0.01)

    async def test() -> None:
        made = services(PLIMSOLL_PAGE_CONTENT="1")
        assert made.page is not None
        await made.page.open()
        made.page.recent.add(FITTED, Shown(texts=Texts()))
        assert made.page.recent.texts(1)
        monkeypatch.setattr(recent, "TEXT_SECONDS", -1.0)
        kept = made.page.recent._texts
        await eventually(lambda: not kept, 30)
        await made.close()
        await asyncio.sleep(0)

    run(test())


CALLERS = """
[[budget]]
name = "small"
per = "24h"
tokens = 1000

[[caller]]
name = "team-a"
match = { headers = ["team-a"] }
window = 32000
budget = "small"

[[caller]]
name = "team-b"
match = { headers = ["team-b"] }
models = ["gpt-4o*"]
"""


def test_the_overview_says_which_pod_it_is_what_holds_and_what_the_limit_of_each_caller_is(tmp_path: Path) -> None:
    (tmp_path / "callers.toml").write_text(CALLERS)

    async def test() -> None:
        made = services(
            PLIMSOLL_RULES=str(tmp_path),
            PLIMSOLL_CALLER_HEADER="x-team",
            PLIMSOLL_TRUSTED_PROXIES="10.0.0.0/8",
            CONTEXT_TOTAL_TOKEN_LIMIT="64000",
        )
        made.metrics.observe(replace(FITTED, caller="team-a", prompt_sent=700))
        _, found = await asked(made, "/api/overview")
        assert found["pod"] == socket.gethostname()
        assert found["holds"] == {
            "mode": "fit",
            "ladder": "default",
            "window_cap": 64_000,
            "upstream": "http://me.example/v1",
        }
        limits = {row["name"]: row for row in found["limits"]}
        assert (limits["team-a"]["window"], limits["team-a"]["budget"]) == (32_000, "small")
        assert limits["team-b"]["models"] == ["gpt-4o*"]
        for period in ("5m", "1h", "all"):
            callers = found["periods"][period]["callers"]
            assert [(one["caller"], one["prompt"], one["saved"]) for one in callers if one["requests"]] == [
                ("team-a", 900, 200)
            ]
        assert sum(one[0] for one in found["periods"]["minutes"]) == 1
        await made.close()

    run(test())


def test_a_conversation_says_what_was_dropped_since_when_and_what_came_back() -> None:
    async def test() -> None:
        made = services()
        assert made.page is not None
        add = made.page.recent.add
        for dropped in (False, True, False):
            row = Row(3, "user", "dropped" if dropped else "kept", "", "older, and no room", 90, 0 if dropped else 90)
            breakdown = msgspec.msgpack.encode(Breakdown([row], 0, (0, 0), {}, {}, 1_000, "rules", 1_000))
            add(replace(FITTED, messages_in=1, messages_sent=1), Shown(zlib.compress(breakdown), None, "abc"))
        add(FITTED, Shown(b"", None, "other"))
        status, found = await asked(made, "/api/conversations/abc")
        assert status == 200 and len(found["requests"]) == 3 and "rows" not in found["requests"][0]
        assert found["requests"][0]["conversation"] == "abc"
        [lost] = found["messages"]
        assert [change["state"] for change in lost["changes"]] == ["dropped", "kept"] and lost["state"] == "kept"
        assert lost["changes"][0]["request"] == found["requests"][1]["id"]
        assert (found["gone"], found["back"]) == (0, 1)
        for path in ("/api/conversations/none", "/api/conversations/", "/api/conversations"):
            assert (await asked(made, path))[0] == 404
        assert (await asked(made, "/api/conversations/abc", "POST"))[0] == 405
        await made.close()

    run(test())


def test_of_very_long_conversations_no_more_rows_are_read_than_take_long() -> None:
    async def test() -> None:
        made = services()
        assert made.page is not None
        rows = [Row(i, "user", "dropped", "", "older, and no room", 9, 0) for i in range(2_000)]
        packed = zlib.compress(msgspec.msgpack.encode(Breakdown(rows, 0, (0, 0), {}, {}, 1_000, "rules", 1_000)))
        for _ in range(30):
            made.page.recent.add(FITTED, Shown(packed, None, "abc"))
        _, found = await asked(made, "/api/conversations/abc")
        assert len(found["requests"]) == MAX_ROWS // 2_000
        await made.close()

    run(test())


def test_U23_the_only_upstream_has_its_requests_and_failures() -> None:
    async def test() -> None:
        made = services()
        for result, status in (("passed", 200), ("upstream_error", 502), ("unfit", 400)):
            made.metrics.observe(replace(FITTED, result=result, status=status))
        _, found = await asked(made, "/api/overview")
        [upstream] = found["upstreams"]
        assert (upstream["requests"], upstream["failed"]) == (2, 1)
        await made.close()

    run(test())


def test_an_account_that_workers_share_counts_once_and_others_add_up() -> None:
    row = {"budget": "small", "caller": "team-a", "limit": 100.0, "used": 30.0, "stage": 0, "shared": True}
    more = {**row, "used": 40.0, "stage": 1}
    alone = {"shared": False, "caller": "team-b"}
    found = budgets_of([[row, {**row, **alone}], [more, {**more, **alone}]])
    assert [(one["caller"], one["used"], one["left"], one["stage"]) for one in found] == [
        ("team-a", 40.0, 60.0, 1),
        ("team-b", 70.0, 30.0, 1),
    ]
    assert budgets_of([[{**row, "used": 130.0}]])[0]["left"] == 0
