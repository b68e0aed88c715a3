"""OpenAI's Completions API, which continues texts."""

from __future__ import annotations

from proxy.simulator.api import Api
from proxy.simulator.openai_completions.answer import PATHS, answer

API = Api(PATHS, answer, deployed="completions")
