"""OpenAI's Chat Completions API."""

from __future__ import annotations

from proxy.apis.openai_chat import request, response
from proxy.model.api import Api
from proxy.wire.openai.usage import KEY

API = Api(
    request.NAME,
    (request.PATH, request.BARE_PATH, request.AZURE_PATH),
    request,
    response,
    KEY,
    without_middle=request.without_middle,
)
