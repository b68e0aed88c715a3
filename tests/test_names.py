"""One word for one thing: names that say nothing of what they hold, and file names that stand in several packages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PROXY = Path(__file__).parents[1] / "proxy"
VAGUE = re.compile(r"_?(un|as_)?told")  # of any result; the simulator has its own words
ONCE = ("model_records", "pieces", "planning", "usage")  # files of three subjects had these names


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        yield from (n for key in ("id", "attr", "name", "arg") if isinstance(n := getattr(node, key, None), str))


def test_no_name_is_told() -> None:
    found = {
        (path.name, name)
        for path in PROXY.rglob("*.py")
        if "simulator" not in path.parts
        for name in _names(ast.parse(path.read_text()))
        if VAGUE.fullmatch(name)
    }
    assert not found


def test_modules_of_different_subjects_have_different_names() -> None:
    packages = [path for path in PROXY.iterdir() if path.is_dir()]
    for name in ONCE:
        assert len([p for p in packages if (p / f"{name}.py").exists()]) <= 1, name
