"""Only the gateway binds a request's stages: what the syntax trees of `proxy/request` assign."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import proxy.request
from proxy.request.context import RequestContext

FOLDER = Path(proxy.request.__file__).parent
STAGES = frozenset({"received", "scanned", "counted", "planned", "answered", "home", "asked", "counting"})
GATEWAY = "gateway.py"


def bound(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The lines that assign to an attribute with the name of a stage, however they do."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) and node.attr in STAGES:
            yield node.lineno, node.attr
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("setattr", "__setattr__", "force_setattr"):
                found = [one.value for one in node.args if isinstance(one, ast.Constant)]
                yield from ((node.lineno, str(one)) for one in found if one in STAGES)
                if not found:
                    yield node.lineno, "a name that is not written down"


def modules() -> list[Path]:
    """The modules of the package."""
    return sorted(FOLDER.rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(FOLDER)))
def test_only_the_gateway_binds_a_stage(path: Path) -> None:
    found = list(bound(ast.parse(path.read_text("utf-8"))))
    assert bool(found) is (path.name == GATEWAY), f"{path.name} assigns {found}"


@pytest.mark.parametrize(
    "code",
    [
        "context.planned = made",
        "context.planned, rest = made",
        "for context.scanned in made: pass",
        "context.planned += made",
        "context.counted: object = made",
        "del context.answered",
        "with made as context.received: pass",
        "setattr(context, 'planned', made)",
        "setattr(context, name, made)",
        "object.__setattr__(context, 'counted', made)",
        "msgspec.structs.force_setattr(planned, 'scanned', made)",
    ],
)
def test_every_way_to_bind_one_is_seen(code: str) -> None:
    assert list(bound(ast.parse(code)))


@pytest.mark.parametrize("code", ["planned = made", "replace(planned, counted=made)", "context.record.result = ''"])
def test_a_name_of_a_functions_own_and_a_copy_are_no_binding(code: str) -> None:
    assert not list(bound(ast.parse(code)))


def test_what_a_request_holds_besides_its_stages_is_no_decision() -> None:
    assert set(RequestContext.__struct_fields__) - STAGES == {"record", "room", "figures", "keeping", "hold"}
