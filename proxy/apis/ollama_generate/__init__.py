"""Ollama's native API that continues texts."""

from __future__ import annotations

from proxy.apis.ollama_generate import request
from proxy.model.api import Api
from proxy.wire.ollama import options, response
from proxy.wire.ollama.server import OLLAMA

API = Api(
    request.NAME,
    (request.PATH,),
    request,
    response,
    response.USAGE_KEY,
    OLLAMA,
    operation="text_completion",
    numeric=True,
    without_truncation=options.without_truncation,
)
