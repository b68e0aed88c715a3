"""OpenAI's list of models, with the windows that some servers add to it."""

from __future__ import annotations

from proxy.simulator.api import Api
from proxy.simulator.openai_models.answer import PATHS, answer

API = Api(PATHS, answer)
