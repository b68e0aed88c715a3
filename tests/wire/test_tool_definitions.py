"""The tools of a request, as each API defines them: their descriptions, and the same with others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.anthropic_messages import request as messages
from proxy.apis.ollama import request as ollama
from proxy.apis.openai_chat import request as chat
from proxy.apis.openai_responses import request as responses
from proxy.model.conversation import Prompt
from proxy.wire import tool_definitions
from proxy.wire.tool_definitions import DEEPEST, DeclaredTools, declared

SCHEMA = {
    "type": "object",
    "description": "of the whole",
    "required": ["path"],
    "properties": {
        "path": {"type": "string", "description": "of the path", "default": {"description": "a value"}},
        "description": {"type": "string", "enum": ["description"], "description": "of an argument of that name"},
        "tags": {"type": "array", "items": {"anyOf": [{"description": "of one"}, {"const": {"description": "no"}}]}},
        "more": {"$ref": "#/$defs/more"},
    },
    "$defs": {"more": {"type": "object", "additionalProperties": {"description": "of others"}}},
}
NAMES = ("path", "description", "tags", "more")
TEXTS = ["of the whole", "of the path", "of an argument of that name", "of one", "of others"]
FUNCTION = {"name": "read", "description": "Reads.", "parameters": SCHEMA}
SAID = {"messages": [{"role": "user", "content": "hi"}]}
APIS: list[tuple[Any, dict[str, Any]]] = [
    (chat, SAID | {"tools": [{"type": "function", "function": FUNCTION}]}),
    (chat, SAID | {"functions": [FUNCTION]}),
    (responses, {"input": "hi", "tools": [{"type": "function", **FUNCTION}]}),
    (
        responses,
        {"input": "hi", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", **FUNCTION}]}]},
    ),
    (messages, SAID | {"max_tokens": 9, "tools": [{"name": "read", "description": "Reads.", "input_schema": SCHEMA}]}),
    (ollama, SAID | {"tools": [{"type": "function", "function": FUNCTION}]}),
]
every_api = pytest.mark.parametrize(("api", "body"), APIS)


def parsed(api: Any, body: dict[str, Any]) -> Prompt:
    found: Prompt = api.parse(json.dumps({"model": "m", **body}).encode())
    return found


def fields(tools: Any) -> Any:
    return {key: json.loads(raw) for key, raw in tools.fields.items()}


@every_api
def test_every_api_names_its_tools_and_their_descriptions(api: Any, body: dict[str, Any]) -> None:
    (tool,) = parsed(api, body).definitions.read()
    assert tool.name == "read" and not tool.deferred and not tool.marked
    assert [d.text for d in tool.descriptions if d.own] == ["Reads."]
    assert [d.text for d in tool.descriptions if not d.own] == TEXTS


@every_api
def test_a_description_is_changed_or_left_out_and_nothing_else(api: Any, body: dict[str, Any]) -> None:
    tools = parsed(api, body).definitions
    (tool,) = tools.read()
    first, whole, *_ = tool.descriptions
    made = tools.edited({first.place: "R é \U0001f600", whole.place: None})
    assert made.changed and not tools.changed
    before, after = json.dumps(fields(tools)), json.dumps(fields(made))
    assert after == before.replace('"Reads."', json.dumps("R é \U0001f600")).replace(
        ' "description": "of the whole",', ""
    )


def test_only_the_tools_that_the_client_defines_are_read() -> None:
    body = {
        "tools": [
            {"type": "web_search_20250305", "name": "web_search", "description": "x"},
            {"type": "custom", "name": "b"},
        ]
    }
    assert [t.name for t in parsed(messages, SAID | {"max_tokens": 9} | body).definitions.read()] == ["b"]
    listed = [{"type": "mcp", "server_description": "x"}, {"type": "custom", "name": "patch", "description": "Edits."}]
    assert [t.name for t in parsed(responses, {"input": "hi", "tools": listed}).definitions.read()] == ["patch"]


def test_deferred_and_marked_tools_are_known() -> None:
    tools = [
        {"name": "a", "input_schema": {}, "defer_loading": True},
        {"name": "b", "input_schema": {}, "cache_control": {"type": "ephemeral"}},
    ]
    found = parsed(messages, SAID | {"max_tokens": 9, "tools": tools}).definitions.read()
    assert [(t.deferred, t.marked) for t in found] == [(True, False), (False, True)]
    inner = [{"type": "function", "name": "c"}, {"type": "function", "name": "d", "defer_loading": True}]
    spaces = [{"type": "namespace", "name": "n", "tools": inner}]
    assert [t.deferred for t in parsed(responses, {"input": "hi", "tools": spaces}).definitions.read()] == [False, True]


def test_names_in_the_tool_choice_are_known() -> None:
    choice = {"type": "allowed_tools", "tools": [{"type": "function", "name": "read"}]}
    assert "read" in parsed(chat, SAID | {"tools": [], "tool_choice": choice}).definitions.chosen()
    assert (
        "read" in parsed(chat, SAID | {"functions": [FUNCTION], "function_call": {"name": "read"}}).definitions.chosen()
    )
    assert declared({"tool_choice": b"["}, ("tools",), "parameters", choices=("tool_choice",)).chosen() == ()


def test_tools_are_left_out_whole_and_the_others_keep_their_bytes() -> None:
    raw = b'[{"name": "a" ,"x":1.50}, {"name":"b"}, 7, {"name":  "c","description":"d"}]'
    tools = DeclaredTools({"tools": raw}, "parameters")
    made = tools.edited({("tools", 3, "description"): "e"}, [("tools", 1)])
    assert made.fields["tools"] == b'[{"name": "a" ,"x":1.50},7,{"name":"c","description":"e"}]'


@pytest.mark.parametrize(
    "raw", [b"7", b"{}", b"[7]", b"[", b'[{"name":7,"description":8}]', b'[{"parameters":"x"}]', b"null"]
)
def test_tools_of_another_shape_have_no_descriptions(raw: bytes) -> None:
    assert not [d for t in DeclaredTools({"tools": raw}, "parameters").read() for d in t.descriptions]


def test_what_nests_too_deep_is_left_alone() -> None:
    schema: Any = {"description": "deepest"}
    for _ in range(DEEPEST):
        schema = {"items": schema}
    tools = DeclaredTools({"tools": json.dumps([{"name": "a", "parameters": schema}]).encode()}, "parameters")
    assert [t.descriptions for t in tools.read()] == [()]
    broken = b'[{"name":"a","parameters":' + b'{"items":' * 100_000 + b"}" * 100_000 + b"}]"
    assert DeclaredTools({"tools": broken}, "parameters").read() == ()


def test_a_body_without_tools_reads_nothing() -> None:
    assert not parsed(chat, SAID).definitions.fields and not parsed(chat, SAID | {"tools": None}).definitions.fields


@every_api
def test_every_api_names_the_arguments_of_its_tools(api: Any, body: dict[str, Any]) -> None:
    assert parsed(api, body).definitions.arguments() == {"read": NAMES}


def test_arguments_are_read_when_somebody_asks_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[bytes] = []

    def read(raw: bytes) -> Any:
        reads.append(raw)
        return json.loads(raw)

    monkeypatch.setattr(tool_definitions, "read", read)
    raw = json.dumps([FUNCTION]).encode()
    tools = DeclaredTools({"tools": raw}, "parameters")
    assert not reads
    assert tools.arguments() == tools.arguments() == {"read": NAMES} and reads == [raw]


@pytest.mark.parametrize(
    "tools",
    ["7", "{}", "[7]", "[", '[{"type":"web_search"}]', '[{"name":7}]', '[{"name":"a","parameters":{"properties":[]}}]'],
)
def test_tools_of_another_shape_have_no_arguments(tools: str) -> None:
    assert DeclaredTools({"tools": tools.encode()}, "parameters", ("function",)).arguments() == {}
