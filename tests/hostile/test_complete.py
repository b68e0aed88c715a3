"""Nothing on the lists is without a test, and none runs with one worker alone: the wire's dangers D1 to D62, and every
finding."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CASES = [f"D{number}" for number in range(1, 63)]
FINDINGS = [
    *(f"F{number}" for number in range(1, 18)),
    *(f"R{number}" for number in range(1, 10)),
    *(f"H{number}" for number in (1, 2, 3, 4, 5, 7, 8, 9, 12)),
    *(f"U{number}" for number in (4, 5, 6, 8, 9)),
]
NEEDS_TWO = {"F12"}  # nobody is left to go on where the only worker is killed


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> list[tuple[set[str], bool]]:
    """The numbers that each test of this folder bears in its name, and whether it runs with two workers."""
    here = {item.path for item in request.session.items}
    if not here.issuperset(Path(__file__).parent.glob("test_*.py")):
        pytest.skip("this run is of a part of tests/hostile")
    found = []
    for item in request.session.items:
        if numbered := re.search(r"/hostile/.*::test_((?:[DFHRU]\d+_)+)", item.nodeid):
            numbers = {number[0] + number[1:].lstrip("0") for number in numbered[1].strip("_").split("_")}
            found.append((numbers, "two_workers" in item.nodeid))
    return found


@pytest.mark.parametrize("workers", [1, 2])
def test_every_case_and_every_finding_has_a_test(collected: list[tuple[set[str], bool]], workers: int) -> None:
    tested = set().union(*(numbers for numbers, two in collected if two == (workers == 2)))
    wanted = [number for number in (*CASES, *FINDINGS) if workers == 2 or number not in NEEDS_TWO]
    missing = [number for number in wanted if number not in tested]
    assert missing == [], f"no test with workers: {workers} bears these numbers: {', '.join(missing)}"
