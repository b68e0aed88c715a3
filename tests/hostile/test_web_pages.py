"""S1, S15: pages of other sites, and pages behind a rebound name, spend and read nothing through the data port; clients
that are no pages, and gateways behind other names, work as before.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from openai import OpenAI
from playwright.sync_api import Browser

from tests.admin.chromium import chromium
from tests.hostile.frames import Client, handshake, switching
from tests.hostile.harness import CHAT, HELLO, Answered, Running, eventually, ok, running, upstream
from tests.ports import held_port
from tests.recorder import Peer, Recorder, Request, answer, head

OPERATOR = "sk-operator-canary-31"
BODY = json.dumps(HELLO).encode()
EVIL = {"origin": "https://evil.example", "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
PLAIN = {"content-type": "text/plain"}  # of a request that a page may send without a preflight
PATHS = (CHAT, "/v1/responses", "/v1/messages", "/v1/embeddings", "/api/chat", "/api/generate", "/v1/tokenize")
PASSED = ("/v1/models", "/v1/files", "/api/tags", "/anything")
PAGES = (
    EVIL,
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "http://localhost"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
)
INSTALLED = ("app://obsidian.md", "vscode-webview://0a1b", "tauri://localhost", "chrome-extension://abcdef", "file://")
PERMITS = (
    *(b"access-control-allow-origin: *", b"access-control-allow-headers: *, authorization"),
    *(b"access-control-allow-methods: *", b"content-type: application/json"),
)
SECRET = b"canary-answer-7781"


async def open_to_all(request: Request, peer: Peer) -> None:
    """The worst upstream: it takes no key, and permits every page to read its answers."""
    if request.header(b"upgrade") == [b"websocket"]:
        await peer.send(switching(request))
        await peer.gone()
    elif request.target in (b"/", b"/v1/"):
        await peer.send(answer(b"<title>its own page</title>", headers=(b"content-type: text/html",)))
    else:
        found = json.loads(ok().partition(b"\r\n\r\n")[2])
        body = json.dumps({**found, "canary": SECRET.decode()}).encode()
        await peer.send(head(b"200 OK", *PERMITS, b"content-length: %d" % len(body)) + body)


class Near(NamedTuple):
    """A data port on loopback, and its upstream; `lends`: it has an operator's key."""

    there: Recorder
    proxy: Running
    lends: bool


@pytest.fixture(scope="module", params=[True, False], ids=["operators_key", "no_key"])
def near(request: pytest.FixtureRequest, workers: int) -> Iterator[Near]:
    settings: dict[str, Any] = {"PLIMSOLL_API_KEY": OPERATOR} if request.param else {}
    with upstream(open_to_all) as there, running(there.url, workers=workers, **settings) as proxy:
        yield Near(there, proxy, request.param)


WORDS = {"foreign_host": "not one of the proxy's own", "foreign_origin": "page of another origin"}


def refused(got: Answered, code: str) -> bool:
    """Whether an answer is ours, refuses for this reason, and permits no page to read it."""
    assert got.status == 403 and SECRET not in got.body
    assert not [name for name in got.headers if name.startswith("access-control-")]
    return WORDS[code] in json.dumps(got.json["error"])


@pytest.mark.parametrize("page", PAGES)
def test_S1_a_page_of_another_site_spends_and_reads_nothing(near: Near, page: dict[str, str]) -> None:
    there, proxy, _ = near
    before = len(there.requests)
    for path in PATHS:
        for kind in (PLAIN, {"content-type": "application/json"}):
            assert refused(proxy.ask(BODY, path, headers={**page, **kind}, key=None), "foreign_origin"), path
    for path in PASSED:
        assert refused(proxy.ask(path=path, headers=page, key=None), "foreign_origin"), path
    assert refused(proxy.ask(BODY, CHAT + "?api_key=x", headers={**page, **PLAIN}, key=None), "foreign_origin")
    password = {**page, **PLAIN, "authorization": "Basic eDp5"}
    assert refused(proxy.ask(BODY, headers=password, key=None), "foreign_origin")
    assert len(there.requests) == before


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "evil.localhost", "127.0.0.1.evil.example", "ai"]
)
def test_S1_S15_a_page_behind_a_rebound_name_spends_and_reads_nothing(near: Near, host: str) -> None:
    there, proxy, _ = near
    before = len(there.requests)
    own = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    for headers in ({"host": host}, own, {**own, "x-anything": "1"}):
        for key in (None, "sk-invented"):
            assert refused(proxy.ask(BODY, headers=headers, key=key), "foreign_host")
            for path in PASSED:
                assert refused(proxy.ask(path=path, headers=headers, key=key), "foreign_host")
    assert len(there.requests) == before


