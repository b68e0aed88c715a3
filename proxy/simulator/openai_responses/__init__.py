"""OpenAI's Responses API, and that of Azure and of compatible servers."""

from __future__ import annotations

from proxy.simulator.api import Api
from proxy.simulator.openai_responses.answer import PATHS, answer

API = Api(PATHS, answer)
