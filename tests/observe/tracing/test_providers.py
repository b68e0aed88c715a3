from __future__ import annotations

import pytest

from proxy.observe.tracing.providers import provider_of


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("api.openai.com", "openai"),
        ("API.OpenAI.com", "openai"),
        ("eu.api.openai.com", "openai"),
        ("acme.openai.azure.com", "azure.ai.openai"),
        ("bedrock-runtime.eu-central-1.amazonaws.com", "aws.bedrock"),
        ("api.openai.com.evil.example", "api.openai.com.evil.example"),
        ("notapi.x.ai", "notapi.x.ai"),
        ("vllm", "vllm"),
        ("127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_provider_is_known_by_its_domain_and_any_other_host_is_its_own_name(host: str, provider: str) -> None:
    assert provider_of(host) == provider
