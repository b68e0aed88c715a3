"""Which arguments the tools of a request have, as each API declares them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.anthropic_messages import request as messages
from proxy.apis.ollama import request as ollama
from proxy.apis.openai_chat import request as chat
from proxy.apis.openai_responses import request as responses
from proxy.wire import tool_arguments
from proxy.wire.tool_arguments import DeclaredArguments

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "offset": {"type": "integer"}}}
FUNCTION = {"name": "read", "parameters": SCHEMA}
SAID = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (chat, SAID | {"tools": [{"type": "function", "function": FUNCTION}]}),
        (chat, SAID | {"functions": [FUNCTION]}),
        (responses, {"input": "hi", "tools": [{"type": "function", **FUNCTION}]}),
        (messages, SAID | {"max_tokens": 9, "tools": [{"name": "read", "input_schema": SCHEMA}]}),
        (ollama, SAID | {"tools": [{"type": "function", "function": FUNCTION}]}),
    ],
)
def test_every_api_names_the_arguments_of_its_tools(api: Any, body: dict[str, Any]) -> None:
    assert api.parse(json.dumps({"model": "m", **body}).encode()).tools() == {"read": ("path", "offset")}


def test_they_are_read_when_somebody_asks_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[bytes] = []

    def read(raw: bytes) -> Any:
        reads.append(raw)
        return json.loads(raw)

    monkeypatch.setattr(tool_arguments, "read", read)
    raw = json.dumps([FUNCTION]).encode()
    declared = DeclaredArguments((raw, b""), "parameters")
    assert not reads
    assert declared() == declared() == {"read": ("path", "offset")} and reads == [raw]


@pytest.mark.parametrize(
    "tools",
    ["7", "{}", "[7]", "[", '[{"type":"web_search"}]', '[{"name":7}]', '[{"name":"a","parameters":{"properties":[]}}]'],
)
def test_tools_of_another_shape_have_none(tools: str) -> None:
    assert DeclaredArguments((tools.encode(),), "parameters", "function")() == {}
