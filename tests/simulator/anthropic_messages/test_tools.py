"""What Anthropic says of calls and results that do not belong together, and what is valid."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator.anthropic_messages.request import Request
from proxy.simulator.anthropic_messages.validation import validate

ASK, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]
SERVER = {"type": "server_tool_use", "id": "s"}
SEARCHED = {"type": "web_search_tool_result", "tool_use_id": "s"}


def use(ident: str = "t", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "f", "input": {}, **more}


def result(ident: str = "t") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": "r"}


def text() -> dict[str, Any]:
    return {"type": "text", "text": "x"}


def said(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "claude-opus-4-8", "max_tokens": 2048, "tools": TOOLS, **fields, "messages": list(messages)}


def error(sent: dict[str, Any]) -> str:
    """The text of the error; empty for a valid request."""
    found = validate(Request(sent))
    assert found is None or found.status == 400
    return "" if found is None else found.message


@pytest.mark.parametrize(
    "messages",
    [
        [ASK, said("assistant", use()), said("user", result())],
        [ASK, said("assistant", text(), use("a"), use("b")), said("user", result("b"), result("a"), text())],
        [ASK, said("assistant", use("a"), use("b")), said("user", result("a")), said("user", result("b"), text())],
        [ASK, said("assistant", SERVER, SEARCHED), ASK],
        [ASK, said("assistant", SERVER)],
    ],
)
def test_what_is_valid(messages: list[Any]) -> None:
    assert error(body(*messages)) == ""


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (
            [ASK, said("assistant", use("toolu_1")), ASK],
            (
                "messages.1: `tool_use` ids were found without `tool_result` blocks "
                "immediately after: toolu_1. Each `tool_use` block must have a corresponding "
                "`tool_result` block in the next message."
            ),
        ),
        ([ASK, said("assistant", use())], "messages.1: `tool_use` ids were found without `tool_result`"),
        ([ASK, said("assistant", use()), said("user", text(), result())], "`tool_use` ids were found without"),
        ([ASK, said("assistant", use()), said("user", result(), result())], "`tool_use` ids were found without"),
        (
            [ASK, ANSWER, said("user", result("toolu_9"))],
            (
                "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: "
                "toolu_9. Each `tool_result` block must have a corresponding `tool_use` block "
                "in the previous message."
            ),
        ),
        (
            [ASK, said("assistant", use()), said("user", result()), said("assistant", result()), ASK],
            "messages.3: `tool_result` blocks can only be in `user` messages",
        ),
        ([ASK, said("assistant", use(), use()), said("user", result())], "messages: `tool_use` ids must be unique"),
        (
            [ASK, said("assistant", {"type": "web_search_tool_result", "tool_use_id": "s"}), ASK],
            "unexpected `tool_use_id` found in `web_search_tool_result` blocks: s.",
        ),
        (
            [ASK, said("assistant", {"type": "server_tool_use", "id": "s"}), ASK],
            "`server_tool_use` ids were found without a corresponding result block: s.",
        ),
    ],
)
def test_messages_that_are_refused(messages: Any, text: str) -> None:
    assert text in error(body(*messages))


def test_history_with_tools_needs_their_definitions() -> None:
    told = [ASK, said("assistant", use()), said("user", result())]
    assert (
        error(body(*told, tools=[])) == "Requests which include `tool_use` or `tool_result` blocks must define tools."
    )


def test_a_tool_that_history_used_stays_defined() -> None:
    told = [ASK, said("assistant", use()), said("user", result())]
    assert error(body(*told, tools=[{"name": "g"}])) == "messages.1.content.0: tool `f` is not defined in `tools`"
    assert error(body(*told, tools=[{"name": "g"}, *TOOLS])) == ""
