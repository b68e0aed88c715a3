"""Settings that are valid and that nobody means are told."""

from __future__ import annotations

import pytest

from proxy.config.doubts import doubts
from proxy.config.settings import read_settings


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PLIMSOLL_UPSTREAM", "https://api.openai.com/v1/chat/completions", "it should be https://api.openai.com/v1"),
        ("PLIMSOLL_UPSTREAM", "https://api.anthropic.com/v1/messages/", "ends in /messages"),
        ("PLIMSOLL_SUMMARY_UPSTREAM", "http://x.example/v1/responses", "PLIMSOLL_SUMMARY_UPSTREAM ends in"),
        ("LLM_FALLBACK_ENABLED", "true", "without LLM_ALLOWED_FALLBACK_MODELS"),
        ("CONTEXT_TOTAL_TOKEN_LIMIT", "100", "is 100 tokens"),
    ],
)
def test_U11_a_setting_that_nobody_means_is_told(name: str, value: str, said: str) -> None:
    (line,) = doubts(read_settings({name: value}))
    assert said in line


def test_usual_settings_raise_no_doubts() -> None:
    assert doubts(read_settings({})) == []
    usual = {"LLM_FALLBACK_ENABLED": "1", "LLM_ALLOWED_FALLBACK_MODELS": "gpt-4o", "CONTEXT_TOTAL_TOKEN_LIMIT": "32000"}
    assert doubts(read_settings({**usual, "PLIMSOLL_UPSTREAM": "https://x.openai.azure.com/openai"})) == []
