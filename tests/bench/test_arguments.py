"""What is missing is named before a bench starts anything."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.arguments import checkout, existing, measures

ROOT = Path(__file__).parents[2]


def test_what_is_there_is_taken(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "bench" / "fit_bench.py").touch()
    assert measures(str(tmp_path)) == existing(str(tmp_path)) == tmp_path
    assert checkout(str(ROOT)) == ROOT


def test_a_checkout_of_an_earlier_layout_is_taken(tmp_path: Path) -> None:
    (tmp_path / "proxy").mkdir()
    (tmp_path / "proxy" / "cli.py").touch()
    assert checkout(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("kind", [checkout, existing, measures])
def test_what_is_missing_is_named(tmp_path: Path, kind: Callable[[str], Path]) -> None:
    with pytest.raises(ArgumentTypeError, match=r"there is no .*nowhere|nowhere is no checkout"):
        kind(str(tmp_path / "nowhere"))
