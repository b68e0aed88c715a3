"""Attacks on the admin port: pages of other sites, rebound names, framing, hostile names, texts that must not show."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from proxy.admin.feed import MAX_VIEWERS
from proxy.cli.redirect import PAGE
from proxy.request.work import MAX_WAITING
from tests.admin.chromium import chromium
from tests.hostile.harness import CHAT, ROOT, Running, eventually, running, upstream
from tests.hostile.raw import Wire

CANARY = "canary-content-2236"
KEYS = ("sk-canary-client-1732", "sk-canary-ours-1414", "canary-secret-2645", "canary-password-3162")
LONG = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"{CANARY} {i} " + "tide " * 60} for i in range(301)]
RESULT = [
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "find", "arguments": json.dumps({"q": CANARY})}}]},
    {"role": "tool", "tool_call_id": "c", "content": f"{CANARY}\n" * 5_000},
]  # fmt: skip
TOOLS = [{"type": "function", "function": {"name": "find", "description": CANARY, "parameters": {"title": CANARY}}}]
READ = ("/", "/metrics", "/healthz", "/readyz", "/api/overview", "/api/requests", "/api/requests/x", "/api/events")
PATHS = (*READ, "/learned?model=gpt-4o", "/nothing")
POSTS = ("/api/forget", "/api/inspect", "/forget", "/inspect/v1/chat/completions")
BODY = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}).encode()

MARKUP = (
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "<iframe src=//evil>"),
    *('"><script>alert(1)</script>', "'-alert(1)-'", "</script><script>alert(1)</script>", "javascript:alert(1)"),
    *("<a href=javascript:alert(1)>x</a>", "<style>*{display:none}</style>", "<base href=//evil/>", "<!--", "]]>"),
    *("{{7*7}}", "${7*7}", "<%= 7*7 %>", "__proto__", "constructor", "toString", "hasOwnProperty", "null", "NaN"),
    *("\u2028", "\u2029", "\u202eevil", "\x00", "\x1b[2J\x1b[31m", "\r\nx-evil: 1", "\ndata: evil\n\n", "\nid: 9\n"),
    *("\ud83d", "\ufeff", "A" * 5_000, "../../etc/passwd", "%0d%0aSet-Cookie:a=b", "' OR 1=1 --", "&lt;b&gt;", "\\"),
)
TEMPLATES = ("{}", "gpt-4o{}", "{}gpt-4o", "models/{}", "x {} y", "{0}{0}")
PAYLOADS = [template.format(markup) for markup in MARKUP for template in TEMPLATES]


def hostile(place: int, payload: str) -> dict[str, Any]:
    """A request with a payload in a name that a client chooses: the model, a role, a tool, a speaker."""
    said: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    found: dict[str, Any] = {"model": "gpt-4o", "messages": said}
    if place % 4 == 0:
        found["model"] = payload
    elif place % 4 == 1:
        said.insert(0, {"role": payload, "content": "hi"})
    elif place % 4 == 2:
        found["tools"] = [{"type": "function", "function": {"name": payload, "parameters": {}}}]
    else:
        said[0]["name"] = payload
    return found


@pytest.fixture(scope="module", params=[1, 2], ids=["one_worker", "two_workers"])
def proxy(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A proxy with secrets, whose page shows no content."""
    secrets = {
        "PLIMSOLL_API_KEY": KEYS[1],
        "PLIMSOLL_SECRET": KEYS[2],
        "HTTP_PROXY": f"http://me:{KEYS[3]}@127.0.0.1:9",
    }
    secrets["NO_PROXY"] = "*"
    with upstream() as there, running(there.url, workers=request.param, admin=True, **secrets) as made:
        yield made


def requests_of(proxy: Running, **asked: str) -> list[dict[str, Any]]:
    """The last requests, as the page has them."""
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    found: list[dict[str, Any]] = proxy.ask(path=f"/api/requests?limit=1000&{query}", admin=True).json["requests"]
    return found


