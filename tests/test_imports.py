"""The directions in which modules may import one another, and where each foreign library lives (sections 3 and 11)."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VOCABULARY = frozenset({"types", "errors", "bounded", "outsize"})
PURE = frozenset({"fit", "tokens", "wire"})  # they decide, count and understand: none of them needs another
FRONT = frozenset({"cli", "demo", "knowing", "picture", "running"})  # the command line, and what it shows
SIMULATOR = frozenset({"simulator", "simulating"})

# What each part of the package may import of the others. A new part needs a row.
ALLOWED: Mapping[str, frozenset[str]] = {
    "types": frozenset(),
    "errors": frozenset(),
    "bounded": frozenset(),
    "outsize": frozenset(),
    **{part: VOCABULARY for part in PURE},
    "config": VOCABULARY | PURE,
    "serve": VOCABULARY | PURE | {"config"},
    **{part: VOCABULARY | PURE | SIMULATOR for part in SIMULATOR},
    "picture": VOCABULARY,
    "running": frozenset(),
    "knowing": VOCABULARY | PURE | {"config"},
    "demo": VOCABULARY | {"picture"},
    "cli": VOCABULARY | PURE | SIMULATOR | FRONT | {"config", "serve"},
}

# Where each library may be imported. A new one needs a row, and a line in pyproject.toml.
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "httpx": ("proxy.serve.upstream",),
    "redis": ("proxy.serve.cache",),
    "prometheus_client": ("proxy.serve.metrics",),
    "starlette": ("proxy.serve.app",),
    "tiktoken": ("proxy.tokens.encodings",),
    "tokenizers": ("proxy.tokens.encodings",),
    "cryptography": ("proxy.serve.shared.seals",),
    "uvicorn": ("proxy.serve.server", "proxy.serve.protocol", "proxy.serve.cycle"),
    "uvloop": ("proxy.serve.server",),
    "httptools": ("proxy.serve.connection", "proxy.serve.protocol"),
    "aiohappyeyeballs": ("proxy.serve.dialing",),
    "rich": ("proxy.demo", "proxy.knowing", "proxy.picture", "proxy.cli"),
    "xxhash": ("proxy.tokens", "proxy.wire", "proxy.serve"),
    "msgspec": ("proxy",),
    "litellm": (),  # its files are read; importing it costs seconds and 150 MiB
}
# What a pure module may not even name: the event loop, the clock, chance, the network, other processes.
IMPURE = frozenset(
    {"asyncio", "concurrent", "datetime", "http", "multiprocessing", "random", "secrets", "select", "signal", "socket"}
    | {"ssl", "subprocess", "time", "urllib", "uuid"}
)
MAY_READ_THE_ENVIRONMENT = frozenset({"proxy.cli", "proxy.demo"})  # they hand it to proxy.config.settings
CLIENTS = frozenset(LIBRARIES) - {"msgspec", "xxhash"}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def trees() -> Mapping[str, ast.Module]:
    """Every module of the package, parsed."""
    return {name_of(path): ast.parse(path.read_text("utf-8")) for path in sorted((ROOT / "proxy").rglob("*.py"))}


def imports(tree: ast.Module) -> Iterator[str]:
    """Every module that a module imports, anywhere in it; of `from a import b` both a and a.b, which may be one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, "relative imports hide where they point"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours() -> Iterator[tuple[str, str]]:
    """Every arrow between two modules of the package, by their full names."""
    for name, tree in trees().items():
        yield from ((name, found) for found in imports(tree) if found.split(".")[0] == "proxy" and "." in found)


def part(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def test_the_package_is_read() -> None:
    assert {"proxy.types", "proxy.fit.plan", "proxy.serve", "proxy.wire.endpoints.chat"} <= set(trees())
    assert ("proxy.fit.plan", "proxy.types") in set(ours())


def test_every_arrow_points_where_it_may() -> None:
    parts = {part(name) for name in trees()} - {""}
    assert parts <= set(ALLOWED), "a new part of the package needs a row in ALLOWED"
    wrong = [
        f"{name} imports {found}"
        for name, found in ours()
        if part(found) in parts and part(found) != part(name) and part(found) not in ALLOWED.get(part(name), ())
    ]
    assert wrong == []


def test_only_the_command_line_knows_the_simulator_and_the_server() -> None:
    for group in (SIMULATOR, frozenset({"serve"})):
        assert {part(n) for n, found in ours() if part(found) in group} <= {*group, "cli"}


def test_each_library_lives_where_it_may() -> None:
    wrong = []
    for name, tree in trees().items():
        for library in {found.split(".")[0] for found in imports(tree)} - {"proxy", *sys.stdlib_module_names}:
            homes = LIBRARIES.get(library, ())
            if not any(name == home or name.startswith(home + ".") for home in homes):
                wrong.append(f"{name} imports {library}")
    assert wrong == []


def test_each_library_is_one_that_we_declare() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {line.split(";")[0].split("[")[0].split(">")[0].strip() for line in project["dependencies"]}
    used = {found.split(".")[0] for tree in trees().values() for found in imports(tree)}
    used -= {"proxy", "tokenizers", *sys.stdlib_module_names}  # that comes with litellm, and its absence is told
    assert {library.replace("_", "-") for library in used} - declared == set()


def test_what_decides_counts_and_understands_does_nothing_else() -> None:
    pure = {name: tree for name, tree in trees().items() if part(name) in PURE | VOCABULARY}
    assert [
        f"{name} imports {found}"
        for name, tree in pure.items()
        for found in imports(tree)
        if found.split(".")[0] in IMPURE
    ] == []
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert [n for n, tree in pure.items() if any(isinstance(node, waiting) for node in ast.walk(tree))] == []


def test_only_the_command_line_touches_the_environment() -> None:
    reading = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb"))
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and any("env" in a.name for a in node.names))
    }
    assert reading <= MAY_READ_THE_ENVIRONMENT


def loaded(*modules: str) -> set[str]:
    """The top-level modules that a fresh process has after importing these."""
    script = f"import sys, {', '.join(modules)}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["proxy.fit.plan", "proxy.wire.endpoints.chat", "proxy.config.settings"])
def test_deciding_and_understanding_load_no_client_library(module: str) -> None:
    assert loaded(module) & CLIENTS == set()


def test_every_step_loads_no_client_library() -> None:
    steps = sorted(name for name in trees() if name.startswith("proxy.fit."))
    assert loaded(*steps) & (CLIENTS | {"asyncio"}) == set()


def test_serving_does_not_load_litellm() -> None:
    assert "litellm" not in loaded("proxy.serve.app", "proxy.cli")
