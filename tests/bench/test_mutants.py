"""The mutants: each is one change that compiles, and the same seed draws the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.mutants import Mutant, Reached, drawn, mutants_of

ROOT = Path(__file__).parents[2]
SOURCE = '''
def least(values: list[int], bound: int = 3) -> int | None:
    """The least of them."""
    if values and not bound < 0:
        bound -= 1
        values.sort(reverse=False)
        return values[0] + bound
    return None
'''.lstrip().encode()


def test_every_mutant_is_one_change_that_compiles() -> None:
    made = {mutant.kind: mutant.applied(SOURCE).decode() for mutant in mutants_of("m.py", SOURCE)}
    assert set(made) == {
        *("comparison", "and, or", "not", "plus, minus", "true, false", "number", "return", "left out"),
    }
    assert "not (bound <= 0)" in made["comparison"] and "values or" in made["and, or"]
    assert "values and (bound < 0)" in made["not"] and "reverse=True" in made["true, false"]
    assert "list[int]" in made["number"] and made["return"].count("return None") == 2


def test_the_same_seed_draws_the_same_mutants_and_another_draws_others() -> None:
    one, two, other = (drawn(ROOT, ["http/client"], 20, seed) for seed in (1, 1, 2))
    assert one == two != other and len({*one, *other}) > 20


def test_a_mutant_meets_the_tests_that_reach_its_line_quickest_first() -> None:
    known = Reached({"m.py": {1: [""], 4: ["slow", "quick"], 5: ["slow"]}}, {"slow": 2.0, "quick": 0.1})
    assert known.of(Mutant("m.py", 4, 4, 0, 1, "", "")) == ["quick", "slow"]
    assert known.of(Mutant("m.py", 5, 5, 0, 1, "", "")) == ["slow"]
    assert known.of(Mutant("m.py", 1, 1, 0, 1, "", "")) == ["quick", "slow"]  # whatever imports it
    assert known.of(Mutant("other.py", 4, 4, 0, 1, "", "")) == []


@pytest.mark.parametrize(("text", "by"), [("- 1", "test_m.py::test_one_more"), ("+ 1 ", "")], ids=["found", "survives"])
def test_a_mutant_is_killed_by_the_test_that_fails_and_its_module_is_restored(
    text: str, by: str, tmp_path: Path
) -> None:
    source = b"def more(n):\n    return n + 1\n"
    (tmp_path / "m.py").write_bytes(source)
    (tmp_path / "test_m.py").write_text("import m\n\ndef test_one_more():\n    assert m.more(1) == 2\n")
    at = source.index(b"+ 1")
    script = "from pathlib import Path; from tests.bench.mutants import Mutant, killed; "
    script += f"found = killed(Mutant('m.py', 2, 2, {at}, {at + 3}, {text!r}, ''), ['test_m.py'], 1.0, Path.cwd()); "
    script += "print(found[0])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    told = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == by
    assert (tmp_path / "m.py").read_bytes() == source
