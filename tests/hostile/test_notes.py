"""What an agent reads where its result was shortened (W8): who cut, how much is missing and how to get it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.hostile.conftest import Place
from tests.hostile.harness import CHAT

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
FILE = "\n".join(f"value_{i} = compute({i}, 'tide crane cargo pilot ballast harbour')" for i in range(1, 601))
LISTING = "\n".join(f"src/module_{i}/harbour_{i}.py" for i in range(1, 901))
SCHEMAS = {
    "read": {"path": {"type": "string"}, "offset": {"type": "integer"}, "limit": {"type": "integer"}},
    "shell": {"command": {"type": "string"}},
}
CALLS = [("read", {"path": "harbour.py"}, FILE), ("shell", {"command": "ls -R"}, LISTING)]
ASKED = "Go through the harbour."
FIRST = r"\[… lines \d+-\d+ left out by a proxy(; read with offset (\d+), limit \d+)? …\]"


def schema(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": SCHEMAS[name]}


def chat() -> dict[str, Any]:
    said: list[dict[str, Any]] = [{"role": "user", "content": ASKED}]
    for name, arguments, result in CALLS:
        call = {"id": name, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": name, "content": result})
    tools = [{"type": "function", "function": {"name": name, "parameters": schema(name)}} for name in SCHEMAS]
    return {"model": "gpt-4o", "max_tokens": 500, "tools": tools, "messages": said}


def responses() -> dict[str, Any]:
    items: list[dict[str, Any]] = [{"role": "user", "content": ASKED}]
    for name, arguments, result in CALLS:
        items.append({"type": "function_call", "call_id": name, "name": name, "arguments": json.dumps(arguments)})
        items.append({"type": "function_call_output", "call_id": name, "output": result})
    tools = [{"type": "function", "name": name, "parameters": schema(name)} for name in SCHEMAS]
    return {"model": "gpt-4o", "max_output_tokens": 500, "tools": tools, "input": items, "store": False}


def messages() -> dict[str, Any]:
    said: list[dict[str, Any]] = [{"role": "user", "content": ASKED}]
    for name, arguments, result in CALLS:
        use = {"type": "tool_use", "id": name, "name": name, "input": arguments}
        answer = {"type": "tool_result", "tool_use_id": name, "content": result}
        said += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]
    tools = [{"name": name, "input_schema": schema(name)} for name in SCHEMAS]
    return {"model": "claude-sonnet-4-5", "max_tokens": 500, "tools": tools, "messages": said}


@pytest.mark.parametrize(("path", "body"), [(CHAT, chat()), (RESPONSES, responses()), (MESSAGES, messages())])
def test_W8_notes_say_who_cut_and_how_to_read_on_by_the_schema_of_the_tool(
    place: Place, path: str, body: dict[str, Any]
) -> None:
    place.ask(body, path=path, headers={"x-plimsoll-window": "8000"})
    sent = next(request for request in place.seen() if request.target == path.encode()).body
    text = json.dumps(json.loads(sent), ensure_ascii=False).replace("\\n", "\n")
    assert text.count("by a proxy") == 1 and re.search(FIRST, text)
    assert re.search(r"[;(] ?(read with )?offset \d+, limit \d+", text)
    assert re.search(r"… \d+ of 900 lines …", text)
    assert json.loads(sent)["tools"] == body["tools"]
