"""How often a message is decoded does not follow from how many calls and results it has: a round may have thousands."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from proxy.apis.anthropic_messages import API as MESSAGES
from proxy.apis.openai_chat import API as CHAT
from proxy.apis.openai_responses import API as RESPONSES
from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.model.api import Api
from proxy.model.conversation import Message
from proxy.model.limits import Window
from proxy.model.plan import Facts
from proxy.tokens.meter import meter_for
from tests.makers import words
from tests.tokens.remembering import Remembering

LADDERS = {name: ladder for name, ladder in load_rules(None).ladders.items() if ladder.steps}
FEW, MANY = 48, 192  # both are too long for the window
ASKED = {"role": "user", "content": "Which tide?"}


def chat(count: int, name: str) -> dict[str, Any]:
    calls = [{"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": "{}"}} for i in range(count)]
    results = [{"role": "tool", "tool_call_id": f"c{i}", "content": words(60, f"w{i}x")} for i in range(count)]
    return {"model": "gpt-4o", "messages": [ASKED, {"role": "assistant", "tool_calls": calls}, *results]}


def responses(count: int, name: str) -> dict[str, Any]:
    calls = [{"type": "function_call", "call_id": f"c{i}", "name": name, "arguments": "{}"} for i in range(count)]
    results = [
        {"type": "function_call_output", "call_id": f"c{i}", "output": words(60, f"w{i}x")} for i in range(count)
    ]
    return {"model": "gpt-4o", "input": [ASKED, *calls, *results]}


def same_id(count: int, name: str) -> dict[str, Any]:
    body = responses(count, name)
    return {**body, "input": [{**item, "call_id": "c"} if "call_id" in item else item for item in body["input"]]}


def messages(count: int, name: str) -> dict[str, Any]:
    calls = [{"type": "tool_use", "id": f"c{i}", "name": name, "input": {}} for i in range(count)]
    results = [{"type": "tool_result", "tool_use_id": f"c{i}", "content": words(60, f"w{i}x")} for i in range(count)]
    told = [ASKED, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    return {"model": "claude-opus-4-8", "max_tokens": 50, "messages": told}


def decoded(monkeypatch: pytest.MonkeyPatch, api: Api, body: dict[str, Any], ladder: str) -> float:
    """How often each message of a plan is decoded, on average."""
    count = 0
    parts = Message.parts

    def counting(message: Message) -> Any:
        nonlocal count
        count += 1
        return parts(message)

    monkeypatch.setattr(Message, "parts", counting)
    prompt = api.request.parse(json.dumps(body).encode())
    plan(prompt, LADDERS[ladder], Facts(Window(1_000), meter_for(prompt, prompt.model, Remembering())))
    monkeypatch.undo()
    return count / len(prompt.messages)


@pytest.mark.parametrize("ladder", sorted(LADDERS))
@pytest.mark.parametrize("name", ["search", "TodoWrite"])
@pytest.mark.parametrize(
    ("api", "make"), [(CHAT, chat), (RESPONSES, responses), (RESPONSES, same_id), (MESSAGES, messages)]
)
def test_each_message_is_decoded_as_often_in_a_large_round_as_in_a_small_one(
    monkeypatch: pytest.MonkeyPatch, api: Api, make: Callable[[int, str], dict[str, Any]], name: str, ladder: str
) -> None:
    few, many = (decoded(monkeypatch, api, make(count, name), ladder) for count in (FEW, MANY))
    assert few > 0 and many <= 1.5 * few + 1
