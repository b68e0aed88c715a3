"""The provider behind an upstream's host, in the names of OpenTelemetry (`gen_ai.provider.name`)."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.apis import apis

# By domain; its subdomains are the same provider's.
PROVIDERS = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
    "api.anthropic.com": "anthropic",
    "amazonaws.com": "aws.bedrock",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "api.cohere.com": "cohere",
    "api.cohere.ai": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
}


# By endpoint: what the API of a request at an unknown host is called for. The convention has a provider named by the
# format of its telemetry where the true one is not known; an address would be a name of its own for each server.
BY_ENDPOINT: Mapping[str, str] = {api.name: api.server.name for api in apis()}


def provider_of(host: str) -> str:
    """The provider of a host; empty if it is not known."""
    labels = host.lower().split(".")
    domains = (".".join(labels[i:]) for i in range(len(labels)))
    return next((PROVIDERS[domain] for domain in domains if domain in PROVIDERS), "")
