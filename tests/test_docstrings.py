"""Every public module, class and function of the package has a docstring (section 11, rule 7)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "proxy"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def documented_by_protocols(module: ast.Module) -> frozenset[str]:
    """The methods that the module's protocols document: an implementation need not repeat it."""
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    protocols = [node for node in classes if any(ast.unparse(base) == "Protocol" for base in node.bases)]
    return frozenset(child.name for node in protocols for child in node.body if isinstance(child, FUNCTIONS))


def undocumented(node: ast.Module | ast.ClassDef, name: str, inherited: frozenset[str]) -> Iterator[str]:
    """The module or class and its public definitions, as far as they have no docstring."""
    if ast.get_docstring(node) is None:
        yield name
    for child in node.body:
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from undocumented(child, f"{name}.{child.name}", inherited)
        elif isinstance(child, FUNCTIONS) and not child.name.startswith("_") and child.name not in inherited:
            if ast.get_docstring(child) is None:
                yield f"{name}.{child.name}"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_public_name_is_documented(path: Path) -> None:
    module = ast.parse(path.read_text("utf-8"))
    assert list(undocumented(module, path.stem, documented_by_protocols(module))) == []
