"""The simulator's endpoints that count prompts: their counts are those of requests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.simulator.check import ApiError
from proxy.simulator.openai_chat.counting import count_prompt
from proxy.simulator.openai_chat.tokenizing import TEMPLATE, TOKENIZE, respond_to
from proxy.simulator.settings import SimulatorConfig
from tests.makers import body, user

SENT = body([user("How are you?")], "my-model")


def told(path: str, raw: bytes, **config: Any) -> Any:
    made = asyncio.run(respond_to(path, raw, json.loads(raw), SimulatorConfig(**config)))
    return json.loads(b"".join(made.chunks))


def test_vllm_tells_the_count_the_window_and_the_tokens() -> None:
    found = told(TOKENIZE, SENT, windows={"my-model": 9_000})
    tokens = count_prompt(SENT)
    assert (found["count"], found["max_model_len"], len(found["tokens"])) == (tokens, 9_000, tokens)


def test_llamacpp_applies_the_template_and_counts_its_text() -> None:
    prompt = told(TEMPLATE, SENT)["prompt"]
    found = told(TOKENIZE, json.dumps({"content": prompt, "add_special": True}).encode())
    assert len(found["tokens"]) == count_prompt(SENT)


def test_another_count_takes_the_place_of_its_own_and_a_body_may_lack_a_model() -> None:
    assert told(TOKENIZE, b'{"messages": []}', count=lambda raw: 7)["count"] == 7


def test_a_body_without_messages_is_refused() -> None:
    with pytest.raises(ApiError):
        told(TOKENIZE, b'{"prompt": 7}')
