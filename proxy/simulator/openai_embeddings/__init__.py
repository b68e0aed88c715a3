"""OpenAI's Embeddings API, and that of the servers that follow it."""

from __future__ import annotations

from proxy.simulator.api import Api
from proxy.simulator.openai_embeddings.answer import PATHS, answer

API = Api(PATHS, answer, deployed="embeddings")
