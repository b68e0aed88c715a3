"""The shape of the package's modules: one subject each, none too long to be read, each with a test file of its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "proxy"
MOST_LINES, MOST_OF_A_FUNCTION = 400, 60
# Modules that are longer, and why: no more may be added, and none may grow beyond these lines.
LONG: Mapping[str, tuple[int, str]] = {
    "http/server/protocol.py": (500, "four state machines of one connection, which share its attributes"),
    "cache/model_records.py": (450, "one class whose records are read and written together"),
    "fit/steps/prune_history.py": (470, "not yet divided"),
    "http/memory_budget.py": (480, "not yet divided"),
    "observe/metrics/outcome_metrics.py": (450, "a table of metrics"),
    "request/facts.py": (440, "not yet divided"),
    "tokens/meter.py": (450, "not yet divided"),
    "tokens/openai_responses.py": (422, "the recipe of one API"),
}
LONG_FUNCTIONS: Mapping[str, str] = {
    "request/figures.py:_figures": "one call that names all fields of an outcome",
}
# Modules without a test file of their name, where their tests stand, and why there.
UNTESTED: Mapping[str, tuple[str, str]] = {
    "admin/local.py": ("admin/test_page.py", "the page's answers, asked as a browser asks them"),
    "apis/anthropic_messages/server.py": ("config/test_models_list.py", "facts of a server, used by lists of models"),
    "cli/__main__.py": ("cli/test_main.py", "two lines, which every test of the command line runs"),
    "model/api.py": ("apis/openai_chat/test_request.py", "a value of functions, which each API's tests call"),
    "model/outcome.py": ("observe/metrics/test_outcome_metrics.py", "values without a method"),
    "model/ports.py": ("tokens/test_meter.py", "protocols: they execute nothing"),
    "model/server.py": ("config/test_models_list.py", "values of functions, which each server's facts fill"),
    "model/trace.py": ("observe/tracing/test_spans.py", "values without a method"),
    "observe/metrics/groups.py": ("observe/metrics/test_aggregation.py", "values, which the aggregation makes"),
    "observe/recording/recorded_lines.py": ("observe/recording/test_recorder.py", "lines are read back from files"),
    "replay/recorded.py": ("replay/test_files.py", "values that readers make"),
    "request/attempts.py": ("request/test_gateway.py", "a stage of one request"),
    "request/backend.py": ("request/test_backends.py", "a value of parts that are tested alone"),
    "request/descents.py": ("request/test_prepare.py", "a stage of one request"),
    "request/resolved.py": ("request/test_facts.py", "values that are looked up"),
    "request/scanning.py": ("request/test_prepare.py", "a stage of one request"),
    "request/totals.py": ("request/test_planning.py", "a stage of one request"),
    "request/unmoved.py": ("request/test_moves.py", "reasons of requests that are not moved"),
    "wire/ollama/server.py": ("config/test_models_list.py", "facts of a server, used by lists of models"),
    "wire/openai/server.py": ("config/test_models_list.py", "facts of a server, used by lists of models"),
    "wire/key_texts.py": ("wire/test_keys.py", "keys in texts, found with all other ways"),
}


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"]


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def mirror_of(path: Path) -> Path:
    """The test file of a module."""
    return ROOT / "tests" / path.relative_to(PACKAGE).parent / f"test_{path.name}"


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Each function and its lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_is_short_enough_to_be_read(path: Path) -> None:
    source = path.read_text("utf-8")
    most, _ = LONG.get(name_of(path), (MOST_LINES, ""))
    assert len(source.splitlines()) <= most
    long = [f"{name_of(path)}:{name}" for name, lines in functions(source) if lines > MOST_OF_A_FUNCTION]
    assert [one for one in long if one not in LONG_FUNCTIONS] == []


def has_tests(path: Path) -> bool:
    return path.exists() and any(name.startswith("test_") for name, _ in functions(path.read_text("utf-8")))


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_has_a_test_file_of_its_name_with_tests(path: Path) -> None:
    elsewhere = UNTESTED.get(name_of(path))
    assert has_tests(mirror_of(path) if elsewhere is None else ROOT / "tests" / elsewhere[0])


def test_every_exception_is_still_one() -> None:
    for name in LONG:
        assert len((PACKAGE / name).read_text("utf-8").splitlines()) > MOST_LINES, name
    for name in LONG_FUNCTIONS:
        module, _, function = name.partition(":")
        assert dict(functions((PACKAGE / module).read_text("utf-8")))[function] > MOST_OF_A_FUNCTION, name
    for name in UNTESTED:
        assert (PACKAGE / name).exists() and not mirror_of(PACKAGE / name).exists(), name


def test_lines_are_counted_from_the_def_to_the_last_statement() -> None:
    assert list(functions("class A:\n    async def f(self):\n        a = 1\n\n        return a\n")) == [("f", 4)]
