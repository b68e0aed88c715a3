"""Ollama's native API of embeddings."""

from __future__ import annotations

from proxy.simulator.api import Api
from proxy.simulator.ollama_embed.answer import PATHS, answer
from proxy.simulator.ollama_server import failure

API = Api(PATHS, answer, failure)
