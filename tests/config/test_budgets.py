"""The tables `[[budget]]` of callers.toml."""

from __future__ import annotations

import tomllib

import pytest

from proxy.config.budgets import parse_budgets, said
from proxy.config.callers import described, parse_callers, unusable
from proxy.config.settings import read_settings
from proxy.model.budget import NANO, Budget, For, Over, Unit

ROW = '[[budget]]\nname = "b"\n'


def test_a_budget_has_an_amount_a_period_and_what_happens_at_its_end() -> None:
    found, problems = parse_budgets(
        tomllib.loads(
            ROW + 'per = "5h"\nusd = 12.5\nfor = "session"\ncount = "all"\nsoft = 0.5\nwindow = 8000\nover = "fit"'
        )
    )
    assert not problems
    assert found == {"b": Budget("b", 12_500_000_000, Unit.USD, For.SESSION, 18_000, True, 0.5, 8_000, Over.FIT)}


def test_a_budget_is_told_and_not_enforced_unless_it_says_so() -> None:
    found, _ = parse_budgets(tomllib.loads(ROW + 'per = "30d"\ntokens = 5000'))
    assert found["b"] == Budget("b", 5_000, seconds=30 * 86_400) and not found["b"].enforced


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ('per = "1d"', "must have tokens, or usd"),
        ('per = "1d"\ntokens = 1\nusd = 1', "must have tokens, or usd"),
        ("tokens = 1", "per"),
        ('per = "1w"\ntokens = 1', "hours or days"),
        ('per = "0h"\ntokens = 1', "hours or days"),
        ('per = "400d"\ntokens = 1', "hours or days"),
        ('per = "session"\ntokens = 1', 'needs for = "session"'),
        ('per = "1d"\ntokens = 0', "tokens"),
        ('per = "1d"\ntokens = 9007199254740993', "tokens"),
        ('per = "1d"\nusd = nan', "positive number"),
        ('per = "1d"\nusd = inf', "positive number"),
        ('per = "1d"\nusd = -1', "positive number"),
        ('per = "1d"\nusd = 0.0', "positive number"),
        ('per = "1d"\ntokens = 1\nsoft = 0', "soft"),
        ('per = "1d"\ntokens = 1\nsoft = 1.1', "soft"),
        ('per = "1d"\ntokens = 1\nsoft = nan', "soft"),
        ('per = "1d"\ntokens = 1\nwindow = 10', "window"),
        ('per = "1d"\ntokens = 1\nover = "throttle"', "over"),
        ('per = "1d"\ntokens = 1\nfor = "everybody"', "for"),
        ('per = "1d"\ntokens = 1\ncount = "some"', "count"),
        ('per = "1d"\ntokens = 1\nlimit = 1', "limit"),
    ],
)
def test_a_wrong_row_is_a_problem_that_names_its_field(fields: str, problem: str) -> None:
    _, problems = parse_budgets(tomllib.loads(ROW + fields))
    assert len(problems) == 1 and problems[0].startswith("budget 1 (b): ") and problem in problems[0]


def test_two_budgets_have_two_names() -> None:
    row = ROW + 'per = "1d"\ntokens = 1\n'
    assert parse_budgets(tomllib.loads(row + row))[1] == ["budget (b): another row has this name"]


CALLER = '[[caller]]\nname = "a"\nmatch = "*"\n'


def test_a_caller_names_a_budget_that_exists_and_a_budget_is_named_by_a_caller() -> None:
    row = ROW + 'per = "1d"\ntokens = 1\n'
    assert not parse_callers(tomllib.loads(CALLER + 'budget = "b"\n' + row))[1]
    _, problems = parse_callers(tomllib.loads(CALLER + 'budget = "c"\n' + row))
    assert problems == ["caller 1 (a): unknown budget 'c', known are b", "budget (b): no caller names it"]


@pytest.mark.parametrize(("mode", "environment"), [('mode = "off"\n', {}), ("", {"PLIMSOLL_MODE": "off"})])
def test_a_budget_needs_a_mode_that_counts(mode: str, environment: dict[str, str]) -> None:
    text = CALLER + mode + 'budget = "b"\n' + ROW + 'per = "1d"\ntokens = 1\n'
    rules, problems = parse_callers(tomllib.loads(text))
    assert not problems
    assert unusable(rules, read_settings(environment), None) == [
        "callers.toml, caller 1 (a): a budget needs a mode that counts, not off"
    ]


def test_budgets_are_described() -> None:
    text = CALLER + 'budget = "b"\n' + ROW + 'per = "1d"\nusd = 2\nover = "fit"\n'
    assert described(parse_callers(tomllib.loads(text))[0]) == [
        "caller 1 (a): everybody else: budget b",
        "budget b: $2.00 per 1d for each caller, fitted to 16,000 tokens",
    ]
    session = Budget("s", 10 * NANO, Unit.USD, For.SESSION, 0, over=Over.REFUSE)
    assert said(session) == "budget s: $10.00 per session for each session, refused beyond"
    assert (
        said(Budget("o", 1_000, scope=For.ALL, seconds=5 * 3_600)) == "budget o: 1,000 tokens per 5h for all, told only"
    )
