"""Which requests of web pages are served: near and far, with a key, with the operator's, without any."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.config.settings import read_settings
from proxy.errors import ClientError
from proxy.request.web_pages import MAX_HOSTS, WebPages, web_pages

CHAT = "/v1/chat/completions"
NEAR = WebPages(near=True)
FAR = WebPages()
NAMED = WebPages(True, frozenset({"llm.example.com"}), frozenset({b"https://chat.example.com"}))
EVIL: dict[str, Any] = {"origin": "https://evil.example"}
BEARER: dict[str, Any] = {"authorization": "Bearer sk-own"}


def refused(pages: WebPages, path: str = CHAT, method: str = "POST", lends: bool = False, **headers: str) -> str:
    """The code of the error; empty if the request is served."""
    found = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {
        **{"type": "http", "method": method, "path": path.partition("?")[0], "headers": found},
        "plimsoll.target": path.encode(),
    }
    try:
        pages.check(scope, lends)
    except ClientError as error:
        assert error.status == 403
        return error.code
    return ""


def test_a_client_that_is_no_browser_is_served() -> None:
    for pages in (NEAR, FAR, NAMED):
        for lends in (False, True):
            assert refused(pages, lends=lends, host="127.0.0.1:8080") == ""
            assert refused(pages, lends=lends) == "", "HTTP/1.0 may have no host"
            assert refused(pages, lends=lends, host="localhost", **BEARER) == ""


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.localhost:8080", "plimsoll", "127.0.0.1.evil.example", "a.internal"]
)
def test_near_every_request_must_have_a_name_of_ours(host: str) -> None:
    more: dict[str, Any]
    for more in ({}, BEARER, {"origin": f"http://{host}", "sec_fetch_site": "same-origin"}, {"origin": "app://x"}):
        assert refused(NEAR, host=host, **more) == "foreign_host"
        assert refused(NAMED, host=host, **more) == "foreign_host"
    assert refused(NAMED, host="LLM.example.com:443") == ""
    assert refused(NEAR, host="llm.example.com") == "foreign_host"


def test_far_any_name_is_served_that_an_ingress_has() -> None:
    for lends in (False, True):
        assert refused(FAR, lends=lends, host="llm.example.com") == ""
        assert refused(FAR, lends=lends, host="plimsoll.plimsoll:8080", **BEARER) == ""


PAGES: list[dict[str, Any]] = [
    EVIL,
    {"origin": "null"},
    {"origin": ""},
    {"origin": "http://127.0.0.1:3000"},
    {"origin": "http://localhost:8080"},
    {"origin": "http://127.0.0.1:8080.evil.example"},
    {"origin": "about://127.0.0.1:8080"},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors"},
]


@pytest.mark.parametrize("page", PAGES)
def test_a_strange_page_is_served_neither_near_nor_with_the_operators_key(page: dict[str, Any]) -> None:
    for lends in (False, True):
        assert refused(NEAR, lends=lends, host="127.0.0.1:8080", **page) == "foreign_origin"
        assert refused(NEAR, "/v1/models", "GET", lends, host="127.0.0.1:8080", **page) == "foreign_origin"
        assert refused(NEAR, "/anything", "GET", lends, host="127.0.0.1:8080", **page) == "foreign_origin"
    assert refused(FAR, lends=True, host="127.0.0.1:8080", **page) == "foreign_origin"
    assert refused(FAR, "/v1/responses", "GET", True, host="127.0.0.1:8080", **page) == "foreign_origin"
    assert refused(FAR, lends=False, host="127.0.0.1:8080", **page) == "", "nothing of the operator's is spent"
    assert refused(FAR, "/v1/files", "GET", True, host="127.0.0.1:8080", **page) == "", "that gets no key"


def test_an_origin_that_equals_a_foreign_host_proves_nothing() -> None:
    assert refused(FAR, lends=True, host="evil.example", origin="http://evil.example") == "foreign_origin"
    assert refused(FAR, lends=True, host="10.0.0.5:8080", origin="http://10.0.0.5:8080") == "", "no one can rebind it"
    assert refused(NEAR, host="localhost:8080", origin="http://localhost:8080", sec_fetch_site="same-origin") == ""
    assert refused(NAMED, host="llm.example.com", origin="https://llm.example.com") == ""


def test_a_client_with_a_key_of_its_own_passes() -> None:
    key: dict[str, Any]
    for key in (BEARER, {"x_api_key": "k"}, {"api_key": "k"}):
        assert refused(NEAR, host="127.0.0.1", **EVIL, **key) == ""
        assert refused(FAR, lends=True, host="127.0.0.1", **EVIL, **key) == ""
    password: dict[str, Any] = {"authorization": "Basic YTpi"}
    assert refused(NEAR, host="127.0.0.1", **EVIL, **password) == "foreign_origin"


def test_a_key_that_a_page_can_send_without_asking_counts_only_far() -> None:
    more: dict[str, Any]
    for path, method, more in (
        (CHAT + "?key=x", "POST", {}),
        ("/v1/responses", "GET", {"sec_websocket_protocol": "realtime, openai-insecure-api-key.x"}),
    ):
        assert refused(NEAR, path, method, True, host="127.0.0.1", **EVIL, **more) == "foreign_origin"
        assert refused(FAR, path, method, True, host="127.0.0.1", **EVIL, **more) == ""


def test_no_preflight_of_a_stranger_goes_on_unless_it_is_for_a_key_of_its_own_far_away() -> None:
    asks: dict[str, Any] = {"access_control_request_method": "POST", "access_control_request_headers": "content-type"}
    keyed: dict[str, Any] = {**asks, "access_control_request_headers": "content-type, Authorization"}
    for more in (asks, keyed):
        assert refused(NEAR, method="OPTIONS", host="127.0.0.1", **EVIL, **more) == "foreign_origin"
    assert refused(FAR, CHAT, "OPTIONS", True, host="a.example", **EVIL, **asks) == "foreign_origin"
    assert refused(FAR, CHAT, "OPTIONS", True, host="a.example", **EVIL, **keyed) == ""
    assert refused(FAR, CHAT, "OPTIONS", False, host="a.example", **EVIL, **asks) == ""


@pytest.mark.parametrize(
    "origin", ["app://obsidian.md", "vscode-webview://1", "chrome-extension://a", "tauri://localhost"]
)
def test_programs_and_extensions_are_served_whatever_their_site(origin: str) -> None:
    for pages in (NEAR, FAR):
        assert refused(pages, lends=True, host="127.0.0.1:1", origin=origin, sec_fetch_site="cross-site") == ""


def test_listed_pages_are_served() -> None:
    listed: dict[str, Any] = {"origin": "https://chat.example.com", "sec_fetch_site": "cross-site"}
    assert refused(NAMED, host="127.0.0.1", **listed) == ""
    assert refused(NAMED, method="OPTIONS", host="127.0.0.1", access_control_request_method="POST", **listed) == ""
    assert refused(NEAR, host="127.0.0.1", **listed) == "foreign_origin"


def test_a_link_opens_the_page_that_an_upstream_has() -> None:
    link: dict[str, Any] = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert refused(NEAR, "/", "GET", host="localhost", **link) == ""
    assert refused(NEAR, "/v1/models", "GET", host="localhost", **link) == "foreign_origin"


def test_hosts_that_clients_invent_are_remembered_within_a_bound() -> None:
    pages = WebPages(near=True)
    for port in range(2 * MAX_HOSTS):
        assert refused(pages, host=f"127.0.0.1:{port}") == ""
    assert len(pages._seen) == MAX_HOSTS
    assert refused(pages, host="evil.example") == "foreign_host"


@pytest.mark.parametrize(
    ("settings", "near"),
    [
        ({}, True),
        ({"PLIMSOLL_HOST": "localhost"}, True),
        ({"PLIMSOLL_HOST": "::1"}, True),
        ({"PLIMSOLL_HOST": "0.0.0.0"}, False),
        ({"PLIMSOLL_HOST": "0.0.0.0", "PLIMSOLL_HOSTS": "plimsoll"}, True),
    ],
)
def test_a_port_is_near_on_loopback_and_where_its_names_are_set(settings: dict[str, str], near: bool) -> None:
    assert web_pages(read_settings(settings)).near is near


def test_the_settings_name_hosts_and_origins() -> None:
    pages = web_pages(read_settings({"PLIMSOLL_HOSTS": "A.example", "PLIMSOLL_ORIGINS": "https://B.example:1/"}))
    assert (pages.hosts, pages.origins) == (frozenset({"a.example"}), frozenset({b"https://b.example:1"}))
