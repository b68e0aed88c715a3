"""The items of a request of the Responses API: their types, what each requires, which of them belong together.

The ids of one response's items share a stem: rs_<stem>_0, fc_<stem>_1. A stem that ends with "r" is of a response that
reasoned: its other items require the reasoning. It checks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.simulator.check import Body
from proxy.simulator.json import Json

# The types of items, with the fields that each requires.
ITEMS: Mapping[str, tuple[str, ...]] = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id", "output"),
    "local_shell_call": ("id", "call_id", "action", "status"),
    "local_shell_call_output": ("output",),
    "shell_call": ("call_id", "action"),
    "shell_call_output": ("call_id", "output"),
    "apply_patch_call": ("call_id", "operation", "status"),
    "apply_patch_call_output": ("call_id", "status"),
    "computer_call": ("id", "call_id", "pending_safety_checks", "status"),
    "computer_call_output": ("call_id", "output"),
    "tool_search_call": ("arguments",),
    "tool_search_output": ("tools",),
    "additional_tools": ("tools", "role"),
    "program": ("id", "call_id", "code", "fingerprint"),
    "program_output": ("id", "call_id", "result", "status"),
    "reasoning": ("summary",),
    "compaction": ("encrypted_content",),
    "compaction_trigger": (),
    "item_reference": ("id",),
    "file_search_call": ("id", "queries", "status"),
    "web_search_call": ("id", "status"),
    "code_interpreter_call": ("id", "status"),
    "image_generation_call": ("id", "result", "status"),
    "mcp_call": ("id", "server_label", "name", "arguments"),
    "mcp_list_tools": ("id", "server_label", "tools"),
    "mcp_approval_request": ("id", "server_label", "name", "arguments"),
    "mcp_approval_response": ("approval_request_id", "approve"),
    "configuration_update": (),
}
# Calls, with the types of their outputs and their names in error messages.
PAIRS = {
    "function_call": ("function_call_output", "function call"),
    "custom_tool_call": ("custom_tool_call_output", "custom tool call"),
    "local_shell_call": ("local_shell_call_output", "local shell call"),
    "shell_call": ("shell_call_output", "shell call"),
    "apply_patch_call": ("apply_patch_call_output", "apply patch call"),
    "computer_call": ("computer_call_output", "computer call"),
    "program": ("program_output", "program"),
}
OUTPUTS = {output: (call, name) for call, (output, name) in PAIRS.items()}
STEM = re.compile(r"[a-z]+_(\w+r)_\d+")
OWN_ID = re.compile(r"(fc|rs|msg)_(\w+)_(\d+)")  # of an item that the simulator made
REFERRED = {"fc": "function_call", "rs": "reasoning", "msg": "message"}

Item = tuple[int, str, Mapping[str, Any]]  # its place, its type, its fields


def items_of(body: Body) -> list[Item]:
    """The items of a request's input; a text is one message of the user."""
    given = body.get("input")
    found = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    return [(i, type_of(item), item) for i, item in enumerate(found)]


def type_of(item: Mapping[str, Any]) -> str:
    """An item's type; messages and references may leave it out."""
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


def resolved(body: Body) -> list[Item]:
    """The items of a request's input; those that the simulator made stand for the references to them, without their
    texts."""
    return [_resolved(place, kind, item) for place, kind, item in items_of(body)]


def _resolved(place: int, kind: str, item: Mapping[str, Any]) -> Item:
    found = OWN_ID.fullmatch(str(item.get("id") or "")) if kind == "item_reference" else None
    if found is None:
        return place, kind, item
    stands_for: dict[str, Any] = {"type": REFERRED[found[1]], "id": item["id"]}
    if found[1] == "fc":
        stands_for["call_id"] = f"call_{found[2]}{found[3]}"
    return place, REFERRED[found[1]], stands_for


def stem_of(item: Mapping[str, Any]) -> str:
    """The stem of an item's id if the response that it comes from reasoned; empty otherwise."""
    found = STEM.fullmatch(str(item.get("id") or ""))
    return found[1] if found and item.get("type") != "item_reference" else ""


def listed(value: Json) -> Iterator[Mapping[str, Any]]:
    """The objects of a list; none where it is no list."""
    return (one for one in (value if isinstance(value, list) else ()) if isinstance(one, dict))
