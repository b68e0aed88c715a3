"""The simulator's count of a prompt of the Messages API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.simulator.anthropic_messages.counting import count_prompt
from proxy.simulator.check import ApiError

ASK = {"role": "user", "content": "How are you?"}


def counted(**fields: Any) -> int:
    return count_prompt(json.dumps({"model": "claude-sonnet-4-5", "messages": [ASK], **fields}).encode())


def test_every_message_the_system_prompt_and_the_tools_count() -> None:
    assert counted() < counted(messages=[ASK, ASK]) < counted(messages=[ASK, ASK, ASK])
    assert counted() < counted(system="Be brief.") < counted(system="Be brief. " * 9)
    assert counted() < counted(tools=[{"name": "f", "input_schema": {}}])


def test_what_is_no_prompt_counts_nothing() -> None:
    assert counted(max_tokens=5, stream=True) == counted()


@pytest.mark.parametrize("raw", [b"{}", b'{"model":1,"messages":[]}', b'{"model":"m"}', b"x"])
def test_what_cannot_be_counted_is_an_error(raw: bytes) -> None:
    with pytest.raises(ApiError):
        count_prompt(raw)
