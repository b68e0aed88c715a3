"""The JSON keys of an API are in its own package (and its recipe in tokens/), and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proxy.apis.openai_chat import response, scan
from proxy.apis.openai_responses import items
from proxy.wire.openai import choices

ROOT = Path(__file__).parents[2]
PACKAGES = ("wire", "request", "http", "observe", "upstreams")
# What OpenAI's APIs have in common, and what Ollama's have.
SHARED = {ROOT / "proxy" / "wire" / name for name in ("openai", "ollama")}

# Keys that every JSON API has, or that are ordinary words: they show nothing.
ORDINARY = frozenset({"model", "name", "n", "error", "object", "stream", "plimsoll"})
# Keys of chat's requests and responses that the typed structs of its package do not name.
MORE = frozenset(
    (
        *("assistant", "system", "developer", "tool", "arguments", "image_url", "input_audio", "stream_options"),
        *("text", "thinking", "reasoning_content", "stop_reason", "logprobs", "budget_tokens", "[DONE]"),
        *("input_tokens", "output_tokens", "completion_tokens_details", "max_output_tokens", "prompt_cache_hit_tokens"),
    )
)

# Strings that are the same as a key and are none, with the reason; nothing may be added without one.
ALLOWED = {
    ("wire", "messages"): "a key of /inspect, and what error bodies repeat the request under",
    ("wire", "refusal"): "a table in rules/refusals.toml",
    ("wire", "reasoning"): "what a row of rules/refusals.toml bounds",
    ("wire", "tools"): "a part of the request in /inspect",
    ("wire", "system"): "a part of the request in /inspect",
    ("wire", "role"): "a key of the page's rows",
    ("wire", "text"): "a key of the page's texts",
    ("request", "role"): "a key of the page's texts",
    ("observe", "messages"): "a figure of the page's list of requests",
    ("observe", "text"): "a format of the log",
    ("observe", "usage"): "a value of a metric's label",
    ("observe", "cost"): "a figure of the page's periods",
    ("observe", "output"): "a value of a metric's label",
}


# Types of items, and keys of requests and responses of the Responses API that are no ordinary words.
ITEMS = frozenset(
    (
        *(*items.CALLS, *items.OUTPUTS, *items.HOSTED, *items.REQUIRED, items.REFERENCE, items.COMPACTION),
        *("instructions", "call_id", "approval_request_id", "encrypted_content", "previous_response_id"),
        *("max_output_tokens", "context_management", "incomplete_details", "sequence_number", "input_text"),
    )
) - {"program", "compaction"}


def keys() -> frozenset[str]:
    """The fields of the structs into which chat's JSON is decoded, and the others that its package reads or writes."""
    structs = [
        value
        for module in (scan, response, choices)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__
    ]
    fields = {field for struct in structs for field in struct.__struct_fields__}
    return frozenset(fields | {*choices.CONTENT_KEYS, *choices.FINISH_KEYS} | MORE | ITEMS) - ORDINARY


def literals(tree: ast.Module) -> Iterator[str]:
    """Every string and bytes literal that is no docstring, without quotation marks around it."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, owners)]
    docstrings = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in docstrings:
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            yield text.strip('"')


def found() -> set[tuple[str, str]]:
    """The packages in which there are literals that equal a key, with the key."""
    here = keys()
    return {
        (package, text)
        for package in PACKAGES
        for path in (ROOT / "proxy" / package).rglob("*.py")
        if SHARED.isdisjoint(path.parents)
        for text in literals(ast.parse(path.read_text("utf-8")))
        if text in here
    }


def test_the_keys_are_known() -> None:
    assert {"messages", "choices", "tool_calls", "usage", "finish_reason", "max_tokens", "delta", "content"} <= keys()


def test_no_key_of_chat_is_outside_its_api() -> None:
    assert found() - set(ALLOWED) == set()


def test_every_exception_is_still_needed() -> None:
    assert set(ALLOWED) - found() == set()


def test_a_literal_is_found_wherever_it_is() -> None:
    tree = ast.parse('"""usage"""\nx = {b\'"usage"\': f(["choices"])}\ndef g():\n    """delta"""\n    return "tools"')
    assert sorted(literals(tree)) == ["choices", "tools", "usage"]
