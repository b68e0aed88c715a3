"""No module of `fit` knows a JSON key of any API: the API reads and edits its own messages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FIT = Path(__file__).parents[2] / "proxy" / "fit"

# Keys of the bodies of Chat Completions, Responses and Messages, and the types and roles that stand in them.
BODY = "model messages input instructions system tools functions tool_choice stream max_tokens max_completion_tokens"
LIMITS = "max_output_tokens response_format thinking reasoning previous_response_id metadata store"
MESSAGE = (
    "role content text type name tool_calls tool_call_id function_call function arguments id call_id refusal output"
)
PARTS = "image_url input_audio input_text output_text image file data source tool_use tool_result tool_use_id is_error"
ITEMS = (
    "function_call_output custom_tool_call item_reference summary encrypted_content signature annotations cache_control"
)
ROLES = "user assistant developer tool"
KEYS = frozenset(" ".join((BODY, LIMITS, MESSAGE, PARTS, ITEMS, ROLES)).split())

# Words that are keys of an API, too, and mean something else here.
OTHERWISE = {
    ("compactions.py", "instructions"): "where a row of the rules says that a prompt stands",
    ("learn.py", "input"): "what a refusal bounds",
    ("learn.py", "refusal"): "the source of a window",
    ("learn.py", "reasoning"): "what a refusal bounds",
    ("relevance/text/dates.py", "name"): "a group of a regular expression",
    ("steps/summarise_history.py", "summary"): "a kind of want",
}


def constants(tree: ast.Module) -> Iterator[str]:
    """Every text and every bytes constant, those of f-strings included; no docstrings."""
    docstrings = set(map(id, filter(None, map(_docstring, ast.walk(tree)))))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            if isinstance(node.value, str):
                yield node.value
            elif isinstance(node.value, bytes):
                yield node.value.decode("latin-1")


def _docstring(node: ast.AST) -> ast.expr | None:
    """The constant that documents a module, a class or a function."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            return first.value
    return None


def keys_in(text: str) -> set[str]:
    """The keys that a constant is, or names in quotation marks (in JSON, or in a pattern for it)."""
    return {key for key in KEYS if text == key or f'"{key}"' in text or f"'{key}'" in text}


def test_no_constant_is_a_key() -> None:
    found = set()
    for path in sorted(FIT.rglob("*.py")):
        module = path.relative_to(FIT).as_posix()
        found |= {(module, key) for text in constants(ast.parse(path.read_text("utf-8"))) for key in keys_in(text)}
    assert found == OTHERWISE.keys()


def test_keys_are_found_in_texts_bytes_and_patterns() -> None:
    tree = ast.parse("""'''content'''\na = b'"role": 1'\nb = {"content": f"x{c}"}\nd = r'"text"\\s*:'""")
    assert set().union(*map(keys_in, constants(tree))) == {"role", "content", "text"}
