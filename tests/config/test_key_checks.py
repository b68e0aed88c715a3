"""key_checks.toml, parsed, and what its rows say of an upstream."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.config.key_checks import KeyCheck, merged, parse_key_checks, row_of, stated
from proxy.config.rules import load_rules


def row(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "hosts": ["h"], **fields}


def test_rows_are_read_in_their_order_and_a_single_table_is_one() -> None:
    rows, problems = parse_key_checks({"key_check": [row("a"), row("b", checks=False)]})
    assert [(found.name, found.checks) for found in rows] == [("a", True), ("b", False)] and problems == []
    assert parse_key_checks({"key_check": row("a")})[0] == rows[:1]
    assert parse_key_checks({}) == ((), [])


def test_each_problem_names_its_row() -> None:
    wrong = [row("b", hosts=[]), row("c", checks=7), row("d", hosts=["https://h/v1"]), row("e", hosts=["h:80"])]
    rows, problems = parse_key_checks({"key_check": [row("a"), *wrong, row("a"), row(" ")], "keys": []})
    assert [found.name for found in rows] == ["a"]
    assert problems == [
        "keys: unknown table, must be key_check",
        "key_check 2 (b): needs hosts or providers",
        "key_check 3 (c): checks: expected bool, got int",
        "key_check 4 (d): hosts must be names or addresses, without scheme, port and path",
        "key_check 5 (e): hosts must be names or addresses, without scheme, port and path",
        "key_check 6 (a): another row has this name",
        "key_check 7 ( ): name must not be empty",
    ]


def test_a_users_row_comes_first_and_replaces_the_row_of_its_name() -> None:
    built_in, mine = (KeyCheck("a", ("h",)), KeyCheck("b", ("h",))), (KeyCheck("b", ("h",), checks=False),)
    assert merged(mine, built_in) == (mine[0], built_in[0])
    assert stated(merged(mine, built_in), "h") is False


@pytest.mark.parametrize(
    ("host", "provider", "says"),
    [
        ("api.openai.com", "", True),
        ("EU.api.openai.com", "", True),
        ("contoso.openai.azure.com", "", True),
        ("us-east5-aiplatform.googleapis.com", "", True),
        ("bedrock-runtime.eu-west-1.amazonaws.com", "", True),
        ("openrouter.ai", "", True),
        ("api.groq.com", "", True),
        ("api.openai.com.example.com", "", None),
        ("127.0.0.1", "", None),
        ("::1", "", None),
        ("gateway.example.com", "openai", None),
        ("", "anthropic", True),
        ("", "ollama", None),
        ("", "", None),
    ],
)
def test_the_known_providers_check_keys_and_nothing_is_said_of_others(host: str, provider: str, says: bool) -> None:
    assert stated(load_rules(None).key_checks, host, provider) is says


@pytest.mark.parametrize(
    ("host", "probe"),
    [("api.openai.com", "/v1/models"), ("api.anthropic.com", "/v1/models?limit=1"), ("openrouter.ai", "/v1/key")],
)
def test_W13_a_row_may_say_by_which_path_a_key_can_be_tried(host: str, probe: str) -> None:
    found = row_of(load_rules(None).key_checks, host)
    assert found is not None and found.probe == probe
    open_to_all = row_of(load_rules(None).key_checks, "integrate.api.nvidia.com")
    assert open_to_all is not None and not open_to_all.probe


def test_a_probe_is_a_path_of_an_upstream_that_checks_keys() -> None:
    wrong = [row("a", probe="https://h/v1/models"), row("b", probe="/v1/../x"), row("c", probe="/v1/m", checks=False)]
    rows, problems = parse_key_checks({"key_check": wrong})
    must = "probe must be a path that begins with /v1/, such as /v1/models"
    assert not rows and problems == [
        f"key_check 1 (a): {must}",
        f"key_check 2 (b): {must}",
        "key_check 3 (c): probe needs checks = true",
    ]
