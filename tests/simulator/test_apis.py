"""The simulator's packages: one for each API, none knows another, and what they share knows none of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.simulator import apis
from tests.test_imports import imports, name_of, trees

ROOT = Path(__file__).parents[2]
HERE = "proxy.simulator"
PACKAGES = sorted(path.parent.name for path in (ROOT / "proxy/simulator").glob("*/__init__.py"))
SHARED = sorted(name for name in trees() if name.startswith(f"{HERE}.") and name.split(".")[2] not in PACKAGES)
PATHS = (
    *("/v1/chat/completions", "/openai/v1/chat/completions", "/tokenize", "/apply-template"),
    *("/v1/completions", "/openai/v1/completions", "/v1/embeddings", "/openai/v1/embeddings"),
    *("/v1/responses", "/openai/responses/compact", "/openai/v1/responses/input_tokens"),
    *("/v1/messages", "/v1/messages/count_tokens", "/v1beta/models/gemini-2.5-pro:countTokens"),
    *("/api/chat", "/api/ps", "/api/generate", "/api/embed", "/rerank", "/v1/rerank", "/v2/rerank"),
    *("/v1/models", "/v1/models/m", "/v1/models/a/b"),
)


def owner(name: str) -> str:
    """The package of an API that a module belongs to; empty for what they share."""
    part = name.split(".")[2] if name.startswith(f"{HERE}.") else ""
    return part if part in PACKAGES else ""


def conditions(tree: ast.AST) -> Iterator[ast.expr]:
    """What a module decides by."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            yield node.test
        elif isinstance(node, ast.Compare):
            yield node
        elif isinstance(node, ast.Match):
            yield node.subject
            yield from (case.pattern.value for case in node.cases if isinstance(case.pattern, ast.MatchValue))
        elif isinstance(node, ast.comprehension):
            yield from node.ifs


def words(tree: ast.AST) -> Iterator[str]:
    """Every name and text in a tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        yield from (n for key in ("id", "attr") if isinstance(n := getattr(node, key, None), str))


def test_every_package_is_an_api_and_is_found() -> None:
    assert len(apis()) == len(PACKAGES) == len(set(map(id, apis())))
    assert {api.answer.__module__.split(".")[2] for api in apis()} == set(PACKAGES)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_served_by_one_api(path: str) -> None:
    assert sum(api.serves(path) for api in apis()) == 1


def test_no_two_apis_are_deployed_at_one_path() -> None:
    deployed = [api.deployed for api in apis() if api.deployed]
    assert deployed and len(deployed) == len(set(deployed))


def test_no_package_imports_another_and_what_they_share_imports_none() -> None:
    arrows = [(name, found) for name, tree in trees().items() if name.startswith(HERE) for found in imports(tree)]
    assert [(name, found) for name, found in arrows if owner(found) not in ("", owner(name))] == []
    assert any(owner(found) for _, found in arrows)


@pytest.mark.parametrize("name", SHARED)
def test_nothing_shared_names_an_api_in_a_condition(name: str) -> None:
    own = {path for path in PATHS if path.count("/") > 1} | set(PACKAGES)
    found = {word for condition in conditions(trees()[name]) for word in words(condition)}
    assert not found & own
    assert not {word for word in found for package in PACKAGES if word.lower().startswith(f"{package}_")}


def test_every_module_has_its_test() -> None:
    modules = [path for path in (ROOT / "proxy/simulator").rglob("*.py") if path.name != "__init__.py"]
    lost = [name_of(path) for path in modules if not _test_of(path).exists()]
    assert modules and not lost


def _test_of(module: Path) -> Path:
    below = module.relative_to(ROOT / "proxy")
    return ROOT / "tests" / below.parent / f"test_{below.name}"
