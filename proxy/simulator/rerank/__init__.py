"""The API of servers that rank documents by a query."""

from __future__ import annotations

from proxy.simulator.api import Api
from proxy.simulator.rerank.answer import PATHS, answer

API = Api(PATHS, answer)
