"""OpenAI's kind of server, which most others imitate."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.model.server import Entry, ModelList, Server

DEPLOYMENT = "/openai/deployments/{model}"  # Azure's: what stands before a path


def _entry(name: str, owner: str) -> Entry:
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}


def _frame(names: Sequence[str]) -> tuple[Entry, Entry]:
    return {}, {"object": "list"}


MODELS = ModelList(
    target=b"/v1/models",
    entry=_entry,
    # OpenAI's has no such field: those of Groq, OpenRouter, vLLM and LM Studio.
    window_keys=("context_window", "context_length", "max_model_len", "max_context_length"),
    output_keys=("max_completion_tokens",),
    frame=_frame,
)
OPENAI = Server(
    "openai",
    asked_at="/v1/chat/completions",
    prompt_cache="openai",
    models=MODELS,
    labels={"openai": "azure"},  # /openai/deployments/NAME/chat/completions
)
