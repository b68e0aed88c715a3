from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from proxy.config.callers import MAX_CALLERS, CallerRules, described, parse_callers, unknown_names, unusable
from proxy.config.rules import load_rules
from proxy.config.settings import read_settings
from proxy.errors import ConfigError
from proxy.model.plan import Mode
from proxy.model.terms import OnFull, Reported

KEY = f"key:1a2b:{'0' * 32}"
FULL = f"""
callers = ["support"]

[[caller]]
name = "search"
match = {{ keys = ["{KEY}"], headers = ["search"], models = ["gpt-4o*"], paths = ["/v1/chat*"] }}
window = 32000
ladder = "agent"
mode = "observe"
upstream = "default"
models = ["GPT-4o*", "gpt-5"]
pin = {{ roles = ["system"], names = ["policy"], texts = ["Never Delete"] }}
on_full = "agent"
usage = "asked"
effective = 16000
budget = "team-a"

[[caller]]
name = "others"
match = "*"

[[budget]]
name = "team-a"
per = "1d"
tokens = 1000000
over = "fit"
"""


def parsed(text: str) -> CallerRules:
    rules, problems = parse_callers(tomllib.loads(text))
    assert not problems
    return rules


def problems_of(fields: str) -> list[str]:
    rules, problems = parse_callers(tomllib.loads(f"[[caller]]\n{fields}"))
    assert not rules.rows or not problems
    return problems


def test_the_callers_are_a_list_of_names() -> None:
    assert parsed('callers = ["search", "a.b/c@d_1", "search"]').names == {"search", "a.b/c@d_1"}
    assert parse_callers({}) == (CallerRules(), [])


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"callers": "search"}, "callers must be a list of names"),
        ({"callers": ["two words"]}, "callers: 'two words' must be a name of at most 64 letters, digits and ._@/-"),
        ({"callers": [7]}, "callers: 7 must be a name of at most 64 letters, digits and ._@/-"),
        ({"callers": ["x" * 65]}, "must be a name of at most 64 letters"),
        ({"callers": [f"c{i}" for i in range(MAX_CALLERS + 1)]}, "there are 51, at most 50 are told apart"),
        ({"names": ["search"]}, "names: unknown key, must be callers or caller"),
    ],
)
def test_what_is_no_list_of_names_is_a_problem(table: dict[str, Any], problem: str) -> None:
    rules, problems = parse_callers(table)
    assert rules == CallerRules() and len(problems) == 1 and problem in problems[0]


def test_a_users_list_replaces_the_built_in_one(tmp_path: Path) -> None:
    assert load_rules(None).callers.names == frozenset()
    (tmp_path / "callers.toml").write_text('callers = ["search"]')
    assert load_rules(tmp_path).callers.names == {"search"}


def test_a_row_says_what_holds_for_a_caller() -> None:
    rules = parsed(FULL)
    assert rules.names == {"support", "search", "others"}
    rule = rules.rows[0].rule(1, rules.budgets)
    assert (rule.number, rule.name, rule.window, rule.ladder, rule.mode) == (1, "search", 32000, "agent", Mode.OBSERVE)
    assert (rule.upstream, rule.on_full, rule.usage) == ("default", OnFull.AGENT, Reported.ASKED)
    assert (rule.effective, rule.budget, rule.anybody) == (16000, rules.budgets["team-a"], False)
    assert rule.pin is not None and rule.pin.texts == ("never delete",)
    assert rule.allows("gpt-4o-mini") and rule.allows("GPT-5") and not rule.allows("gpt-5-pro") and not rule.allows("")
    assert parsed(FULL).rows[1].rule(2, {}).allows("")


