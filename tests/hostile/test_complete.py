"""Nothing on the lists is without a test: the wire's dangers D1 to D62, and every finding."""

from __future__ import annotations

import re
from pathlib import Path

CASES = [f"D{number}" for number in range(1, 63)]
FINDINGS = [
    *(f"F{number}" for number in range(1, 18)),
    *(f"R{number}" for number in range(1, 10)),
    *(f"H{number}" for number in (1, 2, 3, 4, 5, 7, 8, 9, 12)),
    *(f"U{number}" for number in (4, 5, 6, 8, 9)),
]
NUMBERED = re.compile(r"def test_((?:[DFHRU]\d+_)+)")


def numbers_of_tests() -> set[str]:
    """The numbers that tests of this folder bear in their names."""
    found: set[str] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for numbers in NUMBERED.findall(path.read_text()):
            found |= {number[0] + number[1:].lstrip("0") for number in numbers.strip("_").split("_")}
    return found


def test_every_case_and_every_finding_has_a_test() -> None:
    missing = [number for number in (*CASES, *FINDINGS) if number not in numbers_of_tests()]
    assert missing == [], f"no test bears these numbers: {', '.join(missing)}"
