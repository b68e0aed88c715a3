"""Rows of upstreams.toml: what they may say, and what is told of a wrong one."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from proxy.config.rules import load_rules
from proxy.config.upstreams import UpstreamRow, parse_upstreams


def parsed(text: str, folder: Path = Path("/nowhere")) -> tuple[tuple[UpstreamRow, ...], list[str]]:
    return parse_upstreams(tomllib.loads(text), folder)


def problem(**fields: str) -> str:
    """What is told of a row with these fields."""
    lines = {"name": '"a"', "url": '"http://host/v1"', **fields}
    rows, (told,) = parsed("[[upstream]]\n" + "\n".join(f"{key} = {value}" for key, value in lines.items() if value))
    assert rows == ()
    return told


def test_a_row_needs_a_name_and_a_url() -> None:
    rows, problems = parsed('[[upstream]]\nname = "local"\nurl = "http://127.0.0.1:8000/v1"')
    assert problems == [] and rows == (UpstreamRow("local", "http://127.0.0.1:8000/v1"),)
    (row,) = rows
    assert (row.api, row.key_header, row.callers, row.models, row.paths) == (
        "openai",
        "authorization",
        "accepted",
        (),
        (),
    )


def test_rows_keep_their_order_and_all_fields() -> None:
    rows, problems = parsed(
        '[[upstream]]\nname = "b"\nurl = "https://b/v1"\napi = "anthropic"\nmodels = ["x*"]\n'
        'paths = ["/v1/messages*"]\n'
        'key = "B_KEY"\nkey_header = "x-api-key"\ncallers = "any"\nheaders = ["x-team"]\nwindow = 9000\n'
        '[[upstream]]\nname = "a"\nurl = "https://a/v1"'
    )
    assert problems == [] and [row.name for row in rows] == ["b", "a"]
    assert rows[0] == UpstreamRow(
        *("b", "https://b/v1", "anthropic", ("x*",), ("/v1/messages*",), "B_KEY", "x-api-key", "any", ("x-team",), 9000)
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"api": '"litellm"'}, "provider is missing"),
        ({"api": '"litellm"', "provider": '"anthropic"', "paths": '["/v1/x"]'}, "paths has no effect with api"),
        ({"api": '"litellm"', "provider": '"anthropic"', "headers": '["x-a"]'}, "headers has no effect with api"),
        ({"api": '"litellm"', "provider": '"anthropic"', "url": '"ftp://h"'}, "http or https URL"),
        ({"api": '"litellm"', "provider": '"a/b"'}, "provider must be a name"),
        ({"provider": '"anthropic"'}, "provider needs api"),
        ({"name": '"Local"'}, "name must be lower-case letters"),
        ({"name": '"default"'}, "and not default"),
        ({"url": ""}, "url is missing"),
        ({"url": '"ftp://host"'}, "http or https URL"),
        ({"url": '"https://user:pw@host/v1"'}, "without password"),
        ({"url": '"https://host/v1?key=x"'}, "without password, query"),
        ({"url": '"https://[::1/v1"'}, "http or https URL"),
        ({"url": '"https://host:99999/v1"'}, "http or https URL"),
        ({"api": '"soap"'}, "api must be one of openai, anthropic, ollama, gemini, litellm"),
        ({"key": '"sk-proj-1"'}, "the name of an environment variable, not a key"),
        ({"key_header": '"x-key"'}, "key_header must be one of authorization, x-api-key, api-key, x-goog-api-key"),
        ({"callers": '"all"'}, "callers must be one of accepted, any"),
        ({"models": '[" "]'}, "models must not be empty"),
        ({"paths": '["v1/messages"]'}, "paths must begin with /"),
        ({"headers": '["X-Team"]'}, "names of headers in lower case"),
        ({"headers": '["x-plimsoll-mode"]'}, "names of headers"),
        ({"headers": '["authorization"]'}, "none of a client's credentials"),
        ({"headers": '["cookie"]'}, "none of a client's credentials"),
        ({"window": "0"}, "window must be from 1"),
        ({"cert_key": '"k.pem"'}, "cert_key needs cert"),
        ({"ca": '"nowhere.pem"'}, "ca: no such file: /nowhere/nowhere.pem"),
        ({"modells": '["a"]'}, "unknown field modells"),
        ({"models": '"a"'}, "models: expected array, got str"),
    ],
)
def test_a_wrong_row_is_named_with_the_reason(fields: dict[str, str], told: str) -> None:
    said = problem(**fields)
    assert said.startswith("upstream 1 (") and told in said


def test_other_tables_and_names_that_stand_twice_are_problems() -> None:
    row = '[[upstream]]\nname = "a"\nurl = "http://h"\n'
    rows, problems = parsed(row + row + "[upstreams]\nx = 1")
    assert len(rows) == 1
    assert problems == ["upstreams: unknown table, must be upstream", "upstream 2 (a): another row has this name"]


def test_files_are_relative_to_the_folder_of_the_rules(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("x")
    rows, problems = parsed('[[upstream]]\nname = "a"\nurl = "https://h"\nca = "ca.pem"', tmp_path)
    assert problems == [] and rows[0].ca == str(tmp_path / "ca.pem")


def test_the_rules_have_the_rows_of_the_users_folder_and_none_of_their_own(tmp_path: Path) -> None:
    assert load_rules(None).upstreams == ()
    (tmp_path / "upstreams.toml").write_text('[[upstream]]\nname = "a"\nurl = "http://h"')
    assert [row.name for row in load_rules(tmp_path).upstreams] == ["a"]