@pytest.mark.parametrize(
    "match", ['"*"', f'"{KEY}"', f'["{KEY}"]', '{ headers = ["a"] }', '{ models = ["x*"] }', '{ paths = ["/v1*"] }']
)
def test_a_match_may_be_short(match: str) -> None:
    assert len(parsed(f'[[caller]]\nname = "a"\nmatch = {match}').rows) == 1


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ('name = "a"', "missing field"),
        ('match = "*"', "missing field"),
        ('name = "a b"\nmatch = "*"', "name must be a name of at most 64 letters"),
        ('name = "other"\nmatch = "*"', "and not other"),
        ('name = "a"\nmatch = "sk-secret-key"', "hashes of keys as plimsoll caller prints them, and never a key"),
        ('name = "a"\nmatch = []', "match is empty"),
        ('name = "a"\nmatch = { keys = ["sk-secret-key"] }', "and never a key"),
        ('name = "a"\nmatch = { key = ["x"] }', "unknown field key"),
        ('name = "a"\nmatch = { models = [" "] }', "match: models must not be empty"),
        ('name = "a"\nmatch = { paths = ["v1"] }', "match: paths must begin with /"),
        ('name = "a"\nmatch = { headers = [" a"] }', "without spaces around them"),
        ('name = "a"\nmatch = "*"\nwindow = 0', "window: expected int >= 1"),
        ('name = "a"\nmatch = "*"\nmode = "none"', "mode: Invalid enum value"),
        ('name = "a"\nmatch = "*"\nusage = "none"', "usage: Invalid enum value"),
        ('name = "a"\nmatch = "*"\non_full = "none"', "on_full: Invalid enum value"),
        ('name = "a"\nmatch = "*"\nbudget = "two words"', "budget must be a name"),
        ('name = "a"\nmatch = "*"\nmodels = []', "models must not be empty"),
        ('name = "a"\nmatch = "*"\npin = {}', "pin must have roles, names or texts"),
        ('name = "a"\nmatch = "*"\npin = { texts = ["ab"] }', "texts must have 3 to 200 characters"),
        ('name = "a"\nmatch = "*"\ncolour = "red"', "unknown field colour"),
    ],
)
def test_a_wrong_row_is_a_problem_with_its_number_and_reason(fields: str, problem: str) -> None:
    found = problems_of(fields)
    assert len(found) == 1 and found[0].startswith("caller 1") and problem in found[0]
    assert "sk-secret-key" not in found[0]


def test_a_row_behind_one_for_everybody_is_a_problem() -> None:
    text = '[[caller]]\nname = "all"\nmatch = "*"\n[[caller]]\nname = "late"\nmatch = "*"'
    assert parse_callers(tomllib.loads(text))[1] == ["caller 2 (late): is never reached: row 1 matches every request"]


def test_a_ladder_and_an_upstream_must_exist(tmp_path: Path) -> None:
    rules = parsed('[[caller]]\nname = "a"\nmatch = "*"\nladder = "steep"\nupstream = "far"')
    assert len(unknown_names(rules, ["default"], ["default"])) == 2
    (tmp_path / "callers.toml").write_text('[[caller]]\nname = "a"\nmatch = "*"\nladder = "steep"')
    with pytest.raises(ConfigError, match=r"callers.toml, caller 1 \(a\): unknown ladder 'steep', known are agent, "):
        load_rules(tmp_path)


@pytest.mark.parametrize(
    ("match", "environment", "mark", "problem"),
    [
        (f'"{KEY}"', {}, None, "hashes of keys need PLIMSOLL_SECRET, the same on all replicas"),
        (f'"{KEY}"', {}, "ffff", "a hash was made with another PLIMSOLL_SECRET"),
        (f'"{KEY}"', {}, "1a2b", ""),
        ('{ headers = ["a"] }', {"PLIMSOLL_CALLER_HEADER": "x-team"}, None, "PLIMSOLL_TRUSTED_PROXIES"),
        ('{ headers = ["a"] }', {"PLIMSOLL_TRUSTED_PROXIES": "::1"}, None, "headers need PLIMSOLL_CALLER_HEADER"),
        (
            '{ headers = ["a"] }',
            {"PLIMSOLL_TRUSTED_PROXIES": "::1", "PLIMSOLL_CALLER_HEADER": "api-key"},
            None,
            "must not be a header that has a key",
        ),
        (
            '{ headers = ["a"] }',
            {"PLIMSOLL_TRUSTED_PROXIES": "::1", "PLIMSOLL_CALLER_HEADER": "x-team"},
            None,
            "",
        ),
    ],
)
def test_rows_that_cannot_be_compared_with_requests_are_told(
    match: str, environment: dict[str, str], mark: str | None, problem: str
) -> None:
    found = unusable(parsed(f'[[caller]]\nname = "a"\nmatch = {match}'), read_settings(environment), mark)
    assert [True for line in found if problem in line and line.startswith("callers.toml, caller 1 (a): ")] == [
        True for _ in found
    ]
    assert bool(found) is bool(problem)


def test_each_row_is_described_on_one_line() -> None:
    first, second, _ = described(parsed(FULL))
    assert first.startswith(
        "caller 1 (search): 1 key or header search with models gpt-4o* with paths /v1/chat*: window 32,000, ladder "
    )
    assert second == "caller 2 (others): everybody else: a name alone"
