"""Definitions of tools are read in the forms in which clients and servers write them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.tool_lists import definitions

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
WANTED = [{"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": SCHEMA}}]
OWN = {"name": "read", "description": "Reads."}


@pytest.mark.parametrize(
    "given",
    [
        WANTED,
        [{"type": "function", **OWN, "parameters": SCHEMA}, {"type": "web_search"}],
        [{**OWN, "input_schema": SCHEMA}],
        {"tools": [{**OWN, "input_schema": SCHEMA}]},
        {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{**OWN, "inputSchema": SCHEMA}]}},
        [{"type": "namespace", "name": "files", "tools": [{"type": "function", **OWN, "parameters": SCHEMA}]}],
    ],
)
def test_any_form_becomes_the_same_definition(given: Any) -> None:
    assert definitions(given) == WANTED
