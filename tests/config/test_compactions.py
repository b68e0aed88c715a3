"""compactions.toml, parsed and merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proxy.config.compactions import merged, parse_compactions
from proxy.config.rules import check_rules, load_rules
from proxy.fit.compactions import Compaction

BEGINS = ["Write down what we did so far, in a few words."]


def row(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "begins": BEGINS, **fields}


def test_rows_are_read_and_those_that_are_wrong_are_named() -> None:
    rows, problems = parse_compactions({"compaction": [row("a"), row("b", apis=["chat"], where="instructions")]})
    assert [(r.name, r.where, r.apis, r.transcript) for r in rows] == [
        ("a", "message", (), False),
        ("b", "instructions", ("chat",), False),
    ]
    assert not problems
    wrong = [row("a", apis=["chats"]), row("a", begin="x"), row("b", begins=["short"])]
    rows, problems = parse_compactions({"compaction": wrong, "compactions": []})
    assert not rows and [problem.partition(":")[0] for problem in problems] == [
        "compactions",
        "compaction 1 (a)",
        "compaction 2 (a)",
        "compaction 3 (b)",
    ]
    assert "apis must be of" in problems[1] and "chat" in problems[1]


def parse(rows: list[dict[str, Any]]) -> tuple[Compaction, ...]:
    return parse_compactions({"compaction": rows})[0]


def test_a_row_replaces_the_one_with_its_name() -> None:
    upper, lower = parse([row("b", contains="x")]), parse([row("a"), row("b")])
    assert [(r.name, r.contains) for r in merged(upper, lower)] == [("b", "x"), ("a", "")]


def test_a_folder_of_ones_own_comes_before_the_rows_that_ship(tmp_path: Path) -> None:
    (tmp_path / "compactions.toml").write_text(f'[[compaction]]\nname = "codex"\nbegins = {BEGINS}\n')
    found = load_rules(tmp_path).compactions
    assert found[0].name == "codex" and found[0].begins == tuple(BEGINS)
    assert [r.name for r in found].count("codex") == 1 and "claude-code" in [r.name for r in found]
    (tmp_path / "compactions.toml").write_text('[[compaction]]\nname = "codex"\n')
    assert check_rules(tmp_path) == [f"{tmp_path}/compactions.toml, compaction 1 (codex): missing field begins"]
