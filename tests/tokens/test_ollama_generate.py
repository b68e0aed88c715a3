"""What stands beside the texts of /api/generate."""

from __future__ import annotations

import json
from typing import Any

from proxy.tokens import ollama_generate
from proxy.tokens.counting_key import counting_key_for
from proxy.tokens.meter import prompt_tokens
from proxy.tokens.ollama import IMAGE_TOKENS

RULES = counting_key_for("llama3.2", 0, True, api="generate").rules


def fixed(**fields: Any) -> tuple[int, int, int, int]:
    return ollama_generate.fixed_costs({key: json.dumps(value).encode() for key, value in fields.items()}, None, RULES)


def test_the_prompt_and_the_system_prompt_have_a_frame_unless_they_are_raw() -> None:
    recipe = RULES.recipe
    assert fixed() == (recipe.base + recipe.message, 0, 0, 0)
    assert fixed(system="s")[0] == recipe.base + 2 * recipe.message and fixed(system="")[0] == fixed()[0]
    assert fixed(raw=True) == (0, 0, 0, 0) and fixed(raw=False) == fixed()


def test_images_and_templates_cost_what_can_be_said_of_them() -> None:
    assert fixed(images=["A", "B"])[0] - fixed()[0] == round(2 * RULES.unit * IMAGE_TOKENS)
    assert fixed(template="{{ .Prompt }}")[3] == RULES.count("{{ .Prompt }}")
    for head, known in (
        ({}, True),
        ({"images": b"[]"}, True),
        ({"images": b'["A"]'}, False),
        ({"template": b'"x"'}, False),
    ):
        assert ollama_generate.is_certain(head, RULES) is known


def test_json_that_nests_too_deep_is_counted_as_text() -> None:
    assert ollama_generate.fixed_as_text({"images": b"[[1]]"}, RULES) == (RULES.recipe.base, 0, 0, RULES.count("[[1]]"))


def test_ids_of_a_context_are_tokens() -> None:
    def counted(**fields: Any) -> int:
        texts = [[(key, json.dumps(value).encode())] for key, value in fields.items()]
        return prompt_tokens("llama3.2", {}, texts, "generate")

    assert abs(counted(prompt="x", context=list(range(500))) - counted(prompt="x") - 500) <= 3