def token_of(proxy: Running) -> str:
    """The token, as the page itself gets it."""
    token: str = proxy.ask(path="/api/overview", headers={"sec-fetch-site": "same-origin"}, admin=True).json["token"]
    return token


def events(proxy: Running, seconds: float = 3.0, wanted: bytes = b"", **headers: str) -> bytes:
    """The whole events that a viewer gets within a time, or until one has what is wanted."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.admin_port, timeout=seconds)
    connection.request("GET", "/api/events", headers=headers)
    response, found, end = connection.getresponse(), b"", time.monotonic() + seconds
    try:
        while time.monotonic() < end and (piece := response.read1(65536)):
            found += piece
            if wanted and wanted in found[: found.rfind(b"\n\n") + 2]:
                break
    except TimeoutError:
        pass
    connection.close()
    return found[: found.rfind(b"\n\n") + 2]


@pytest.mark.parametrize("path", (*PATHS, *POSTS))
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:9"},
        {"host": "localhost.evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ],
)
def test_no_page_of_another_site_reads_or_changes_anything(proxy: Running, path: str, headers: dict[str, str]) -> None:
    got = proxy.ask(BODY if path in POSTS else None, path, headers={**headers, "x-plimsoll-admin": "1"}, admin=True)
    assert got.status == 403 and got.json["error"]["code"] in ("foreign_host", "foreign_origin")
    assert not [name for name in got.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    ("method", "path"),
    [*(("GET", path) for path in PATHS if path != "/api/events"), *(("OPTIONS", path) for path in PATHS)],
)
def test_every_response_is_protected_and_permits_no_other_origin(proxy: Running, path: str, method: str) -> None:
    headers = proxy.ask(path=path, method=method, admin=True).headers
    assert not [name for name in headers if name.startswith("access-control-")]
    assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
    assert (headers["referrer-policy"], headers["x-frame-options"]) == ("no-referrer", "DENY")
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"] and "set-cookie" not in headers


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/", "/api/overview"])
def test_probes_and_scrapes_by_address_work(proxy: Running, path: str) -> None:
    for host in ("10.1.2.3:8081", "[fd00::1]:8081", "127.0.0.1"):
        assert proxy.ask(path=path, headers={"host": host}, admin=True).status == 200


@pytest.mark.parametrize("given", [{}, {"x-plimsoll-admin": "1"}, {"x-plimsoll-admin": "wrong"}])
def test_what_changes_something_takes_the_token(proxy: Running, given: dict[str, str]) -> None:
    got = proxy.ask({"model": "gpt-4o"}, "/api/forget", headers=given, admin=True)
    assert (got.status, got.json["error"]["code"]) == (401, "token_required")
    assert proxy.ask(path="/api/forget", admin=True, headers=given).status == 401


def test_every_worker_takes_the_same_token(proxy: Running) -> None:
    for _ in range(6):
        token = token_of(proxy)
        got = proxy.ask({"model": "gpt-4o"}, "/api/forget", headers={"x-plimsoll-admin": token}, admin=True)
        assert (got.status, got.json["model"]) == (200, "gpt-4o")


def test_no_content_and_no_key_shows(proxy: Running) -> None:
    client = {"authorization": f"Bearer {KEYS[0]}"}
    bodies = (
        {"model": "gpt-4", "messages": LONG},
        {"model": "gpt-4", "messages": [LONG[0], *RESULT, LONG[2]], "tools": TOOLS},
        {"model": "gpt-4o", "messages": LONG[:1], "user": CANARY, "metadata": {CANARY: CANARY}},
        {"model": "gpt-4", "messages": LONG[:1], "tools": [{"type": "function", "x": CANARY * 90_000}]},
    )
    for body in bodies:
        proxy.ask(body, headers=client)
    proxy.ask({"model": "gpt-4", "max_tokens": 50, "messages": LONG}, "/v1/messages", headers={"x-api-key": KEYS[0]})
    proxy.ask({"model": "gpt-4", "input": LONG}, "/v1/responses", headers=client)
    proxy.ask(path=f"/v1/files/{CANARY}?key={KEYS[0]}", headers=client)
    eventually(lambda: len([e for e in requests_of(proxy) if e["has_rows"]]) >= 4, 30)
    eventually(lambda: [e for e in requests_of(proxy) if e["endpoint"] == "passthrough"], 30)
    shown = [proxy.ask(path=path, admin=True).body for path in ("/", "/api/overview", "/api/requests", "/metrics")]
    for entry in requests_of(proxy):
        assert entry["has_texts"] is False
        shown.append(proxy.ask(path=f"/api/requests/{entry['id']}", admin=True).body)
        got = proxy.ask(path=f"/api/requests/{entry['id']}/texts", admin=True)
        assert (got.status, got.json["error"]["code"]) == (404, "content_off")
    shown.append(events(proxy))
    assert all(b"canary" not in one for one in shown)
    cut = [e for e in requests_of(proxy, cut="1") if e["endpoint"] == "chat"]
    detail = proxy.ask(path=f"/api/requests/{cut[0]['id']}", admin=True).json
    assert {row["state"] for row in detail["rows"]} - {"kept"}


def test_hostile_names_stay_data(proxy: Running) -> None:
    assert len(PAYLOADS) >= 200
    for place, payload in enumerate(PAYLOADS):
        body = json.dumps(hostile(place, payload)).encode()
        proxy.ask(body, headers={"x-request-id": payload.encode("ascii", "ignore").decode().strip() if place % 7 == 0
                  and payload.isprintable() and payload.isascii() else "id"})  # fmt: skip
    eventually(lambda: proxy.ask(path="/api/overview", admin=True).json["requests"]["total"] >= len(PAYLOADS), 30)
    eventually(lambda: len(requests_of(proxy)) >= len(PAYLOADS), 30)  # one worker asks the other, but not for long
    entries = requests_of(proxy)
    for entry in entries:
        names = [entry["model"], entry["model_sent"], entry["path"], entry["request_id"]]
        assert all(len(name) <= 120 and (not name or name.isprintable()) for name in names)
    stream = events(proxy)
    assert b"\ndata: evil" not in stream and b"\nid: 9\n" not in stream
    for line in stream.split(b"\n"):
        assert line.partition(b":")[0] in (b"", b"id", b"event", b"data", b"retry")
        if line.startswith(b"data: "):
            json.loads(line[6:])
    for path in ("/api/overview", "/api/requests"):
        assert proxy.ask(path=path, admin=True).headers["content-type"] == "application/json"


def test_U22_no_client_can_name_a_caller_a_conversation_or_a_pod(proxy: Running) -> None:
    """Callers have the operator's names alone, a conversation that of a hash: neither grows with what clients say."""
    for place, payload in enumerate(PAYLOADS[:40]):
        body = {"model": "gpt-4", "max_tokens": 50, "user": payload, "metadata": {"team": payload}}
        said = [{"role": "user", "content": f"{place} {payload}"}, *LONG]
        proxy.ask({**body, "messages": said}, headers={"x-team": "evil", "x-user": "evil", "host": "127.0.0.1"})
    eventually(lambda: len(conversations(proxy)) > 20, 30)
    names = conversations(proxy)
    assert all(re.fullmatch("[0-9a-f]{16}", name) for name in names)
    overview = proxy.ask(path="/api/overview", admin=True).json
    assert overview["pod"] == socket.gethostname() and overview["limits"] == overview["budgets"] == []
    for period in ("5m", "1h", "all"):
        assert {one["caller"] for one in overview["periods"][period]["callers"]} == {""}
    for name in sorted(names)[:5]:
        shown = proxy.ask(path=f"/api/conversations/{name}", admin=True)
        assert shown.status == 200 and all(text not in shown.body for text in (b"evil.example", b"<script"))


