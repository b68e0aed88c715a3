"""The provider behind an upstream's host, in the names of litellm's model table: whose prices its models have."""

from __future__ import annotations

import re

# By domain; its subdomains are the same provider's. Source: the providers' API references, and litellm's table.
HOSTS = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure",
    "cognitiveservices.azure.com": "azure",
    "services.ai.azure.com": "azure_ai",
    "models.ai.azure.com": "azure_ai",
    "inference.ai.azure.com": "azure_ai",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gemini",
    "aiplatform.googleapis.com": "vertex_ai",
    "api.ai21.com": "ai21",
    "aihubmix.com": "aihubmix",
    "inference.baseten.co": "baseten",
    "api.cerebras.ai": "cerebras",
    "codestral.mistral.ai": "codestral",
    "api.cohere.ai": "cohere",
    "api.cohere.com": "cohere",
    "dashscope.aliyuncs.com": "dashscope",
    "dashscope-intl.aliyuncs.com": "dashscope",
    "cloud.databricks.com": "databricks",
    "azuredatabricks.net": "databricks",
    "api.deepinfra.com": "deepinfra",
    "api.deepseek.com": "deepseek",
    "api.featherless.ai": "featherless_ai",
    "api.fireworks.ai": "fireworks_ai",
    "api.friendli.ai": "friendliai",
    "api.githubcopilot.com": "github_copilot",
    "api.groq.com": "groq",
    "api.hyperbolic.xyz": "hyperbolic",
    "api.inceptionlabs.ai": "inception",
    "api.inference.wandb.ai": "wandb",
    "api.lambda.ai": "lambda_ai",
    "api.llama.com": "meta_llama",
    "api.minimax.io": "minimax",
    "api.minimaxi.com": "minimax",
    "api.mistral.ai": "mistral",
    "api.moonshot.ai": "moonshot",
    "api.moonshot.cn": "moonshot",
    "api.morphllm.com": "morph",
    "api.novita.ai": "novita",
    "inference.api.nscale.com": "nscale",
    "api.studio.nebius.ai": "nebius",
    "api.studio.nebius.com": "nebius",
    "api.tokenfactory.nebius.com": "nebius",
    "openrouter.ai": "openrouter",
    "api.perplexity.ai": "perplexity",
    "api.publicai.co": "publicai",
    "api.sambanova.ai": "sambanova",
    "api.scaleway.ai": "scaleway",
    "snowflakecomputing.com": "snowflake",
    "api.together.ai": "together_ai",
    "api.together.xyz": "together_ai",
    "api.v0.dev": "v0",
    "ai-gateway.vercel.sh": "vercel_ai_gateway",
    "volces.com": "volcengine",
    "api.voyageai.com": "voyage",
    "api.x.ai": "xai",
    "api.z.ai": "zai",
}
BEDROCK = re.compile(r"bedrock[a-z-]*\.[a-z0-9-]+\.(amazonaws\.com|api\.aws)", re.ASCII)
VERTEX = re.compile(r"[a-z0-9-]+-aiplatform\.googleapis\.com", re.ASCII)


def provider_at(host: str) -> str:
    """The provider of a host; empty for one that is not known (a gateway, a server of one's own)."""
    host = host.lower()
    if BEDROCK.fullmatch(host):
        return "bedrock"
    if VERTEX.fullmatch(host):
        return "vertex_ai"
    labels = host.split(".")
    domains = (".".join(labels[i:]) for i in range(len(labels)))
    return next((HOSTS[domain] for domain in domains if domain in HOSTS), "")
