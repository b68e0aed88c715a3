"""clients.toml, parsed, and what its rows give a program."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from proxy.config.clients import Clients, filled, merged, parse_clients, unknown_apis, variables_for
from proxy.config.rules import load_rules

BUILT_IN = load_rules(None).clients
URLS = {"openai": "http://127.0.0.1:1", "anthropic": "http://127.0.0.1:2", "ollama": "http://127.0.0.1:3"}
API: dict[str, Any] = {"name": "openai", "upstream": "https://h/v1", "variables": {"OPENAI_BASE_URL": "{url}/v1"}}
CLIENT: dict[str, Any] = {"name": "a", "command": "a", "apis": ["openai"]}


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("claude", "Claude Code"),
        ("/usr/local/bin/claude", "Claude Code"),
        (r"C:\Tools\Codex.EXE", "Codex"),
        ("opencode", "opencode"),
        ("qwen", "Qwen Code"),
        ("claude-next", ""),
        ("python3", ""),
    ],
)
def test_a_program_is_known_by_the_name_of_its_file(program: str, name: str) -> None:
    assert BUILT_IN.of(program).name == name


def test_a_program_that_no_row_is_about_gets_the_usual_apis() -> None:
    client = BUILT_IN.of("python3")
    given = variables_for(client, BUILT_IN.apis_of(client), URLS)
    assert given["OPENAI_BASE_URL"] == "http://127.0.0.1:1/v1" and given["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:2"
    assert "OLLAMA_HOST" not in given and client.arguments == ()


def test_codex_gets_valid_settings_as_arguments() -> None:
    arguments = [filled(text, URLS) for text in BUILT_IN.of("codex").arguments]
    assert arguments[::2] == ["-c", "-c"]
    found = tomllib.loads("\n".join(arguments[1::2]))
    assert found["model_providers"]["plimsoll"]["base_url"] == "http://127.0.0.1:1/v1"
    assert found["model_provider"] == "plimsoll"


def test_opencode_gets_valid_settings_in_a_variable() -> None:
    client = BUILT_IN.of("opencode")
    text = variables_for(client, BUILT_IN.apis_of(client), URLS)["OPENCODE_CONFIG_CONTENT"]
    providers = json.loads(text)["provider"]
    assert providers["anthropic"]["options"]["baseURL"] == "http://127.0.0.1:2/v1"
    assert providers["openai"]["options"]["baseURL"] == "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    ("api", "environ", "url"),
    [
        ("openai", {}, ""),
        ("openai", {"OPENAI_BASE_URL": "http://gateway/v1/"}, "http://gateway/v1"),
        ("openai", {"OPENAI_API_BASE": "http://gateway/openai"}, "http://gateway/openai"),
        ("anthropic", {"ANTHROPIC_BASE_URL": "http://gateway"}, "http://gateway/v1"),
        ("anthropic", {"ANTHROPIC_BASE_URL": "http://gateway/v1"}, "http://gateway/v1"),
        ("ollama", {"OLLAMA_HOST": "box:11434"}, "http://box:11434/v1"),
        ("ollama", {"OLLAMA_HOST": " "}, ""),
    ],
)
def test_what_the_environment_names_already_is_the_upstream(api: str, environ: dict[str, str], url: str) -> None:
    (row,) = (row for row in BUILT_IN.apis if row.name == api)
    assert row.named_by(environ) == url


def test_rows_of_the_user_come_first_and_replace_those_of_their_name() -> None:
    mine, _ = parse_clients({"client": {**CLIENT, "name": "Codex", "command": "codex*"}})
    found = merged(mine, BUILT_IN)
    assert found.of("codex-beta").name == "Codex" and found.of("codex").arguments == ()
    assert [row.name for row in found.clients].count("Codex") == 1 and found.apis == BUILT_IN.apis


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"clients": []}, "clients: unknown table, must be api or client"),
        ({"api": {**API, "upstream": "h"}}, "api 1 (openai): upstream must be a URL with http or https"),
        ({"api": {**API, "variables": {}}}, "api 1 (openai): variables must have at least one, and {url} in each"),
        ({"api": {**API, "variables": {"A B": "{url}"}}}, "api 1 (openai): 'A B' is no name of a variable"),
        (
            {"api": {**API, "port": 1}},
            "api 1 (openai): unknown field port, known are name, upstream, variables, default",
        ),
        ({"client": {**CLIENT, "apis": []}}, "client 1 (a): needs a command and apis"),
        ({"client": [CLIENT, CLIENT]}, "client 2 (a): another row has this name"),
    ],
)
def test_each_problem_names_its_row(table: dict[str, Any], problem: str) -> None:
    assert parse_clients(table)[1] == [problem]


def test_a_client_of_an_unknown_api_is_named() -> None:
    clients, problems = parse_clients({"client": {**CLIENT, "apis": ["gopher"]}})
    assert problems == [] and unknown_apis(BUILT_IN) == []
    assert unknown_apis(merged(clients, BUILT_IN)) == [
        "client 1 (a): unknown api 'gopher', known are anthropic, ollama, openai"
    ]
    assert Clients().of("x").apis == ("-",)