def conversations(proxy: Running) -> set[str]:
    return {entry["conversation"] for entry in requests_of(proxy, cut="1")}


def test_hostile_queries_are_answered(proxy: Running) -> None:
    for payload in ("x" * 4_000, "%00", "../../", "0-1-99999999999999999999", "%F0%9F", "0-0--1", "-", "1/texts/2"):
        assert proxy.ask(path=f"/api/requests/{payload}", admin=True).status == 404
        assert proxy.ask(path=f"/api/conversations/{payload}", admin=True).status == 404
    for query in ("limit=x", "min_load=much", "limit=1e9"):
        assert proxy.ask(path=f"/api/requests?{query}", admin=True).status == 400
    assert proxy.ask(path="/api/requests?limit=-5", admin=True).status == 200
    assert proxy.ask(path="/api/requests?before=0-0-0", admin=True).status == 404
    proxy.ask({"model": "gpt-4o", "messages": LONG[:1]})
    eventually(lambda: requests_of(proxy), 30)
    worker = requests_of(proxy)[0]["id"].rpartition("-")[0]
    assert proxy.ask(path=f"/api/requests/{worker}-{'9' * 5_000}", admin=True).status == 404
    for cursor in (",,,.", "a.b", "0-0." + "9" * 50, "x" * 5_000):
        overview = b"event: overview"
        assert overview in events(proxy, 30, overview, **{"last-event-id": cursor})
    for body in (b"", b"{", b"[]", b'{"model": ""}', b'{"model": 5}', b'{"model": "\xff"}', b"{" * 60_000):
        token = token_of(proxy)
        assert proxy.ask(body, "/api/forget", headers={"x-plimsoll-admin": token}, admin=True).status == 400
        assert proxy.ask(body, "/api/inspect", admin=True).status == 400


