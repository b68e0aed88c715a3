from __future__ import annotations

import pytest

from proxy.observe.tracing.providers import BY_ENDPOINT, provider_of


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("api.openai.com", "openai"),
        ("API.OpenAI.com", "openai"),
        ("eu.api.openai.com", "openai"),
        ("acme.openai.azure.com", "azure.ai.openai"),
        ("bedrock-runtime.eu-central-1.amazonaws.com", "aws.bedrock"),
        ("api.openai.com.evil.example", ""),
        ("notapi.x.ai", ""),
        ("vllm", ""),
        ("127.0.0.1", ""),
    ],
)
def test_a_provider_is_known_by_its_domain(host: str, provider: str) -> None:
    assert provider_of(host) == provider


def test_M11_where_a_host_is_not_known_the_api_names_a_provider() -> None:
    assert {BY_ENDPOINT[name] for name in ("chat", "responses", "completions", "embeddings")} == {"openai"}
    assert (BY_ENDPOINT["messages"], BY_ENDPOINT["ollama"]) == ("anthropic", "ollama")