def test_S1_errors_have_the_shape_of_the_paths_api(near: Near) -> None:
    proxy = near.proxy
    openai = proxy.ask(BODY, headers=EVIL, key=None).json["error"]
    assert (openai["code"], openai["type"]) == ("foreign_origin", "invalid_request_error")
    messages = proxy.ask(BODY, "/v1/messages", headers=EVIL, key=None).json
    assert (messages["type"], messages["error"]["type"]) == ("error", "permission_error")
    assert isinstance(proxy.ask(BODY, "/api/chat", headers=EVIL, key=None).json["error"], str)
    eventually(lambda: proxy.metric("plimsoll_requests_total", status="403", result="rejected") >= 3)


def test_S1_no_preflight_of_a_stranger_is_permitted(near: Near) -> None:
    there, proxy, _ = near
    before = len(there.requests)
    for path in (*PATHS, *PASSED):
        for named in ("content-type", "authorization, content-type"):
            asks = {"access-control-request-method": "POST", "access-control-request-headers": named}
            got = proxy.ask(path=path, method="OPTIONS", headers={**EVIL, **asks}, key=None)
            assert refused(got, "foreign_origin")
    assert len(there.requests) == before


def test_S1_no_page_of_another_site_opens_a_websocket(near: Near) -> None:
    there, proxy, _ = near
    before = len(there.requests)
    for more in ((), ("Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.x",)):
        for target in ("/v1/realtime?model=x", "/v1/responses"):
            with Client(proxy.port, handshake(target, "Origin: https://evil.example", *more)) as client:
                assert client.head()[0] == 403
    assert len(there.requests) == before


@pytest.mark.parametrize("origin", INSTALLED)
def test_S1_programs_and_extensions_work(near: Near, origin: str) -> None:
    there, proxy, lends = near
    headers = {"origin": origin, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    assert proxy.ask(path=CHAT, method="OPTIONS", headers={**headers, **asks}, key=None).status == 200
    assert SECRET in proxy.ask(BODY, headers=headers, key=None).body
    assert (OPERATOR.encode() in there.requests[-1].head) is lends


def test_S1_clients_that_are_no_browsers_work(near: Near) -> None:
    proxy = near.proxy
    for host in ("127.0.0.1", "localhost:8080", "[::1]:8080", "host.docker.internal:8080", "192.168.1.5"):
        assert proxy.ask(BODY, headers={"host": host}, key=None).status == 200
    assert proxy.ask(BODY, headers=EVIL, key="sk-own").status == 200, "with a key of its own"
    url = f"http://127.0.0.1:{proxy.port}/v1"
    for key in ("sk-own", OPERATOR):
        client = OpenAI(base_url=url, api_key=key)
        said = client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "hi"}])
        assert said.choices[0].message.content == "ok"
    done = subprocess.run(
        [
            "curl",
            "-sS",
            "-m",
            "60",
            url + "/chat/completions",
            "-H",
            "content-type: application/json",
            "-d",
            BODY.decode(),
        ],
        capture_output=True,
        timeout=90,
    )
    assert SECRET in done.stdout, done.stderr


def test_S1_the_page_of_an_upstream_works(near: Near) -> None:
    proxy = near.proxy
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert b"its own page" in proxy.ask(path="/", headers=link, key=None).body
    own = f"127.0.0.1:{proxy.port}"
    headers = {"host": own, "origin": f"http://{own}", "sec-fetch-site": "same-origin"}
    assert SECRET in proxy.ask(BODY, headers=headers, key=None).body


def test_S1_pages_that_the_operator_lists_work(workers: int) -> None:
    listed: dict[str, Any] = {"PLIMSOLL_ORIGINS": "https://evil.example", "PLIMSOLL_API_KEY": OPERATOR}
    with upstream(open_to_all) as there, running(there.url, workers=workers, **listed) as proxy:
        assert SECRET in proxy.ask(BODY, headers=EVIL, key=None).body
        assert OPERATOR.encode() in there.requests[-1].head
        assert refused(proxy.ask(BODY, headers={"origin": "https://evil.example.com"}, key=None), "foreign_origin")
        assert refused(proxy.ask(BODY, headers={**EVIL, "host": "evil.example"}, key=None), "foreign_host")


