"""Gemini's own API."""

from __future__ import annotations

from proxy.simulator.api import Api
from proxy.simulator.gemini.answer import PATHS, answer, failure

API = Api(PATHS, answer, failure, checks_keys=True)
