"""Anthropic's Messages API, and its endpoint that counts."""

from __future__ import annotations

from proxy.simulator.anthropic_messages.answer import PATHS, answer
from proxy.simulator.anthropic_messages.request import failure
from proxy.simulator.api import Api

API = Api(PATHS, answer, failure, checks_keys=True)