def test_S1_no_page_spends_the_key_of_a_row_of_upstreams(workers: int, tmp_path: Path) -> None:
    with upstream(open_to_all) as there, upstream(open_to_all) as other:
        row = (
            f'[[upstream]]\nname = "o"\nurl = "{other.url}"\nkey = "OTHER_KEY"\ncallers = "any"\nmodels = ["gpt-4o"]\n'
        )
        (tmp_path / "upstreams.toml").write_text(row)
        settings: dict[str, Any] = {"PLIMSOLL_RULES": str(tmp_path), "OTHER_KEY": OPERATOR, "PLIMSOLL_HOST": "0.0.0.0"}
        with running(there.url, workers=workers, **settings) as proxy:
            assert proxy.ask(BODY).status == 200 and OPERATOR.encode() in other.requests[-1].head
            count = len(other.requests)
            for key in (None, "sk-invented"):
                assert refused(proxy.ask(BODY, headers=EVIL, key=key), "foreign_origin")
            named = {**EVIL, "x-plimsoll-upstream": "o"}
            assert refused(proxy.ask(path="/v1/models/x", headers=named), "foreign_origin")
            assert len(other.requests) == count


def test_S1_a_gateway_beyond_loopback_needs_no_setting(workers: int) -> None:
    settings: dict[str, Any] = {"PLIMSOLL_HOST": "0.0.0.0", "PLIMSOLL_API_KEY": OPERATOR}
    with upstream(open_to_all) as there, running(there.url, workers=workers, **settings) as proxy:
        for host in ("llm.example.com", "plimsoll.plimsoll:8080", "10.1.2.3"):
            assert proxy.ask(BODY, headers={"host": host}, key=None).status == 200
        own = {"host": "evil.example", "origin": "http://evil.example", "sec-fetch-site": "same-origin"}
        count = len(there.requests)
        assert refused(proxy.ask(BODY, headers=own, key=None), "foreign_origin"), "that Host proves nothing"
        assert refused(proxy.ask(BODY, headers=EVIL, key=None), "foreign_origin")
        assert len(there.requests) == count
        assert proxy.ask(BODY, headers=EVIL, key="sk-own").status == 200
        asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        assert proxy.ask(path=CHAT, method="OPTIONS", headers={**EVIL, **asks}, key=None).status == 200


@contextlib.contextmanager
def nginx(folder: Path, port: int) -> Iterator[int]:
    """An nginx before a proxy, which hands on the name that a client asked for."""
    binary = shutil.which("nginx")
    if binary is None:
        pytest.skip("nginx is not installed: this test needs a real one (apt-get install nginx)")
    with held_port() as front:
        yield from _nginx(binary, folder, port, front)


def _nginx(binary: str, folder: Path, port: int, front: int) -> Iterator[int]:
    temporary = " ".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    location = f"proxy_pass http://127.0.0.1:{port}; proxy_set_header Host $host; proxy_buffering off;"
    server = f"listen 127.0.0.1:{front}; server_name llm.example.com; location / {{ {location} }}"
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log stderr; worker_processes 1; events {{ }}\n"
        f"http {{ access_log off; {temporary} server {{ {server} }} }}\n"
    )
    process = subprocess.Popen([binary, "-c", str(folder / "nginx.conf"), "-p", str(folder)], stderr=subprocess.PIPE)
    try:
        eventually(lambda: process.poll() is not None or listens(front), 30)
        assert process.poll() is None, process.stderr and process.stderr.read()
        yield front
    finally:
        process.terminate()
        process.wait(20)
        assert process.stderr is not None
        process.stderr.close()


