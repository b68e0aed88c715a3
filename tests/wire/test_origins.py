"""What Host, Origin and Sec-Fetch headers say."""

from __future__ import annotations

import pytest

from proxy.wire.origins import is_address, is_cross_site, is_installed, is_local, name_of, opens, web_host


def test_the_name_of_a_host_has_no_port_and_no_dot_at_its_end() -> None:
    assert [name_of(h) for h in (b"A.b:1", b"[::1]:1", b"x.", b"")] == ["a.b", "::1", "x", ""]


def test_addresses_are_those_of_both_kinds_with_a_zone_and_no_numbers_alone() -> None:
    assert all(map(is_address, ("127.0.0.1", "::1", "fe80::1%25eth0")))
    assert not any(map(is_address, ("1.2.3", "0x7f000001", "2130706433", "", "127.0.0.1.evil.com")))


def test_local_names_are_addresses_and_names_that_nobody_else_can_have() -> None:
    assert all(map(is_local, ("10.0.0.1", "localhost", "host.docker.internal", "host.containers.internal")))
    assert not any(map(is_local, ("evil.localhost", "docker.internal", "evil.internal", "", "localhost.evil.com")))


def test_only_a_web_site_has_a_web_host() -> None:
    assert web_host(b"HTTPS://A.example:1") == b"a.example:1"
    assert [web_host(o) for o in (b"null", b"app://a", b"", b"a.example")] == [None] * 4


@pytest.mark.parametrize(
    "origin",
    [
        *(b"app://obsidian.md", b"vscode-webview://0a", b"tauri://localhost", b"chrome-extension://abc", b"file://"),
        *(b"moz-extension://abc", b"safari-web-extension://abc", b"APP://x", b"https://Listed.example"),
    ],
)
def test_programs_extensions_and_what_is_listed_are_installed(origin: bytes) -> None:
    assert is_installed(origin, {b"https://listed.example"})


@pytest.mark.parametrize(
    "origin", [b"null", b"", b"https://listed.example.evil", b"http://listed.example", b"apps://x"]
)
def test_no_other_page_is(origin: bytes) -> None:
    assert not is_installed(origin, {b"https://listed.example"})


def test_a_browser_says_when_another_site_is_behind_a_request() -> None:
    def told(site: bytes) -> bool:
        return is_cross_site([(b"sec-fetch-site", site)])

    assert not is_cross_site([]) and not told(b"none") and not told(b"same-origin")
    assert told(b"cross-site") and told(b"same-site") and told(b"whatever")


def test_a_link_opens_the_page_at_the_root_alone() -> None:
    link = [(b"sec-fetch-mode", b"navigate"), (b"sec-fetch-dest", b"document")]
    assert opens("GET", "/", link)
    assert not opens("POST", "/", link) and not opens("GET", "/v1/models", link)
    assert not opens("GET", "/", [link[0], (b"sec-fetch-dest", b"iframe")]) and not opens("GET", "/", [])
