"""Texts and token ids are counted without a frame."""

from __future__ import annotations

import json
from typing import Any

from proxy.model.conversation import Kind, Message
from proxy.tokens import openai_inputs
from proxy.tokens.counting_key import counting_key_for
from proxy.tokens.encodings import encoding
from proxy.tokens.meter import prompt_tokens
from proxy.wire.openai import inputs


def counted(value: Any, model: str = "text-embedding-3-small") -> int:
    return prompt_tokens(model, {}, [[("", json.dumps(value).encode())]], "completions")


def test_a_text_costs_its_tokens_in_the_models_own_encoding() -> None:
    text = "Wie tief liegt das Schiff? ⚓ " * 9
    assert counted(text) == encoding("cl100k_base").count(text)
    assert counted(text, "davinci-002") == counted(text, "gpt-3.5-turbo-instruct") == counted(text)
    assert counted("") == 0


def test_a_list_costs_as_many_tokens_as_it_has_ids_whatever_the_model() -> None:
    assert counted([1, 2, 3]) == 3 and counted(list(range(1000)), "unheard-of") == 1000


def test_nothing_besides_the_messages_costs_anything_and_all_is_certain() -> None:
    rules = counting_key_for("davinci-002", 0, False, api="completions").rules
    assert openai_inputs.fixed_costs({}, None, rules) == openai_inputs.fixed_as_text({}, rules) == (0, 0, 0, 0)
    assert openai_inputs.is_certain({}, rules)
    assert openai_inputs.certain(Message(b'"a"', "prompt", Kind.USER, inputs), rules)


def test_json_that_cannot_be_decoded_is_counted_as_text() -> None:
    rules = counting_key_for("davinci-002", 0, False, api="completions").rules
    assert openai_inputs.costs([Message(b'["a"]', "prompt", Kind.USER, inputs)], rules) == (rules.count('["a"]'),)