def listens(port: int) -> bool:
    """Whether somebody listens on a port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


@pytest.mark.parametrize(
    "settings",
    [{"PLIMSOLL_HOST": "0.0.0.0"}, {"PLIMSOLL_HOSTS": "llm.example.com"}],
    ids=["beyond_loopback", "on_loopback_with_its_name"],
)
def test_S1_a_gateway_behind_nginx_under_its_own_name_works(settings: dict[str, Any], tmp_path: Path) -> None:
    with (
        upstream(open_to_all) as there,
        running(there.url, PLIMSOLL_API_KEY=OPERATOR, **settings) as proxy,
        nginx(tmp_path, proxy.port) as front,
    ):
        through = Running(proxy.process, front)
        for key in (None, "sk-own"):
            got = through.ask(BODY, headers={"host": "llm.example.com"}, key=key)
            assert SECRET in got.body, got.body
        assert through.ask(path="/v1/models", headers={"host": "llm.example.com"}, key=None).status == 200
        count = len(there.requests)
        assert refused(through.ask(BODY, headers={**EVIL, "host": "llm.example.com"}, key=None), "foreign_origin")
        assert len(there.requests) == count


# In a real browser.

ATTACK = """async at => {
  const read = [];
  const body = JSON.stringify({model: "gpt-4o", messages: [{role: "user", content: "hi"}]});
  const json = {"content-type": "application/json"}, plain = {"content-type": "text/plain"};
  const tries = [
    ["/v1/chat/completions", {method: "POST", body, headers: plain}],
    ["/v1/chat/completions", {method: "POST", body, headers: json}],
    ["/v1/chat/completions", {method: "POST", body, headers: plain, mode: "no-cors"}],
    ["/v1/chat/completions", {method: "POST", body, headers: plain, mode: "no-cors", referrerPolicy: "no-referrer"}],
    ["/v1/chat/completions", {method: "POST", body, headers: {...json, authorization: "Bearer sk-invented"}}],
    ["/v1/chat/completions?api_key=x", {method: "POST", body, headers: plain}],
    ["/v1/messages", {method: "POST", body, headers: {...json, "x-api-key": "invented"}}],
    ["/api/chat", {method: "POST", body, headers: plain}],
    ["/v1/models", {}], ["/v1/models", {mode: "no-cors"}], ["/v1/models", {headers: {authorization: "Bearer x"}}],
    ["/v1/files", {method: "DELETE"}], ["/anything", {}],
  ];
  for (const [path, options] of tries)
    try {
      const found = await fetch(at + path, options);
      read.push([path, found.status, await found.text()]);
    } catch (error) { read.push([path, 0, String(error)]); }
  for (const protocols of [[], ["realtime", "openai-insecure-api-key.x"]])
    read.push(await new Promise(done => {
      const socket = new WebSocket(at.replace("http", "ws") + "/v1/realtime?model=x", protocols);
      socket.onopen = () => done(["websocket", 101, "open"]);
      socket.onerror = () => done(["websocket", 0, ""]);
    }));
  navigator.sendBeacon(at + "/v1/chat/completions", body);
  await new Promise(done => {
    const image = new Image();
    image.onload = image.onerror = done;
    image.src = at + "/v1/models?image";
  });
  await new Promise(done => {
    const frame = document.createElement("iframe"), form = document.createElement("form");
    const field = document.createElement("textarea");
    frame.name = "hidden";
    form.target = "hidden"; form.method = "POST"; form.enctype = "text/plain";
    form.action = at.replace("://", "://user:password@") + "/v1/chat/completions";
    field.name = body.slice(0, -1) + ', "x": "'; field.value = '"}';
    form.append(field);
    document.body.append(frame, form);
    frame.onload = done;
    form.submit();
    setTimeout(done, 2000);
  });
  return read;
}"""


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>a page</title><body>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[int]:
    """The port of a web site: its names are 127.0.0.1 and evil.example."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium("--host-resolver-rules=MAP evil.example 127.0.0.1, MAP *.evil.example 127.0.0.1") as opened:
        yield opened


def attack(browser: Browser, page: str, target: str) -> list[Any]:
    """What the script of a page reads of a target. The page may be an error: a script of its origin may do the same."""
    context = browser.new_context()
    try:
        tab = context.new_page()
        tab.goto(page)
        found: list[Any] = tab.evaluate(ATTACK, target)
        time.sleep(1)  # a beacon is sent in the background
        return found
    finally:
        context.close()


@pytest.mark.parametrize("name", ["127.0.0.1", "evil.example"])
def test_S1_in_a_browser_a_page_of_another_origin_spends_and_reads_nothing(
    near: Near, browser: Browser, site: int, name: str
) -> None:
    there, proxy, _ = near
    before, refusals = len(there.requests), proxy.metric("plimsoll_requests_total", status="403")
    read = attack(browser, f"http://{name}:{site}/", f"http://127.0.0.1:{proxy.port}")
    # The browser has sent them; what one worker counted another tells a second later.
    eventually(lambda: proxy.metric("plimsoll_requests_total", status="403") >= refusals + 10)
    assert [status for _, status, _ in read] == [0] * 15 and SECRET.decode() not in str(read)
    assert len(there.requests) == before


def test_S1_in_a_browser_a_page_after_rebinding_spends_and_reads_nothing(near: Near, browser: Browser) -> None:
    there, proxy, _ = near
    before = len(there.requests)
    at = f"http://evil.example:{proxy.port}"
    read = attack(browser, f"{at}/page", at)
    answered = [one for one in read if one[1]]
    assert len(answered) >= 12 and all(status == 403 for _, status, _ in answered)
    assert all(WORDS["foreign_host"] in body for _, _, body in answered if body)
    assert len(there.requests) == before


def test_S1_in_a_browser_the_same_script_spends_and_reads_where_its_page_is_listed(
    browser: Browser, site: int, workers: int
) -> None:
    page = f"http://127.0.0.1:{site}"
    settings: dict[str, Any] = {"PLIMSOLL_ORIGINS": page, "PLIMSOLL_API_KEY": OPERATOR}
    with upstream(open_to_all) as there, running(there.url, workers=workers, **settings) as proxy:
        read = attack(browser, f"{page}/", f"http://127.0.0.1:{proxy.port}")
        assert len([one for one in read if SECRET.decode() in one[2]]) >= 8
        assert ["websocket", 101, "open"] in read
        assert len([one for one in there.requests if OPERATOR.encode() in one.head]) >= 4
