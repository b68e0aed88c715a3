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
VOCABULARY = frozenset({"model", "errors"})
PURE = frozenset({"fit", "tokens", "wire"})  # they decide, count and understand: none of them imports another
SERVING = frozenset({"http", "cache", "upstreams", "observe", "apis", "config"})

# What each part of the package may import of the others. A new part needs a row.
ALLOWED: Mapping[str, frozenset[str]] = {
    "model": frozenset(),
    "errors": frozenset(),
    **{part: VOCABULARY for part in PURE},
    "apis": VOCABULARY | {"wire"},
    "config": VOCABULARY | PURE | {"apis"},
    "http": frozenset({"errors", "wire"}),
    "cache": VOCABULARY,
    "upstreams": VOCABULARY | {"http", "apis", "config", "wire"},
    "observe": VOCABULARY | {"apis", "config", "fit", "wire"},
    "request": VOCABULARY | PURE | SERVING,
    "admin": VOCABULARY | PURE | SERVING | {"request"},
    "services": VOCABULARY | PURE | SERVING | {"request", "admin"},
    "app": VOCABULARY | PURE | SERVING | {"request", "admin", "services"},
    "bootstrap": VOCABULARY | PURE | SERVING | {"request", "services", "app"},
    "simulator": frozenset({"errors", "tokens"}),
    "replay": VOCABULARY | PURE | SERVING | {"request", "services"},
    "cli": VOCABULARY | PURE | SERVING | {"request", "services", "bootstrap", "simulator", "replay"},
}
# Imports that the table forbids and that are still there; nothing may be added.
NOT_YET: Mapping[str, frozenset[str]] = {}

# Where each library may be imported. A new one needs a row, and a line in pyproject.toml.
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "httpx": ("proxy.upstreams.upstream",),
    "redis": ("proxy.cache.redis",),
    "prometheus_client": ("proxy.observe.metrics.text_formats",),
    "starlette": ("proxy.app",),
    "tiktoken": ("proxy.tokens.encodings",),
    "tokenizers": ("proxy.tokens.encodings",),
    "cryptography": ("proxy.cache.sealing",),
    "uvloop": ("proxy.http.server.serve",),
    "httptools": ("proxy.http.client.connection", "proxy.http.server.protocol", "proxy.http.server.request_head"),
    "aiohappyeyeballs": ("proxy.http.client.dialer",),
    "rich": ("proxy.cli",),
    "isal": ("proxy.observe.recording.recording_files",),
    "xxhash": ("proxy.tokens", "proxy.wire", "proxy.request", "proxy.cache", "proxy.observe", "proxy.replay"),
    "msgspec": ("proxy",),
    "litellm": ("proxy.upstreams.litellm",),  # lazily, for rows that need it: it costs seconds and 150 MiB
}
# What a pure module may not even name: the event loop, the clock, chance, the network, other processes.
IMPURE = frozenset(
    {"asyncio", "concurrent", "datetime", "http", "multiprocessing", "random", "secrets", "select", "signal", "socket"}
    | {"ssl", "subprocess", "time", "urllib", "uuid"}
)
# They hand it to proxy.config.settings; litellm reads some of its settings there when it is imported.
MAY_READ_THE_ENVIRONMENT = frozenset(
    {"proxy.cli.arguments", "proxy.cli.demo", "proxy.cli.run", "proxy.upstreams.litellm"}
)
CLIENTS = frozenset(LIBRARIES) - {"msgspec", "xxhash"}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def sources() -> Mapping[str, str]:
    """The text of every module of the package."""
    return {name_of(path): path.read_text("utf-8") for path in sorted((ROOT / "proxy").rglob("*.py"))}


@cache
def trees() -> Mapping[str, ast.Module]:
    """Every module of the package, parsed."""
    return {name: ast.parse(source) for name, source in sources().items()}


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
    assert {"proxy.model.plan", "proxy.fit.plan", "proxy.request", "proxy.apis.openai_chat.request"} <= set(trees())
    assert ("proxy.fit.plan", "proxy.model.plan") in set(ours())


def test_every_arrow_points_where_it_may() -> None:
    parts = {part(name) for name in trees()} - {""}
    assert parts <= set(ALLOWED), "a new part of the package needs a row in ALLOWED"
    wrong: dict[str, set[str]] = {}
    for name, found in ours():
        if part(found) in parts and part(found) not in {part(name), *ALLOWED.get(part(name), ())}:
            wrong.setdefault(name, set()).add(part(found))
    assert wrong == NOT_YET


def test_no_modules_import_one_another_in_a_circle() -> None:
    arrows: dict[str, set[str]] = {name: set() for name in trees()}
    for name, target in ours():
        if target in arrows and target != name:
            arrows[name].add(target)
    for name, found in arrows.items():  # of `from a import b`, where b is a module, a itself is not meant
        arrows[name] = {one for one in found if not any(other.startswith(f"{one}.") for other in found)}
    while leaves := {name for name, found in arrows.items() if not found}:
        arrows = {name: found - leaves for name, found in arrows.items() if name not in leaves}
    assert not arrows, "these modules stand in circles, or import one that does"


def test_an_api_imports_no_other_api() -> None:
    for name, found in ours():
        other = ".".join(found.split(".")[:3])
        if part(name) == "apis" == part(found) and other in trees() and other != "proxy.apis":
            assert name.split(".")[:3] == other.split(".")


def test_metrics_traces_and_recordings_do_not_know_one_another() -> None:
    houses = {"metrics", "tracing", "recording"}
    for name, found in ours():
        home, target = name.split(".")[2:3], found.split(".")[2:3]
        if part(name) == "observe" == part(found) and home and target and {*home, *target} <= houses:
            assert home == target, (name, found)


def test_only_the_command_line_knows_the_simulator() -> None:
    assert {part(n) for n, found in ours() if part(found) == "simulator"} <= {"simulator", "cli"}


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
    pure = {name: tree for name, tree in trees().items() if part(name) in PURE | VOCABULARY | {"apis"}}
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


@pytest.mark.parametrize("module", ["proxy.fit.plan", "proxy.apis.openai_chat.request", "proxy.config.settings"])
def test_deciding_and_understanding_load_no_client_library(module: str) -> None:
    assert loaded(module) & CLIENTS == set()


def test_every_step_loads_no_client_library() -> None:
    steps = sorted(name for name in trees() if name.startswith("proxy.fit."))
    assert loaded(*steps) & (CLIENTS | {"asyncio"}) == set()


def test_serving_does_not_load_litellm() -> None:
    assert "litellm" not in loaded("proxy.app", "proxy.cli.main")
