"""What is invalid in a head, what a target says, and a head without its request to upgrade."""

from __future__ import annotations

import pytest

from proxy.http.server.request_head import (
    CODING_NOT_SUPPORTED,
    HEAD_END,
    HOST,
    INVALID_HOST,
    MAX_PIPELINED,
    error_of,
    expects_continue,
    has_many_heads,
    head_without_upgrade,
    is_handshake,
    parse_target,
    version_of,
)
from proxy.wire.headers import Header

HOSTED = (b"host", b"a")
UPGRADING = ((b"connection", b"keep-alive, Upgrade"), (b"upgrade", b"WebSocket"))


@pytest.mark.parametrize("host", [b"", b"a.b:80", b"[::1]", b"a%20b", b"x_y:", b"a \t"])
def test_a_host_is_a_name_or_an_address_and_perhaps_a_port(host: bytes) -> None:
    assert HOST.fullmatch(host)


@pytest.mark.parametrize(
    "host", [b"a b", b"a/b", b"@b", b"a:b", b"a:80:80", b"[::1", b"a%2", b"\xc3\xa4", b"a?b", b"a\\b"]
)
def test_what_is_no_host_is_none(host: bytes) -> None:
    assert not HOST.fullmatch(host)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (b"*", ("*", b"*", b"")),
        (b"/v1/a%20b?x=%20", ("/v1/a b", b"/v1/a%20b", b"x=%20")),
        (b"http://h:1?x", ("/", b"/", b"x")),
        (b"HTTPS://h/y", ("/y", b"/y", b"")),
    ],
)
def test_a_target_is_a_path_or_a_whole_address(url: bytes, found: tuple[str, bytes, bytes]) -> None:
    assert parse_target(url) == found


def test_a_target_of_another_scheme_is_invalid() -> None:
    with pytest.raises(ValueError, match="scheme"):
        parse_target(b"ftp://h/y")


@pytest.mark.parametrize(("sent", "served"), [("1.0", "1.0"), ("1.1", "1.1"), ("1.9", "1.1"), ("2.0", ""), ("0.9", "")])
def test_a_higher_minor_version_is_1_1_and_another_major_one_none(sent: str, served: str) -> None:
    assert version_of(sent) == served


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ([HOSTED], None),
        ([HOSTED, (b"transfer-encoding", b" Chunked")], None),
        ([HOSTED, HOSTED], INVALID_HOST),
        ([(b"host", b"a b"), (b"transfer-encoding", b"gzip")], INVALID_HOST),
        ([(b"transfer-encoding", b"gzip"), (b"host", b"a b")], CODING_NOT_SUPPORTED),  # the first error tells
        ([], INVALID_HOST),
    ],
)
def test_a_request_has_one_host_and_no_coding_but_chunked(headers: list[Header], error: object) -> None:
    assert error_of(headers, "1.1") is error


def test_only_http_1_0_may_lack_a_host() -> None:
    assert error_of([], "1.0") is None and error_of([HOSTED, HOSTED], "1.0") is INVALID_HOST


def test_one_of_several_expectations_is_enough_to_continue() -> None:
    assert expects_continue([(b"expect", b"100-Continue"), (b"expect", b"other")])
    assert not expects_continue([(b"expect", b"other"), (b"x-expect", b"100-continue")])


def test_a_handshake_is_a_get_without_a_body() -> None:
    assert is_handshake(b"GET", "1.1", [HOSTED, *UPGRADING])
    assert is_handshake(b"GET", "1.1", [*UPGRADING, (b"content-length", b"0")])
    for method, version, more in (
        (b"POST", "1.1", HOSTED),
        (b"GET", "1.0", HOSTED),
        (b"GET", "1.1", (b"content-length", b"1")),
        (b"GET", "1.1", (b"transfer-encoding", b"chunked")),
        (b"GET", "1.1", (b"upgrade", b"h2c")),
    ):
        assert not is_handshake(method, version, [more, *UPGRADING])


def test_a_head_loses_its_request_to_upgrade_and_nothing_else() -> None:
    headers = [
        HOSTED,
        (b"connection", b"Upgrade, x-mine"),
        (b"upgrade", b"h2c"),
        (b"http2-settings", b"AA"),
        (b"x", b""),
    ]
    head = b"POST /a?b HTTP/1.1\r\nhost: a\r\nconnection:  x-mine\r\nx: \r\n\r\n"
    assert head_without_upgrade(b"POST", b"/a?b", "1.1", headers) == head
    assert head_without_upgrade(b"GET", b"/", "1.1", UPGRADING[1:]) == b"GET / HTTP/1.1\r\n\r\n"


def test_many_requests_are_told_from_one_with_a_body_of_many_lines() -> None:
    head = b"GET / HTTP/1.1\r\nhost: a" + HEAD_END
    assert has_many_heads(head * (MAX_PIPELINED + 1))
    assert not has_many_heads(head * MAX_PIPELINED)
    assert not has_many_heads(head + b"a line\n" * 1000)
