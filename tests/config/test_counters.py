"""counters.toml, parsed."""

from __future__ import annotations

from typing import Any

from proxy.apis import apis
from proxy.config.counters import merged, parse_counters
from proxy.config.rules import load_rules
from proxy.tokens.formats import FORMATS


def row(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "api": "chat", "hosts": ["h"], "calls": [{"path": "/c", "answer": "n"}], **fields}


def test_rows_are_read_in_their_order_and_a_single_table_is_one() -> None:
    rows, problems = parse_counters({"counter": [row("a"), row("b")]})
    assert [found.name for found in rows] == ["a", "b"] and problems == []
    assert parse_counters({"counter": row("a")})[0] == rows[:1]
    assert parse_counters({}) == ((), [])


def test_each_problem_names_its_row() -> None:
    wrong = [row("b", hosts=[]), row("c", calls=7), row("d", api="message"), row("a"), 7, row("e", form="nobody")]
    rows, problems = parse_counters({"counter": [row("a"), *wrong], "count": []})
    assert [found.name for found in rows] == ["a"]
    known = ", ".join(FORMATS)
    assert problems == [
        "count: unknown table, must be counter",
        "counter 2 (b): needs hosts or owners",
        "counter 3 (c): calls: expected array, got int",
        f"counter 4 (d): api is 'message', must be one of {known}",
        "counter 5 (a): another row has this name",
        "counter 6: expected object, got int",
        "counter 7 (e): form must be one of gemini",
    ]


def test_a_users_row_comes_first_and_replaces_the_row_of_its_name() -> None:
    built_in, _ = parse_counters({"counter": [row("a"), row("b")]})
    mine, _ = parse_counters({"counter": [row("b", enabled=False), row("c")]})
    assert [(found.name, found.enabled) for found in merged(mine, built_in)] == [("b", False), ("c", True), ("a", True)]


def test_the_rows_that_ship_are_about_apis_that_exist_and_what_may_cost_is_off() -> None:
    rows = load_rules(None).counters
    assert {found.api for found in rows} <= {api.name for api in apis()}
    assert [found.name for found in rows if not found.enabled] == ["openai"]
