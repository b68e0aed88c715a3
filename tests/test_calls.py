"""Calls say what they pass: with many arguments by position, two in the wrong order may be of the same type."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PROXY = Path(__file__).parents[1] / "proxy"
MOST = 8  # arguments by position
# Those that may have more, with the reason.
MORE = {
    ("observe/log.py", "_Record"): "msgspec searches each keyword: 28 cost 7 us, by position .8, for each request",
    ("observe/recording/recorded_lines.py", "Line"): "the same",
    ("request/figures.py", "Outcome"): "the same",
    ("config/windows.py", "TypeVar"): "a list of types",
    ("tokens/redaction.py", "struct.pack"): "a list of values",
}


def _long_calls() -> Iterator[tuple[str, str]]:
    for path in sorted(PROXY.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and len(node.args) > MOST:
                yield str(path.relative_to(PROXY)), ast.unparse(node.func)


def test_no_call_passes_many_arguments_by_position() -> None:
    assert set(_long_calls()) == set(MORE), "name the arguments, or group them in a value"
