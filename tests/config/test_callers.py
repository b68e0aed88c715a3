from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from proxy.config.callers import MAX_CALLERS, parse_callers
from proxy.config.rules import load_rules


def test_the_callers_are_a_list_of_names() -> None:
    assert parse_callers(tomllib.loads('callers = ["search", "a.b/c@d_1", "search"]')) == (("search", "a.b/c@d_1"), [])
    assert parse_callers({}) == ((), [])


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"callers": "search"}, "callers must be a list of names"),
        ({"callers": ["two words"]}, "callers: 'two words' must be a name of at most 64 letters, digits and ._@/-"),
        ({"callers": [7]}, "callers: 7 must be a name of at most 64 letters, digits and ._@/-"),
        ({"callers": ["x" * 65]}, "must be a name of at most 64 letters"),
        ({"callers": [f"c{i}" for i in range(MAX_CALLERS + 1)]}, "there are 51, at most 50 are told apart"),
        ({"caller": ["search"]}, "caller: unknown key, must be callers"),
    ],
)
def test_what_is_no_list_of_names_is_a_problem(table: dict[str, Any], problem: str) -> None:
    names, problems = parse_callers(table)
    assert names == () and len(problems) == 1 and problem in problems[0]


def test_a_users_list_replaces_the_built_in_one(tmp_path: Path) -> None:
    assert load_rules(None).callers == frozenset()
    (tmp_path / "callers.toml").write_text('callers = ["search"]')
    assert load_rules(tmp_path).callers == {"search"}
