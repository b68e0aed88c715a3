"""Ollama's native API that continues texts."""

from __future__ import annotations

from proxy.apis.ollama_generate import request
from proxy.model.api import Api
from proxy.wire.ollama import options, response

API = Api(
    request.NAME,
    (request.PATH,),
    request,
    response,
    response.USAGE_KEY,
    root=options.ROOT,
    numeric=True,
    without_truncation=options.without_truncation,
)
