"""Every rule of the Messages API, with Anthropic's wording; and what is valid."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator.anthropic_messages.request import Request
from proxy.simulator.anthropic_messages.validation import validate

ASK, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
SYSTEM = {"role": "system", "content": "s"}
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]
MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}


def use(ident: str = "t", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "f", "input": {}, **more}


def result(ident: str = "t") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": "r"}


def text(said: str = "x", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def said(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "claude-opus-4-8", "max_tokens": 2048, "tools": TOOLS, **fields, "messages": list(messages)}


def error(
    sent: dict[str, Any],
    *betas: str,
    max_output: int | None = None,
    counting: bool = False,
    version: str = "2023-06-01",
) -> str:
    """The text of the error; empty for a valid request."""
    found = validate(Request(sent, betas, max_output, counting, version))
    assert found is None or found.status == 400
    return "" if found is None else found.message


@pytest.mark.parametrize(
    "messages",
    [
        [ASK],
        [ASK, ASK, ANSWER, ANSWER, ASK],
        [ASK, SYSTEM, SYSTEM, ANSWER, ASK, SYSTEM],
        [ASK, said("assistant", use()), said("user", result()), SYSTEM, ANSWER, ASK],
        [
            ASK,
            said(
                "assistant",
                {"type": "server_tool_use", "id": "s"},
                {"type": "web_search_tool_result", "tool_use_id": "s"},
            ),
            SYSTEM,
        ],
        [ASK, said("assistant", {"type": "server_tool_use", "id": "s"})],
        [said("assistant", {"type": "compaction", "content": "x"}), ASK],
    ],
)
def test_what_is_valid(messages: list[Any]) -> None:
    assert error(body(*messages)) == ""


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "messages: at least one message is required"),
        ("x", "messages: Input should be a valid list"),
        ([{"role": "tool", "content": "x"}], "messages.0.role: Input should be 'user' or 'assistant'"),
        ([ANSWER], 'messages: first message must use the "user" role'),
        ([SYSTEM, ANSWER], "use the top-level 'system' parameter for the initial system prompt"),
        (
            [ASK, SYSTEM, ASK],
            (
                "messages.1: role 'system' must precede an 'assistant' message or end the "
                "array; the directive-only form (content: [] with output_config) is accepted "
                "at any position"
            ),
        ),
        (
            [ASK, ANSWER, SYSTEM],
            (
                "messages.2: role 'system' must follow a 'user' message or an 'assistant' "
                "message ending in a server tool result"
            ),
        ),
        ([{"role": "user"}], "messages.0.content: Input should be a valid list"),
        ([{"role": "user", "content": ""}], "all messages must have non-empty content except"),
        ([said("user", text(""))], "messages: text content blocks must be non-empty"),
        (
            [ASK, said("assistant", use(input="{}")), ASK],
            "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        ),
        ([{**ASK, "name": "x"}], "messages.0.name: Extra inputs are not permitted"),
        ([{**ASK, "clear_at": "never"}], "messages.0.clear_at: Extra inputs are not permitted"),
        (
            [said("user", {"type": "news"})],
            "messages.0.content.0: Input tag 'news' found using 'type' does not match any of the expected tags: 'text'",
        ),
        (
            [ASK, said("system", {"type": "image"})],
            "messages.1.content.0: Input tag 'image' found using 'type' does not match any of the expected tags: 'text'"
            ", 'tool_addition', 'tool_removal'",
        ),
        ([said("user", {"type": "image"})], "messages.0.content.0.image.source: Field required"),
        (
            [ASK, said("assistant", {"type": "tool_use", "name": "f", "input": {}}), ASK],
            "messages.1.content.0.tool_use.id: Field required",
        ),
        ([said("user", {"type": "tool_result"})], "messages.0.content.0.tool_result.tool_use_id: Field required"),
        (
            [ASK, said("assistant", {"type": "thinking", "thinking": "t"}), ASK],
            "messages.1.content.0.thinking.signature: Field required",
        ),
        ([ASK] * 100_001, "messages: List should have at most 100000 items after validation, not 100001"),
        (
            [ASK, ANSWER],
            ("This model does not support assistant message prefill. The conversation must end with a user message."),
        ),
    ],
)
def test_messages_that_are_refused(messages: Any, text: str) -> None:
    assert text in error({**body(), "messages": messages})


def test_an_older_model_takes_a_prefill_and_no_system_message_inside() -> None:
    assert error(body(ASK, ANSWER, model="claude-sonnet-4-5")) == error(body(ASK, ANSWER, model="claude-3-haiku")) == ""
    space = {"role": "assistant", "content": "a "}
    assert (
        error(body(ASK, space, model="claude-3-haiku"))
        == "messages: final assistant content cannot end with trailing whitespace"
    )
    blank = {"role": "assistant", "content": [text("a"), text(" ")]}
    for told in (blank, {"role": "assistant", "content": "  "}):
        assert error(body(ASK, told, model="claude-3-haiku")) == "messages: text content blocks must be non-empty"
    assert (
        error(body(ASK, SYSTEM, model="claude-sonnet-4-5"))
        == "messages.1: role 'system' is not supported on this model"
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"x": 1}, "x: Extra inputs are not permitted"),
        ({"context_management": {}}, "context_management: Extra inputs are not permitted"),
        ({"max_tokens": -1}, "max_tokens: Input should be greater than or equal to 0"),
        (
            {"max_tokens": 5000},
            ("max_tokens: 5000 > 4096, which is the maximum allowed number of output tokens for claude-opus-4-8"),
        ),
        ({"model": 7}, "model: Input should be a valid string"),
    ],
)
def test_fields_that_are_refused(fields: dict[str, Any], text: str) -> None:
    assert error(body(ASK, **fields), max_output=4096) == text


def test_required_fields_are_named() -> None:
    for name in ("model", "messages", "max_tokens"):
        assert error({k: v for k, v in body(ASK).items() if k != name}) == f"{name}: Field required"
    counted = {k: v for k, v in body(ASK).items() if k != "max_tokens"}
    assert error(counted, counting=True) == "" and "Extra inputs" in error(body(ASK), counting=True)


def test_a_system_message_that_only_directs_may_stand_anywhere() -> None:
    directs = {"role": "system", "content": [], "output_config": {"effort": "low"}}
    beta = "mid-conversation-output-config-2026-07-01"
    for told in ([directs, ASK], [ASK, directs, ASK], [ASK, ANSWER, directs, ASK]):
        assert error(body(*told), beta) == ""
        assert error(body(*told)).endswith("output_config: Extra inputs are not permitted")
    assert "non-empty content" in error(body(ASK, {"role": "system", "content": []}), beta)


def test_a_beta_opens_its_field() -> None:
    assert error(body(ASK, context_management={}), "context-management-2025-06-27") == ""


def test_at_most_four_marks_of_caching() -> None:
    told = [ASK, said("assistant", use()), said("user", {**result(), "content": [text(**MARK)]}, text(**MARK))]
    assert error(body(*told, tools=[{**TOOLS[0], **MARK}], system=[text(**MARK)])) == ""
    assert error(body(*told, tools=[{**TOOLS[0], **MARK}], system=[text(**MARK)], **MARK)) == (
        "A maximum of 4 blocks with cache_control may be provided. Found 5."
    )


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ({**body(ASK), "temperature": 1}, "temperature: Extra inputs are not permitted"),
        ({**body(ASK), "top_k": 5}, "top_k: Extra inputs are not permitted"),
        (
            body(ASK, {"role": "assistant", "content": [{"type": "document", "source": {}}]}, ASK),
            "messages.1.content.0: `document` blocks are not permitted in `assistant` messages",
        ),
        (
            body({"role": "user", "content": [{"type": "text", "text": "x", "citations": [{}]}]}),
            "messages.0.content.0.text.citations: citations are not permitted in `user` messages",
        ),
    ],
)
def test_what_the_newer_version_refuses_the_older_takes(sent: dict[str, Any], text: str) -> None:
    assert error(sent, version="2026-10-21") == text and error(sent) == ""


@pytest.mark.parametrize(
    ("fields", "content", "text"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "x", "tools.0: server tools"),
        (
            {},
            [{"type": "image", "source": {"type": "url", "url": "https://x/a.png"}}],
            "`url` sources are not supported",
        ),
        ({}, [{"type": "document", "source": {"type": "file", "file_id": "f"}}], "`file` sources are not supported"),
        ({"mcp_servers": [{"type": "url"}]}, "x", "mcp_servers: the MCP connector is not supported"),
    ],
)
def test_what_cannot_be_counted(fields: dict[str, Any], content: Any, text: str) -> None:
    sent = {"model": "claude-opus-4-8", **fields, "messages": [{"role": "user", "content": content}]}
    mcp = "mcp-client-2025-11-20"
    assert text in error(sent, mcp, counting=True) and error({**sent, "max_tokens": 9}, mcp) == ""
