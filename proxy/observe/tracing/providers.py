"""The provider behind an upstream's host, in the names of OpenTelemetry (`gen_ai.provider.name`)."""

from __future__ import annotations

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


def provider_of(host: str) -> str:
    """The provider of a host; a host that is not known is its own name, as the convention permits."""
    labels = host.lower().split(".")
    domains = (".".join(labels[i:]) for i in range(len(labels)))
    return next((PROVIDERS[domain] for domain in domains if domain in PROVIDERS), host.lower())
