"""What a message of Ollama's API costs."""

from __future__ import annotations

import json
from typing import Any

from proxy.model.conversation import Kind, Message
from proxy.tokens import messages as chat
from proxy.tokens import ollama, request_overhead
from proxy.tokens.counting_key import counting_key_for

RULES = counting_key_for("llama3.2", 0, True, api="ollama").rules
CALL = {"function": {"name": "search", "arguments": {"query": "draught"}}}
TOOLS = {"tools": json.dumps([{"type": "function", "function": {"name": "f", "description": "Finds."}}]).encode()}


def message(**fields: Any) -> Message:
    return Message(json.dumps({"role": "user", **fields}).encode(), "user", Kind.USER, None)  # type: ignore[arg-type]


def cost(**fields: Any) -> int:
    return ollama.costs((message(**fields),), RULES)[0]


def test_a_text_costs_what_it_costs_in_chat() -> None:
    told = message(content="What is a load line?")
    assert ollama.costs((told,), RULES) == chat.costs((told,), RULES)
    assert ollama.costs((told, told), RULES) == 2 * ollama.costs((told,), RULES)


def test_calls_thinking_and_images_cost_more() -> None:
    plain = cost(role="assistant", content="x")
    assert cost(role="assistant", content="x", tool_calls=[CALL]) > plain + 4
    assert cost(role="assistant", content="x", thinking="word " * 50) >= plain + 50
    assert cost(content="x", images=["AA", "BB"]) == cost(content="x") + round(RULES.unit * 2 * ollama.IMAGE_TOKENS)


def test_only_what_images_cost_is_not_certain() -> None:
    assert ollama.certain(message(content="x"), RULES) and ollama.certain(message(images=[]), RULES)
    assert not ollama.certain(message(content="x", images=["AA"]), RULES)


def test_tools_cost_as_in_chat_and_a_schema_nothing() -> None:
    head = {**TOOLS, "format": b'{"type":"object"}', "response_format": b"1", "functions": b"[{}]"}
    assert ollama.fixed_costs(head, "system", RULES) == request_overhead.fixed_costs(TOOLS, None, RULES)
    assert ollama.fixed_as_text(head, RULES) == request_overhead.fixed_as_text(TOOLS, RULES)
    assert ollama.is_certain(head, RULES) and not ollama.is_certain({"tools": b"[{}]"}, RULES)
