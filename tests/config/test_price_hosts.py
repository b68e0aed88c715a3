"""Whose prices the models behind a host have."""

from __future__ import annotations

import json

import pytest

from proxy.config.model_table import table_file
from proxy.config.price_hosts import HOSTS, provider_at
from proxy.config.price_table import RESELLERS, is_of


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("api.openai.com", "openai"),
        ("eu.api.openai.com", "openai"),
        ("My-Resource.openai.azure.com", "azure"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "bedrock"),
        ("europe-west4-aiplatform.googleapis.com", "vertex_ai"),
        ("aiplatform.googleapis.com", "vertex_ai"),
        ("api.groq.com", "groq"),
        ("openrouter.ai", "openrouter"),
        ("my-bucket.s3.amazonaws.com", ""),
        ("127.0.0.1", ""),
        ("litellm.internal", ""),
        ("notapi.openai.com.example", ""),
        ("", ""),
    ],
)
def test_a_host_and_its_subdomains_are_one_providers(host: str, provider: str) -> None:
    assert provider_at(host) == provider


def test_every_provider_is_one_of_the_tables() -> None:
    named = {row.get("litellm_provider", "") for row in json.loads(table_file().read_bytes()).values()}
    assert [p for p in HOSTS.values() if p not in RESELLERS and not any(is_of(p, name) for name in named)] == []