def test_viewers_are_bounded_and_hold_up_no_stop() -> None:
    with upstream() as there, running(there.url, admin=True) as proxy:
        held = []
        for _ in range(MAX_VIEWERS):
            connection = http.client.HTTPConnection("127.0.0.1", proxy.admin_port, timeout=20)
            connection.request("GET", "/api/events")  # and reads nothing
            held.append(connection)
        eventually(lambda: proxy.ask(path="/api/events", admin=True).status == 503, 30)
        got = proxy.ask(path="/api/events", admin=True)
        assert (got.json["error"]["code"], got.headers["retry-after"]) == ("too_many_viewers", "5")
        assert proxy.ask({"model": "gpt-4o", "messages": LONG[:1]}).status == 200
        os.kill(proxy.process.pid, signal.SIGTERM)
        rest = held[0].getresponse().read()  # the answer ends by itself, and is whole
        assert rest.startswith(b"retry: 2000\n\nevent: overview\n")
        assert proxy.process.wait(20) == 0
        for connection in held:
            connection.close()


def test_a_viewer_that_has_gone_makes_room_for_another() -> None:
    with upstream() as there, running(there.url, admin=True) as proxy:
        for _ in range(MAX_VIEWERS + 5):
            connection = http.client.HTTPConnection("127.0.0.1", proxy.admin_port, timeout=20)
            connection.request("GET", "/api/events")
            assert connection.getresponse().status in (200, 503)
            connection.close()
            time.sleep(0.05)
        eventually(lambda: b"overview" in events(proxy, 1.5), 30)


TOKEN = "0123456789-a-token"


