"""The logs made by script: the same for a seed, each with its needle once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.config.rules import load_rules
from tests.bench.logs.__main__ import keeps
from tests.bench.logs.generator import FORMATS, LINES, cases


@pytest.mark.parametrize("variant", ["first", "second"])
def test_a_log_has_its_needle_once_and_is_the_same_for_a_seed(variant: str) -> None:
    made = list(cases(variant, 7, 1))
    assert made == list(cases(variant, 7, 1)) and {case.format for case in made} == {*FORMATS}
    for case in made:
        lines = case.log.split("\n")
        assert lines.count(case.needle) == 1 and len(lines) >= LINES[0] and "{" not in case.question
    assert [case.log for case in made] != [case.log for case in cases(variant, 8, 1)]


def test_a_log_that_fits_keeps_every_line_of_it_and_no_other() -> None:
    case = next(cases("first", 1, 1))
    ladder = load_rules(None).ladders["default"]
    assert keeps(ladder, case, 200_000) and not keeps(ladder, replace(case, needle="no line of it"), 200_000)
