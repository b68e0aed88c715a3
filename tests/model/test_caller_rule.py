from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.openai_chat import API
from proxy.model.caller_rule import PinRule
from proxy.model.conversation import Prompt

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You are careful."},
    {"role": "user", "content": "Read the POLICY first.", "name": "ann"},
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "result"},
    {"role": "user", "content": "And now?"},
]


def prompt(messages: list[dict[str, Any]] = MESSAGES) -> Prompt:
    return API.request.parse(json.dumps({"model": "gpt-4o", "messages": messages}).encode(), frozenset())


@pytest.mark.parametrize(
    ("rule", "indices"),
    [
        (PinRule(roles=frozenset({"user"})), {1, 4}),
        (PinRule(names=frozenset({"ann"})), {1}),
        (PinRule(names=frozenset({"f"})), {3}),
        (PinRule(texts=("policy",)), {1}),
        (PinRule(texts=("nowhere",)), set()),
        (PinRule(roles=frozenset({"tool"}), texts=("and now",)), {3, 4}),
    ],
)
def test_messages_are_pinned_by_role_name_and_text(rule: PinRule, indices: set[int]) -> None:
    assert rule.pinned(prompt(), 8_000) == indices


def test_what_is_pinned_takes_a_quarter_of_the_window_and_the_oldest_stay_pinned_as_turns_come() -> None:
    rule, long = PinRule(roles=frozenset({"user"})), {"role": "user", "content": "x" * 350}
    for count in (1, 2, 10, 100):
        assert rule.pinned(prompt([long] * count), 1_000) == frozenset(range(min(count, 2)))