def test_texts_are_shown_only_where_they_are_wanted_and_only_with_the_token() -> None:
    settings = {"PLIMSOLL_PAGE_CONTENT": "1", "PLIMSOLL_ADMIN_TOKEN": TOKEN, "PLIMSOLL_ADMIN_HOST": "0.0.0.0"}
    with upstream() as there, running(there.url, workers=2, admin=True, **settings) as proxy:
        proxy.ask({"model": "gpt-4", "messages": LONG}, CHAT)
        assert proxy.ask(path="/api/overview", admin=True).status == 401
        assert proxy.ask(path="/api/events", admin=True).status == 401
        given = {"x-plimsoll-admin": TOKEN}

        def found() -> list[dict[str, Any]]:
            answered = proxy.ask(path="/api/requests?cut=1", headers=given, admin=True)
            return [entry for entry in answered.json["requests"] if entry["has_texts"]]

        eventually(found, 30)
        path = f"/api/requests/{found()[0]['id']}/texts"
        assert proxy.ask(path=path, admin=True).status == 401
        texts = proxy.ask(path=path, headers=given, admin=True).json["texts"]
        assert [text["index"] for text in texts if text["index"] is not None] == list(range(len(LONG)))
        cut = next(text for text in texts if text["state"] == "dropped")
        assert [(s["cut"], s["text"]) for s in cut["segments"]] == [(True, LONG[cut["index"]]["content"])]
        overview = proxy.ask(path="/api/overview", headers=given, admin=True).json
        assert (overview["token"], overview["token_required"], overview["content"]) == (None, True, True)
        assert TOKEN not in json.dumps(overview) and CANARY not in json.dumps(overview)
        assert proxy.ask(path="/metrics", admin=True).status == 200
        assert proxy.ask(path="/learned?model=gpt-4", headers={"x-plimsoll-admin": "1"}, admin=True).status == 403
        assert proxy.ask(path="/learned?model=gpt-4", headers=given, admin=True).status == 200


# S7, S8, S9, S14


BEYOND: dict[str, Any] = {"PLIMSOLL_ADMIN_HOST": "0.0.0.0"}
OTHERS: tuple[dict[str, str], ...] = (
    {},
    {"host": "10.1.2.3:4081"},
    {"host": "plimsoll.ops.svc"},
    {"host": "localhost", "x-plimsoll-admin": "1"},
)


@pytest.mark.parametrize("workers", [1, 2])
def test_S7_beyond_loopback_without_a_token_there_are_metrics_and_health_only(workers: int) -> None:
    with upstream() as there, running(there.url, workers=workers, admin=True, **BEYOND) as proxy:
        for headers in OTHERS:
            for path in ("/metrics", "/healthz", "/readyz", "//metrics/"):
                assert proxy.ask(path=path, headers=headers, admin=True).status == 200
            for path in (
                *PATHS,
                "/api/requests/x/texts",
                "/api//overview",
                "/x/../api/overview",
                "/learned",
                "/inspect",
            ):
                if path not in ("/metrics", "/healthz", "/readyz"):
                    got = proxy.ask(path=path, headers=headers, admin=True)
                    assert (got.status, got.json["error"]["code"]) == (403, "token_unset"), path
            for path in (*POSTS, "/metrics/../forget"):
                got = proxy.ask({"model": "gpt-4o"}, path, headers=headers, admin=True)
                assert (got.status, got.json["error"]["code"]) == (403, "token_unset"), path
        assert proxy.ask({"model": "gpt-4o", "messages": LONG[:1]}).status == 200, "the data port serves"


def test_S7_S8_with_a_token_it_takes_the_token_for_everything_else() -> None:
    given = {"x-plimsoll-admin": TOKEN}
    with upstream() as there, running(there.url, admin=True, PLIMSOLL_ADMIN_TOKEN=TOKEN, **BEYOND) as proxy:
        inspected = {"model": "gpt-4o", "messages": LONG[:1]}
        for path in ("/inspect/v1/chat/completions", "/api/inspect"):
            for wrong in ({}, {"x-plimsoll-admin": "1"}, {"x-plimsoll-admin": TOKEN + "x"}):
                got = proxy.ask(inspected, path, headers=wrong, admin=True)
                assert (got.status, got.json["error"]["code"]) == (401, "token_required")
            assert proxy.ask(inspected, path, headers=given, admin=True).json["fits"] is True
        assert proxy.ask(path="/metrics", admin=True).status == 200
        assert proxy.ask(path="/", admin=True).status == 200, "the page, which asks for the token"
        assert proxy.ask({"model": "gpt-4o"}, "/api/forget", headers=given, admin=True).status == 200


