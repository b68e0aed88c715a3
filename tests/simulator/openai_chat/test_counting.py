"""The simulator's count of a chat is the recipe's."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from proxy.simulator.app import simulator
from proxy.simulator.check import ApiError
from proxy.simulator.openai_chat.counting import count_prompt
from tests.simulator.test_app import exchange


def test_its_own_count_is_the_recipes() -> None:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]}
    got = asyncio.run(exchange(simulator(), body=msgspec.json.encode(body)))
    assert got.json["usage"]["prompt_tokens"] == 8  # 3 + 4 + 1


def test_what_its_own_count_cannot_read_is_refused() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x", "tool_calls": 7}]}
    got = asyncio.run(exchange(simulator(), body=msgspec.json.encode(body)))
    assert (got.status, got.told[:16]) == (400, "Invalid request:")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"model":"m"}', b'{"model":1,"messages":[]}'])
def test_a_body_without_a_model_or_messages_cannot_be_counted(body: bytes) -> None:
    with pytest.raises(ApiError):
        count_prompt(body)
