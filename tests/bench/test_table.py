"""The table of `make bench`: a system that fails has no figures in it."""

from __future__ import annotations

from dataclasses import replace

from tests.bench.__main__ import table
from tests.bench.loads import Case, Result

CASE = Case("1 KB, 1", 1_000, 1, 1)
GOOD = Result("plimsoll", CASE.name, cpu_us=100, rate=9_000, p50=200, p99=300, errors=0, memory=100)


def rows(*others: Result) -> dict[str, str]:
    results = [replace(GOOD, system="direct"), GOOD, *others]
    lines = table({(r.case, r.system): r for r in results}, [CASE], [r.system for r in results])
    return {line.split("|")[2].strip(): line for line in list(lines)[2:]}


def test_a_system_that_answers_has_its_figures() -> None:
    found = rows(replace(GOOD, system="nginx", cpu_us=20))
    assert "| 100 | 5.0 |" in found["plimsoll"] and "| 20 |" in found["nginx"]


def test_a_system_that_fails_has_none_and_nothing_is_compared_with_it() -> None:
    failing, slow = replace(GOOD, system="nginx", errors=7), replace(GOOD, system="litellm", rate=1.0)
    found = rows(failing, slow)
    assert "no figure: errors among its answers" in found["nginx"] and found["nginx"].endswith("| 7 |")
    assert "no figure: only 1.0 answers a second" in found["litellm"]
    assert "| 100 |  |" in found["plimsoll"]
