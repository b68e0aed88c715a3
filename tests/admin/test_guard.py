"""Who may use the proxy's own paths."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.admin.guard import FOREIGN_HOST, FOREIGN_ORIGIN, TOKEN_UNSET, Guard, protect

LOCAL = Guard(frozenset({"plimsoll.example.com"}))
CLUSTER = Guard(private=True)


def scope(path: str = "/api/overview", method: str = "GET", **headers: str) -> dict[str, Any]:
    found = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "headers": found}


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:9090",
        "localhost",
        "LOCALHOST:1",
        "localhost.:1",
        "host.docker.internal:8080",
        "[::1]:9090",
        "10.2.3.4:8081",
        "[fe80::1%25eth0]:1",
        "plimsoll.example.com",
        "Plimsoll.Example.com.:9",
    ],
)
def test_addresses_loopback_and_configured_names_are_its_own(host: str) -> None:
    assert LOCAL.refusal(scope(host=host)) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.com",
        "evil.com:9090",
        "a.localhost",
        "localhost.evil.com",
        "127.0.0.1.evil.com",
        "plimsoll",
        "plimsoll.svc",
        "0x7f000001",
        "x.plimsoll.example.com",
        "1.2.3",
    ],
)
def test_any_other_name_may_be_rebound(host: str) -> None:
    assert LOCAL.refusal(scope(host=host)) is FOREIGN_HOST


@pytest.mark.parametrize("host", ["plimsoll:8081", "plimsoll.ops.svc", "p.ops.svc.cluster.local:1", "a.internal"])
def test_names_that_nobody_can_register_are_its_own_where_other_machines_reach_it(host: str) -> None:
    assert CLUSTER.refusal(scope(host=host)) is None
    assert CLUSTER.refusal(scope(host="evil.com")) is FOREIGN_HOST


def test_a_request_without_a_host_comes_from_no_browser() -> None:
    assert LOCAL.refusal(scope()) is None


@pytest.mark.parametrize("origin", ["http://127.0.0.1:9090", "HTTP://127.0.0.1:9090", "https://plimsoll.example.com"])
def test_its_own_page_may_ask(origin: str) -> None:
    assert LOCAL.refusal(scope(host="127.0.0.1:9090", origin=origin, sec_fetch_site="same-origin")) is None


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.com",
        "null",
        "",
        "http://127.0.0.1:9091",
        "http://127.0.0.1",
        "file://",
        "127.0.0.1:9090",
        "chrome-extension://127.0.0.1:9090",
        "http://127.0.0.1:9090.evil.com",
        "http://localhost:9090",
    ],
)
def test_a_page_of_another_origin_may_not(origin: str) -> None:
    assert LOCAL.refusal(scope(host="127.0.0.1:9090", origin=origin)) is FOREIGN_ORIGIN


@pytest.mark.parametrize("site", ["cross-site", "same-site", "whatever"])
def test_a_browser_that_names_another_site_may_not(site: str) -> None:
    assert LOCAL.refusal(scope(host="localhost", sec_fetch_site=site)) is FOREIGN_ORIGIN


def test_a_link_from_elsewhere_opens_the_page_and_nothing_else() -> None:
    link = {"host": "localhost", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert LOCAL.refusal(scope("/", sec_fetch_dest="document", **link)) is None
    assert LOCAL.refusal(scope("/", sec_fetch_dest="iframe", **link)) is FOREIGN_ORIGIN
    assert LOCAL.refusal(scope("/api/overview", sec_fetch_dest="document", **link)) is FOREIGN_ORIGIN
    assert LOCAL.refusal(scope("/", "POST", sec_fetch_dest="document", **link)) is FOREIGN_ORIGIN


def test_names_of_the_data_port_may_be_the_host_but_no_origin() -> None:
    guard = Guard(hosts=frozenset({"llm.example.com"}))
    assert guard.refusal(scope(host="llm.example.com:1")) is None
    assert guard.refusal(scope(host="127.0.0.1:1", origin="http://llm.example.com")) is FOREIGN_ORIGIN


def test_every_response_is_protected_and_has_one_policy() -> None:
    plain = dict(protect([(b"content-type", b"text/plain"), (b"cache-control", b"public")]))
    assert plain[b"cache-control"] == b"no-store" and plain[b"x-frame-options"] == b"DENY"
    assert plain[b"content-security-policy"] == b"default-src 'none'; frame-ancestors 'none'"
    assert dict(protect([(b"content-security-policy", b"own")]))[b"content-security-policy"] == b"own"


@pytest.mark.parametrize(
    "path", ["/", "/api/overview", "/inspect/v1/chat/completions", "/forget", "/metrics/../forget"]
)
def test_a_port_that_is_shut_has_metrics_and_health_only(path: str) -> None:
    shut = Guard(private=True, shut=True)
    assert shut.refusal(scope(path, host="10.1.2.3:4081")) is TOKEN_UNSET
    assert CLUSTER.refusal(scope(path, host="10.1.2.3:4081")) is None
    for open_path in ("/metrics", "/healthz", "//readyz/"):
        assert shut.refusal(scope(open_path, host="plimsoll")) is None
    assert shut.refusal(scope("/metrics", host="evil.com")) is FOREIGN_HOST
