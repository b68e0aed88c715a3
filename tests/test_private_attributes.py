"""No module uses a private attribute of a library, or of another class of ours: found in the syntax trees."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache

import pytest

from tests.test_imports import sources, trees

# Documented in spite of the underscore: namedtuple's methods, and the one way to leave a forked process at once.
DOCUMENTED = frozenset({"_replace", "_make", "_fields", "_asdict"})
FUNCTIONS = frozenset({"os._exit"})
BY_NAME = frozenset({"getattr", "setattr", "hasattr", "delattr", "attrgetter", "methodcaller"})
OWN = frozenset({"self", "cls"})


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name != "_"


def classes_of(tree: ast.AST) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def typed_as(owner: ast.ClassDef | None, classes: dict[str, ast.ClassDef]) -> dict[str, str]:
    """The attributes of a class that it declares to be instances of classes in the same module."""
    return {
        node.target.id: node.annotation.id
        for node in (owner.body if owner else ())
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.annotation, ast.Name)
        if node.annotation.id in classes
    }


def without_annotations(tree: ast.Module) -> ast.Module:
    """The tree without what only a type checker reads."""

    class Strip(ast.NodeTransformer):
        def visit_arg(self, node: ast.arg) -> ast.arg:
            node.annotation = None
            return node

        def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
            if node.value is None:
                return ast.Pass()
            return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))  # type: ignore[no-any-return]

    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
    return Strip().visit(tree)  # type: ignore[no-any-return]


def accesses(source: str) -> Iterator[str]:
    """Private attributes that a module takes from anything but its own classes."""
    whole = ast.parse(source)
    classes = classes_of(whole)
    declared = {name: typed_as(node, classes) for name, node in classes.items()}
    stack: list[tuple[ast.AST, str]] = [(without_annotations(whole), "")]
    while stack:
        node, owner = stack.pop()
        owner = node.name if isinstance(node, ast.ClassDef) else owner
        stack += [(child, owner) for child in ast.iter_child_nodes(node)]
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node, declared.get(owner, {})):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and called(node.func) in BY_NAME:
            names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            yield from (ast.unparse(node) for name in names if any(map(is_private, name.split("."))))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            if not modules[0].startswith("proxy."):
                yield from (ast.unparse(node) for name in modules if any(map(is_private, name.split("."))))


def called(function: ast.expr) -> str:
    """The last name of what is called; "" if it has none."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def is_of_itself(node: ast.AST) -> bool:
    """Whether it is an attribute of `self` or `cls`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in OWN


def is_own(node: ast.Attribute, declared: dict[str, str]) -> bool:
    text, value = ast.unparse(node), node.value
    if text in FUNCTIONS or node.attr in DOCUMENTED:
        return True
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "self":
        return value.attr in declared
    return is_of_itself(node)


@cache
def private_of(foreign: type) -> set[str]:
    """The private attributes of a class that is not ours: what it has, and what its source assigns to `self`."""
    found = set(dir(foreign))
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(foreign)))
    except (OSError, TypeError):  # written in C: what `dir` shows is all that Python can reach
        return set(filter(is_private, found))
    found |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and is_of_itself(n)}
    return set(filter(is_private, found))


def inherited(name: str) -> Iterator[str]:
    """Private attributes of foreign base classes that the classes of a module read or override."""
    module = importlib.import_module(name)
    for made in [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == name]:
        foreign = [base for base in made.__mro__ if base.__module__.partition(".")[0] not in ("proxy", "builtins")]
        private = set().union(*map(private_of, foreign)) - DOCUMENTED
        tree = classes_of(trees()[name]).get(made.__name__)
        if private and tree is not None:
            used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and is_of_itself(n)}
            used |= {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
            yield from (f"{made.__name__}.{attribute}" for attribute in sorted(used & private))


@pytest.mark.parametrize("name", [name for name in sources() if name != "proxy.cli.__main__"])
def test_no_module_uses_what_is_private_to_others(name: str) -> None:
    assert list(accesses(sources()[name])) == []
    assert list(inherited(name)) == []


@pytest.mark.parametrize(
    "source",
    [
        "child = histogram.labels('a')\nchild._sum.inc(1)",
        "class Own:\n    _sum = 1\n    def use(self, other):\n        return other._sum",
        "class Own:\n    def use(self):\n        return self.transport._loop",
        "class Own:\n    def use(self):\n        return super()._set()",
        "getattr(server, '_captured_signals')",
        "operator.attrgetter('parser._state')(protocol)",
        "from uvicorn._types import Scope",
        "import uvicorn._compat",
        "from prometheus_client.values import _Value",
    ],
)
def test_a_private_attribute_is_found_however_it_is_written(source: str) -> None:
    assert list(accesses(source))


@pytest.mark.parametrize(
    "source",
    [
        "class Own:\n    def __init__(self):\n        self._sum = 1",
        "class Own:\n    other: Own\n    def use(self):\n        return self.other._sum",
        "row._replace(a=1)",
        "def inflate(stream: zlib._Decompress) -> None: ...",
        "from proxy.model._x import y",
    ],
)
def test_what_is_ones_own_or_documented_is_not(source: str) -> None:
    assert not list(accesses(source))


def test_what_a_foreign_base_class_keeps_for_itself_is_known() -> None:
    import uvloop
    from prometheus_client import Histogram

    assert {"_sum", "_buckets"} <= private_of(Histogram)
    assert private_of(uvloop.Loop)