def test_S8_inspect_on_the_data_port_is_behind_the_token_too() -> None:
    inspected = {"model": "gpt-4o", "messages": LONG[:1]}
    with upstream() as there, running(there.url, PLIMSOLL_ADMIN_TOKEN=TOKEN) as proxy:
        assert proxy.ask(inspected, "/inspect/v1/chat/completions").status == 401
        got = proxy.ask(inspected, "/inspect/v1/chat/completions", headers={"x-plimsoll-admin": TOKEN})
        assert got.json["fits"] is True


def test_S9_the_token_is_told_to_the_page_itself_alone(proxy: Running) -> None:
    for headers in ({}, {"sec-fetch-site": "none"}, {"x-plimsoll-admin": "1"}, {"host": "10.1.2.3:4081"}):
        assert proxy.ask(path="/api/overview", headers=headers, admin=True).json["token"] is None
    token = token_of(proxy)
    assert len(token) >= 32
    page: dict[str, Any] = {"sec-fetch-site": "same-origin"}
    assert token.encode() not in events(proxy) and token.encode() not in events(proxy, **page)


def test_S8_one_body_is_inspected_at_a_time_and_those_that_wait_are_bounded() -> None:
    """A client that sends its body slowly has the turn; what waits has sent its body to nobody yet."""
    body = json.dumps({"model": "gpt-4o", "messages": LONG[:1]}).encode()
    head = f"POST /inspect{CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n".encode()
    with upstream() as there, running(there.url, admin=True) as proxy, contextlib.ExitStack() as stack:
        held = [stack.enter_context(contextlib.closing(Wire(proxy.admin_port).socket)) for _ in range(MAX_WAITING)]
        held[0].sendall(head + b"expect: 100-continue\r\n\r\n")
        assert held[0].recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n", "it has the turn"
        for wire in held[1:]:
            wire.sendall(head + b"\r\n" + body)  # connections are accepted in their order: these are before the next
        got = proxy.ask(body, f"/inspect{CHAT}", admin=True)
        assert (got.status, got.json["error"]["code"]) == (503, "overloaded")
        assert proxy.ask({"model": "gpt-4o", "messages": LONG[:1]}).status == 200
        held[0].sendall(body)
        for wire in held:
            assert wire.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_S14_no_list_of_processes_shows_the_token(tmp_path: Path) -> None:
    """The arguments of the browser that `plimsoll page` starts, and the file that it is given."""
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\ncat "${{1#file://}}" > {tmp_path}/file\n'
    )
    browser.chmod(0o755)
    environment = {
        **{"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "BROWSER": f"{browser} %s"},
        "PLIMSOLL_ADMIN_TOKEN": TOKEN,
    }
    with upstream() as there, running(there.url, admin=True, PLIMSOLL_ADMIN_TOKEN=TOKEN) as proxy:
        url = f"http://127.0.0.1:{proxy.admin_port}"
        command = [sys.executable, "-m", "proxy.cli", "page", "--url", url]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"{url}/\n"), done.stderr
    assert TOKEN not in (tmp_path / "arguments").read_text() and "page.html" in (tmp_path / "arguments").read_text()
    assert f"{url}/#token={TOKEN}" in (tmp_path / "file").read_text()
    assert not list(tmp_path.glob("plimsoll-*")), "the file is gone"


def test_S14_in_a_browser_the_private_file_opens_the_page_with_its_token(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"PLIMSOLL_ADMIN_TOKEN": TOKEN}
    with upstream() as there, running(there.url, admin=True, **settings) as proxy, chromium() as browser:
        file = tmp_path / "page.html"
        file.write_text(PAGE.format(url=f"http://127.0.0.1:{proxy.admin_port}/#token={TOKEN}"))
        page = browser.new_page()
        page.goto(file.as_uri())
        expect(page.locator("#connection")).to_have_text("live")
        assert TOKEN not in page.url
