"""How many seeded faults the tests find: each mutant is the product with one small change, and a test must fail.

    python -m tests.bench.mutants [--count 300] [--seed 32] [--in fit,request,http] [--tests PATH ...] [--json FILE]
    python -m tests.bench.mutants --again FILE [--tests PATH ...]

A mutant swaps a comparison, `and` and `or`, plus and minus; negates a condition or no longer does; adds one to a
number; turns True and False; returns None; or leaves a statement out. They are drawn evenly from all places of the
modules where that can be done. They run in a copy of the checkout: first the tests run once and tell which of them
reach which lines; then for each mutant those that reach its line, quickest first, until one fails or takes too long.
`--again` runs the mutants that survived in FILE once more, all of `--tests` for each: for tests whose proxies are
processes of their own, where nothing tells which lines they reach.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.arguments import existing

ROOT = Path(__file__).parents[2]
COPIED = ("proxy", "tests", "rules", "deploy", ".ci", "pyproject.toml", "Makefile", "README.md", "CHANGELOG.md")
COMPARED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
MEMORY = 8 << 30  # bytes of address space that the tests of a mutant may have: some never stop to allocate
SLACK_S = 30.0  # a mutant's tests may take ten times what they took before, and this


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the bytes from `start` to `end` of the file become `text`."""

    path: str
    line: int
    last: int
    start: int
    end: int
    text: str
    kind: str

    def applied(self, source: bytes) -> bytes:
        """The source of the changed module."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants_of(path: str, source: bytes) -> Iterator[Mutant]:
    """Every mutant of a module that still compiles."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    skipped = set(_not_run(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr | ast.stmt) or node in skipped:
            continue
        start, end = starts[node.lineno - 1] + node.col_offset, 0
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        for kind, text in _changes(node, source[start:end].decode()):
            made = Mutant(path, node.lineno, node.end_lineno or node.lineno, start, end, text, kind)
            with contextlib.suppress(SyntaxError):
                compile(made.applied(source), path, "exec")
                yield made


def _not_run(tree: ast.Module) -> Iterator[ast.AST]:
    """What is not mutated: annotations, what only a type checker reads, `__all__`; texts in braces have no places."""
    for node in ast.walk(tree):
        found: list[ast.AST | None] = []
        if isinstance(node, ast.JoinedStr):
            found = [node]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found = [node.returns, *(a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg))]
            found += node.decorator_list
        elif isinstance(node, ast.AnnAssign):
            found = [node.annotation]
        elif isinstance(node, ast.ClassDef):
            found = [*node.decorator_list]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found = [node]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            found = [node]
        for part in found:
            yield from ast.walk(part) if part is not None else ()


def _changes(node: ast.expr | ast.stmt, text: str) -> Iterator[tuple[str, str]]:
    """What a node may become: the kind of the change, and the new text."""
    match node:
        case ast.Compare(left, [op, *more], rights) if not more:
            other = ast.Compare(left, [COMPARED[type(op)]()], rights)
            yield "comparison", f"({ast.unparse(other)})"
        case ast.BoolOp(op, values):
            yield "and, or", f"({ast.unparse(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))})"
        case ast.UnaryOp(ast.Not(), operand):
            yield "not", f"({ast.unparse(operand)})"
        case ast.BinOp(left, ast.Add(), right):
            yield "plus, minus", f"({ast.unparse(ast.BinOp(left, ast.Sub(), right))})"
        case ast.BinOp(left, ast.Sub(), right):
            yield "plus, minus", f"({ast.unparse(ast.BinOp(left, ast.Add(), right))})"
        case ast.Constant(bool() as value):
            yield "true, false", str(not value)
        case ast.Constant(int() | float() as number):
            yield "number", f"({number + 1})"
        case ast.IfExp(test, body, orelse):
            yield "condition", f"({ast.unparse(ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse))})"
        case ast.Return(value) if value is not None and ast.unparse(value) != "None":
            yield "return", "return None"
        case ast.Expr(ast.Call() | ast.Await()) | ast.AugAssign():
            yield "left out", "pass"
        case ast.Assign([ast.Attribute() | ast.Subscript()], _):
            yield "left out", "pass"
        case ast.Continue():
            yield "continue", "break"


def drawn(root: Path, parts: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Mutants of the packages, evenly from all their places; the same for the same sources and seed."""
    found: list[Mutant] = []
    for part in parts:
        for path in sorted((root / "proxy" / part).rglob("*.py")):
            found += mutants_of(str(path.relative_to(root)), path.read_bytes())
    return random.Random(seed).sample(found, min(count, len(found)))


class _Noted:
    """A plugin of pytest: which tests fail, and the seconds of each test."""

    def __init__(self) -> None:
        self.failed, self.seconds = list[str](), Counter[str]()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid or "collection")


def ran(arguments: Sequence[str], seconds: float) -> tuple[Sequence[str], Mapping[str, float]]:
    """Runs pytest in a fork; gives the tests that failed ("time" if it took too long), and the seconds of each."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        _in_fork(arguments, write)
    os.close(write)
    ended = time.monotonic() + seconds
    told, late = b"", True
    with os.fdopen(read, "rb") as out:
        os.set_blocking(out.fileno(), False)
        while time.monotonic() < ended:
            got = out.read()
            told += got or b""
            if got == b"":
                late = False
                break
            time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if late:
        return ["time"], {}
    noted: dict[str, Any] = json.loads(told) if told else {"failed": [f"ended with {status}"], "seconds": {}}
    return noted["failed"], noted["seconds"]


def _in_fork(arguments: Sequence[str], write: int) -> None:
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        import pytest

        noted = _Noted()
        code = pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[noted])
        if code not in (0, 1) and not noted.failed:
            noted.failed.append(f"pytest ended with {code}")
        with os.fdopen(write, "w") as out:
            json.dump({"failed": noted.failed, "seconds": noted.seconds}, out)
    finally:
        os._exit(0)


