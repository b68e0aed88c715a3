"""OpenAI's Chat Completions API, and the endpoints of other servers that count its prompts."""

from __future__ import annotations

from proxy.simulator.api import Api
from proxy.simulator.openai_chat.answer import PATHS, answer

API = Api(PATHS, answer, deployed="chat/completions")
