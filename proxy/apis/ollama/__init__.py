"""Ollama's native API of chats."""

from __future__ import annotations

from proxy.apis.ollama import request
from proxy.apis.ollama.scan import API_NAME
from proxy.model.api import Api
from proxy.wire.ollama import options, response

API = Api(
    API_NAME,
    (request.PATH,),
    request,
    response,
    response.USAGE_KEY,
    root=options.ROOT,
    without_truncation=options.without_truncation,
)