@dataclass(frozen=True, slots=True)
class Reached:
    """Which tests reach which lines, by file; and how long they take."""

    lines: Mapping[str, Mapping[int, list[str]]]
    seconds: Mapping[str, float]

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that reach the change, quickest first; those that the module's import reaches are all."""
        by_line = self.lines.get(mutant.path, {})
        found = {test for line in range(mutant.line, mutant.last + 1) for test in by_line.get(line, ())}
        if "" in found:  # at import: whatever reaches any line of the module
            found = {test for tests in by_line.values() for test in tests}
        return sorted(found - {""}, key=lambda test: self.seconds.get(test, 0.0))


def reached(tests: Sequence[str], parts: Sequence[str], kept: Path) -> Reached:
    """Runs the tests once, unchanged, and measures it."""
    sources = [f"--cov=proxy/{part}" for part in parts]
    failed, seconds = ran([*sources, "--cov-context=test", "--cov-report=", *tests], 3_600)
    for test in failed:
        print(f"fails without a mutant, and kills none: {test}", file=sys.stderr)
    from coverage import CoverageData

    data = CoverageData(str(kept / ".coverage"))
    data.read()
    lines = {
        str(Path(name).relative_to(kept)): {
            line: [test for context in contexts if (test := context.rpartition("|")[0]) not in failed]
            for line, contexts in data.contexts_by_lineno(name).items()
        }
        for name in data.measured_files()
    }
    return Reached(lines, seconds)


def killed(mutant: Mutant, tests: Sequence[str], expected: float, root: Path) -> tuple[str, float]:
    """The test that fails with this mutant ("" if none does), and how many seconds it took."""
    target, begun = root / mutant.path, time.monotonic()
    source, times = target.read_bytes(), target.stat()
    target.write_bytes(mutant.applied(source))
    os.utime(target, (times.st_atime, times.st_mtime + 10))  # no module that was compiled before is taken for it
    try:
        by = next(iter(ran(["-x", *tests], 10 * expected + SLACK_S)[0] if tests else ()), "")
    finally:
        target.write_bytes(source)
        os.utime(target, (times.st_atime, times.st_mtime))
    return by, time.monotonic() - begun


def run(options: argparse.Namespace, root: Path) -> Iterator[dict[str, Any]]:
    """One row per mutant: itself, the test that killed it, how many tests were to run."""
    if options.again:
        rows = [json.loads(line) for line in options.again.read_text().splitlines()]
        mutants = [Mutant(**row["mutant"]) for row in rows if not row["by"]]
        failed, seconds = ran(options.tests, 3_600)
        if failed:
            sys.exit(f"fails without a mutant: {', '.join(failed)}")
        known = None
    else:
        mutants = drawn(root, options.parts, options.count, options.seed)
        known = reached(options.tests, options.parts, root)
        seconds = known.seconds
    for mutant in mutants:
        tests = options.tests if known is None else known.of(mutant)
        expected = sum(seconds.values()) if known is None else sum(seconds.get(test, 0.0) for test in tests)
        by, took = killed(mutant, tests, expected, root)
        yield {"mutant": asdict(mutant), "by": by, "tests": len(tests), "seconds": round(took, 1)}


def main() -> int:
    """Prints each mutant and a table; 0 whatever survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=32)
    parser.add_argument("--in", dest="parts", type=lambda text: text.split(","), default=["fit", "request", "http"])
    parser.add_argument("--tests", nargs="+", help="default: the folders of tests of the packages")
    parser.add_argument("--again", type=existing, metavar="FILE", help="the rows of a former run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes one row per mutant there")
    options = parser.parse_args()
    options.tests = options.tests or [f"tests/{part}" for part in options.parts]
    for name in ("again", "json"):
        if getattr(options, name):
            setattr(options, name, getattr(options, name).absolute())
    if not os.environ.get("MUTANTS_COPY"):
        return _in_copy()
    counts, told = Counter[str](), open(options.json, "w") if options.json else None
    for row in run(options, Path.cwd()):
        mutant, part = row["mutant"], row["mutant"]["path"].split("/")[1]
        counts[f"{part} killed" if row["by"] else f"{part} survived"] += 1
        print(f"{mutant['path']}:{mutant['line']} {mutant['kind']}: {row['by'] or 'SURVIVED'} ({row['tests']} tests)")
        print(json.dumps(row), file=told, flush=True) if told else None
    print("\n".join(f"{name:18}{count:5}" for name, count in sorted(counts.items())))
    return 0


def _in_copy() -> int:
    """Runs this command in a copy of the checkout, whose modules may be changed."""
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, Path(folder) / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif (ROOT / name).exists():
                shutil.copy2(ROOT / name, folder)
        environment = {**os.environ, "MUTANTS_COPY": folder, "PYTHONPATH": folder}
        command = [sys.executable, "-m", "tests.bench.mutants", *sys.argv[1:]]
        return subprocess.run(command, cwd=folder, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
