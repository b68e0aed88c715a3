"""A variant of an ablation has one constant of the source changed, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.ablation import changed

SOURCE = "K1, B = 1.2, 0.3  # measured\nNAMES = (1, 2)\nLIMIT: int = 5\ndef f(b: float = B) -> None: ...\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proxy/fit/relevance/text").mkdir(parents=True)
    (tmp_path / "proxy/fit/steps").mkdir()
    (tmp_path / "proxy/fit/relevance/text/bm25.py").write_text(SOURCE)
    (tmp_path / "proxy/fit/steps/prune.py").write_text("LOW = 0.6\n")
    return tmp_path


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("bm25.B=0.75", "K1, B = 1.2, 0.3  # measured\nB = 0.75\n"),
        ("bm25.K1=2.0", "K1, B = 1.2, 0.3  # measured\nK1 = 2.0\n"),
        ("bm25.NAMES=(0, 0)", "NAMES = (1, 2)\nNAMES = (0, 0)\n"),
        ("bm25.LIMIT=9", "LIMIT: int = 5\nLIMIT = 9\n"),
    ],
)
def test_the_constant_gets_its_value_before_anything_uses_it(root: Path, change: str, line: str) -> None:
    changed(root, change)
    source = (root / "proxy/fit/relevance/text/bm25.py").read_text()
    assert source == SOURCE.replace(line.partition("\n")[0] + "\n", line)


def test_constants_of_steps_are_found_too(root: Path) -> None:
    changed(root, "prune.LOW=0.5")
    assert (root / "proxy/fit/steps/prune.py").read_text() == "LOW = 0.6\nLOW = 0.5\n"


@pytest.mark.parametrize("change", ["bm25.X=1", "nothing.B=1", "B=1"])
def test_an_unknown_constant_is_an_error(root: Path, change: str) -> None:
    with pytest.raises(ValueError, match="no constant of that name"):
        changed(root, change)
