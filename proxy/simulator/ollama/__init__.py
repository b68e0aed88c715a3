"""Ollama's native API of chats, and its list of loaded models."""

from __future__ import annotations

from proxy.simulator.api import Api
from proxy.simulator.ollama.answer import PATHS, answer
from proxy.simulator.ollama_server import failure

API = Api(PATHS, answer, failure)
