"""Settings that are valid and that nobody means are told."""

from __future__ import annotations

import pytest

from proxy.config.doubts import check_upstreams, doubts
from proxy.config.settings import read_settings
from proxy.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PLIMSOLL_UPSTREAM", "https://api.openai.com/v1/models", "it should be https://api.openai.com/v1"),
        ("PLIMSOLL_SUMMARY_UPSTREAM", "http://x.example/responses", "PLIMSOLL_SUMMARY_UPSTREAM ends in"),
        ("LLM_FALLBACK_ENABLED", "true", "without LLM_ALLOWED_FALLBACK_MODELS"),
        ("CONTEXT_TOTAL_TOKEN_LIMIT", "100", "is 100 tokens"),
    ],
)
def test_U11_a_setting_that_nobody_means_is_told(name: str, value: str, said: str) -> None:
    (line,) = doubts(read_settings({name: value}))
    assert said in line


@pytest.mark.parametrize(
    ("name", "value", "cure"),
    [
        ("PLIMSOLL_UPSTREAM", "https://api.openai.com/v1/chat/completions", "it should be https://api.openai.com/v1"),
        ("PLIMSOLL_UPSTREAM", "https://api.openai.com/v1/Chat/Completions/", "it should be https://api.openai.com/v1"),
        ("PLIMSOLL_UPSTREAM", "https://x.example/openai/chat/completions", "it should be https://x.example/openai"),
        ("PLIMSOLL_UPSTREAM", "https://api.anthropic.com/v1/messages/", "it should be https://api.anthropic.com/v1"),
        ("PLIMSOLL_UPSTREAM", "http://127.0.0.1:11434/api/chat", "it should be http://127.0.0.1:11434/v1"),
        ("PLIMSOLL_EMBEDDINGS_UPSTREAM", "http://x/v1/embeddings", "it should be http://x/v1"),
    ],
)
def test_U11_the_url_of_a_request_is_refused_with_the_base_url_that_was_meant(name: str, value: str, cure: str) -> None:
    settings = read_settings({name: value})
    with pytest.raises(ConfigError, match=f"^{name} ends in .*, which clients add: {cure}$"):
        check_upstreams(settings)
    assert doubts(settings) == []


def test_usual_settings_raise_no_doubts() -> None:
    assert doubts(read_settings({})) == []
    for url in (
        "https://api.openai.com/v1",
        "https://x.example/models/llama/v1",
        "https://x.openai.azure.com/openai",
    ):
        check_upstreams(read_settings({"PLIMSOLL_UPSTREAM": url}))
    usual = {"LLM_FALLBACK_ENABLED": "1", "LLM_ALLOWED_FALLBACK_MODELS": "gpt-4o", "CONTEXT_TOTAL_TOKEN_LIMIT": "32000"}
    assert doubts(read_settings({**usual, "PLIMSOLL_UPSTREAM": "https://x.openai.azure.com/openai"})) == []
