"""Ollama's native API of chats."""

from __future__ import annotations

from proxy.apis.ollama import request
from proxy.apis.ollama.scan import API_NAME
from proxy.model.api import Api
from proxy.wire.ollama import loaded, options, response
from proxy.wire.ollama.server import OLLAMA

API = Api(
    API_NAME,
    (request.PATH,),
    request,
    response,
    response.USAGE_KEY,
    OLLAMA,
    calls=(("GET", loaded.PATH.decode()),),
    without_truncation=options.without_truncation,
)
