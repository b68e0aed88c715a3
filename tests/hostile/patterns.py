"""Searches texts that make expressions that backtrack take hours, with each expression of the package and its rules.

As a program it prints each expression before it searches with it, and the seconds of processor time so far after that.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SIZE = 10_000  # characters for what begins at one place, and for what is searched for at each: one that is cubic in
SEARCHED = 3_000  # them needs minutes, one that is exponential does not end
MARK = "\x1e"  # before the seconds of processor time so far, after each of them
UNITS = ("a", "1", " ", "\n", "-", "\\", '"', "{", "=", "é", "a ", "a.", "1,", "a_", "\n ", "<a")
END = "\x00"  # which hardly any expression wants
CALLS = frozenset({"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"})

Pattern = re.Pattern[Any]


def expressions() -> list[Pattern]:
    """All that the package compiles when it is imported and its rules are loaded, and those in calls of its source."""
    found: dict[Pattern, None] = {}
    compiled: Any = re._compile  # type: ignore[attr-defined]

    def noted(pattern: Any, flags: Any) -> Pattern:
        made: Pattern = compiled(pattern, flags)
        if sys._getframe(2).f_globals.get("__name__", "").startswith("proxy."):
            found[made] = None
        return made

    module: Any = re
    module._compile = noted
    try:
        import proxy

        for found_module in pkgutil.walk_packages(proxy.__path__, "proxy."):
            if not found_module.name.endswith("__main__"):
                importlib.import_module(found_module.name)
        from proxy.config.rules import load_rules

        load_rules(None)
    finally:
        module._compile = compiled
    return [*dict.fromkeys((*found, *literals()))]


def literals() -> Iterator[Pattern]:
    """Expressions that are written in a call, which only its first run compiles."""
    for path in sorted((ROOT / "proxy").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr in CALLS and ast.unparse(called.value) == "re":
                yield re.compile(node.args[0].value)


def words(pattern: Pattern) -> list[str]:
    """Pieces of text that an expression itself names: what matches its beginning makes it go on."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    return [*dict.fromkeys(re.findall(r"[A-Za-z_<>=:\"{/-]{2,}", text))][:3]


def texts(pattern: Pattern, size: int) -> Iterator[str]:
    """Texts that repeat what an expression may repeat, and end as it does not expect."""
    own = words(pattern)
    for unit in (*UNITS, *(f"{word} " for word in own), *(f"{word}1" for word in own)):
        yield (unit * size)[:size] + END
    for word in own[:1]:
        for unit in ("a", "1", " ", "a "):
            yield word + (unit * size)[:size] + END


def methods() -> dict[str, set[str]]:
    """What the package calls of an expression with a name: `match` and `fullmatch` begin at one place."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "proxy").rglob("*.py")):
        for name, method in re.findall(r"\b([A-Z_][A-Z_0-9]+)\.([a-z]+)\b", path.read_text("utf-8")):
            found.setdefault(name, set()).add(method)
    return found


def anchored() -> set[Pattern]:
    """Expressions of modules that the package never searches with."""
    used, found = methods(), set[Pattern]()
    for name, module in list(sys.modules.items()):
        if name.startswith("proxy."):
            for key, value in vars(module).items():
                if isinstance(value, re.Pattern) and used.get(key) and used[key] <= {"match", "fullmatch"}:
                    found.add(value)
    return found


def main() -> None:
    """Tries each of them."""
    every = expressions()
    bound = anchored()
    for pattern in every:
        print(pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1"), flush=True)
        once = pattern in bound or str(pattern.pattern).endswith(r"\Z")  # those of fnmatch
        for text in texts(pattern, SIZE if once else SEARCHED):
            given = text if isinstance(pattern.pattern, str) else text.encode()
            (pattern.match if once else pattern.search)(given)
        print(f"{MARK}{time.process_time():.3f}", flush=True)


if __name__ == "__main__":
    main()
