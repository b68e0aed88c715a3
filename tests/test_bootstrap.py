"""Doors: where it listens, and what it says where it cannot."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

import pytest

from proxy.bootstrap import aged, certificate_of, check_admin, first_steps, listen, on_terminal, shown, without_bodies
from proxy.config.model_table import read_table
from proxy.config.settings import read_settings
from proxy.config.window_rules import WindowRules
from proxy.config.windows import Windows
from proxy.errors import ConfigError


def test_port_0_is_a_free_one_and_takes_connections_at_once() -> None:
    (door,) = listen("127.0.0.1", 0)
    with door:
        port = door.getsockname()[1]
        assert port
        assert shown(door) == f"127.0.0.1:{port}"
        socket.create_connection(("127.0.0.1", port)).close()


def test_a_name_with_several_addresses_gets_a_door_at_each_and_all_have_one_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{i}", 0)) for i in (1, 2)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found * 2)
    doors = listen("localhost", 0)
    assert [door.getsockname()[0] for door in doors] == ["127.0.0.1", "127.0.0.2"]
    assert len({door.getsockname()[1] for door in doors}) == 1
    for door in doors:
        door.close()


def test_an_address_that_this_machine_has_not_is_left_out_where_there_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """localhost is often ::1 too, where there is no IPv6."""
    there, not_there = ("127.0.0.1", 0), ("192.0.2.1", 0)
    found: list[Any] = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in (not_there, there)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    (door,) = listen("localhost", 0)
    with door:
        assert door.getsockname()[0] == "127.0.0.1"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found[:1])
    with pytest.raises(ConfigError, match="cannot listen on localhost, port 0: "):
        listen("localhost", 0)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found[:1] * 2)
    with pytest.raises(ConfigError, match="cannot listen on localhost, port 0: "):
        listen("localhost", 0)


def test_a_port_that_is_taken_is_said_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1, port {port}: Address already in use"):
            listen("127.0.0.1", port)


def test_where_one_of_several_is_taken_the_others_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{i}", port)) for i in (1, 2)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(ConfigError, match="Address already in use"):
            listen("localhost", port)
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_a_name_that_nobody_knows_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ConfigError, match="cannot listen on harbour, port 80: Name or service not known"):
        listen("harbour", 80)


class Door:
    """One that listens on an address of version 6, which not every machine has."""

    def getsockname(self) -> tuple[str, int, int, int]:
        return ("::1", 8080, 0, 0)


def test_an_address_of_version_6_stands_in_brackets() -> None:
    door: Any = Door()
    assert shown(door) == "[::1]:8080"


def test_a_table_that_is_older_than_half_a_year_is_remarked() -> None:
    table = json.dumps({"gpt-4o-2024-08-06": {"mode": "chat", "max_input_tokens": 128_000}})
    windows = Windows(WindowRules(), read_table(table.encode()))
    half = 182 * 86_400
    assert aged(windows, windows.newest_at + half - 1) == ()
    remark = "the model table's newest date is 2024-08-06: windows and prices of newer models may be missing"
    assert aged(windows, windows.newest_at + half) == (remark,)
    assert aged(Windows(WindowRules(), read_table(b"{}")), 2e9) == (), "its age is not known"


def test_U28_the_start_says_what_a_recording_without_bodies_cannot_be_used_for() -> None:
    def said(**content: str) -> list[str]:
        return without_bodies(read_settings({"PLIMSOLL_RECORD": "r", **content}))

    (remark,) = said()
    assert "plimsoll replay" in remark and "redacted or bodies" in remark
    assert said(PLIMSOLL_RECORD_CONTENT="redacted") == said(PLIMSOLL_RECORD_CONTENT="bodies") == []
    assert without_bodies(read_settings({})) == []


def test_only_on_a_terminal_a_hangup_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, screen = os.openpty()
    with open(keyboard, "rb"), open(screen) as terminal, open(os.devnull) as nothing:
        found = []
        for stdin in (terminal, nothing, None):
            monkeypatch.setattr(sys, "stdin", stdin)
            found.append(on_terminal())
    monkeypatch.setattr(sys, "stdin", nothing)  # closed
    assert [*found, on_terminal()] == [True, False, False, False]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, ""),
        ({"PLIMSOLL_PAGE_CONTENT": "1"}, "needs PLIMSOLL_ADMIN_PORT"),
        ({"PLIMSOLL_ADMIN_HOST": "::1"}, "needs PLIMSOLL_ADMIN_PORT"),
        ({"PLIMSOLL_PAGE_CONTENT": "1", "PLIMSOLL_ADMIN_PORT": "9"}, ""),
        ({"PLIMSOLL_PAGE_CONTENT": "1", "PLIMSOLL_ADMIN_PORT": "9", "PLIMSOLL_HOST": "::1"}, ""),
        ({"PLIMSOLL_PAGE_CONTENT": "1", "PLIMSOLL_ADMIN_PORT": "9", "PLIMSOLL_HOST": "0.0.0.0"}, "ADMIN_TOKEN"),
        ({"PLIMSOLL_PAGE_CONTENT": "1", "PLIMSOLL_ADMIN_PORT": "9", "PLIMSOLL_ADMIN_HOST": "10.0.0.1"}, "ADMIN_TOKEN"),
        ({"PLIMSOLL_PAGE_CONTENT": "0", "PLIMSOLL_ADMIN_PORT": "9", "PLIMSOLL_ADMIN_HOST": "10.0.0.1"}, ""),
    ],
)
def test_texts_are_shown_to_this_machine_or_behind_a_token(given: dict[str, str], problem: str) -> None:
    token = {"PLIMSOLL_ADMIN_TOKEN": "0123456789abcdef"}
    if not problem:
        check_admin(read_settings(given))
        return
    with pytest.raises(ConfigError, match=problem):
        check_admin(read_settings(given))
    if problem == "ADMIN_TOKEN":
        check_admin(read_settings({**given, **token}))


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"PLIMSOLL_ADMIN_PORT": "8080"}, True),
        ({"PLIMSOLL_PORT": "9", "PLIMSOLL_ADMIN_PORT": "9", "PLIMSOLL_ADMIN_HOST": "127.0.0.1"}, True),
        ({"PLIMSOLL_PORT": "9", "PLIMSOLL_ADMIN_PORT": "9", "PLIMSOLL_ADMIN_HOST": "127.0.0.2"}, False),
        *[
            ({"PLIMSOLL_PORT": "9", "PLIMSOLL_HOST": one, "PLIMSOLL_ADMIN_PORT": "9", "PLIMSOLL_ADMIN_HOST": two}, bad)
            for one, two, bad in (
                *(("127.0.0.1", "0.0.0.0", True), ("0.0.0.0", "127.0.0.1", True), ("localhost", "0.0.0.0", True)),
                *(("::1", "::", True), ("localhost", "::", True), ("::1", "0.0.0.0", False), ("0.0.0.0", "::", False)),
            )
        ],
        ({"PLIMSOLL_PORT": "0", "PLIMSOLL_ADMIN_PORT": "0"}, False),
        ({"PLIMSOLL_ADMIN_PORT": "8081"}, False),
    ],
)
def test_U12_the_admin_port_is_not_the_port_of_the_proxy(given: dict[str, str], refused: bool) -> None:
    if refused:
        with pytest.raises(ConfigError, match=r"PLIMSOLL_ADMIN_PORT is .*, the proxy's own port"):
            check_admin(read_settings(given))
    else:
        check_admin(read_settings(given))


def test_U16_a_terminal_is_told_what_to_do_next() -> None:
    said = "\n".join(first_steps("http://127.0.0.1:8080/v1", "http://127.0.0.1:8081/"))
    assert "export OPENAI_BASE_URL=http://127.0.0.1:8080/v1\n" in said
    assert "http://127.0.0.1:8081/\n" in said and "plimsoll demo" in said
    assert "--admin-port" in "\n".join(first_steps("http://127.0.0.1:8080/v1", ""))


def test_a_key_without_its_certificate_is_no_setting_and_neither_is_no_tls() -> None:
    assert certificate_of(read_settings({})) is None
    with pytest.raises(ConfigError, match="PLIMSOLL_TLS_KEY needs PLIMSOLL_TLS_CERT"):
        certificate_of(read_settings({"PLIMSOLL_TLS_KEY": "/etc/tls.key"}))
    with pytest.raises(ConfigError, match=r"PLIMSOLL_TLS_CERT, /nonexistent/tls.crt: No such file"):
        certificate_of(read_settings({"PLIMSOLL_TLS_CERT": "/nonexistent/tls.crt"}))
