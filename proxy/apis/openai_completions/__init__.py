"""OpenAI's Completions API, which continues texts."""

from __future__ import annotations

from proxy.apis.openai_completions import request, response
from proxy.model.api import Api
from proxy.wire.openai.server import DEPLOYMENT, OPENAI
from proxy.wire.openai.usage import KEY

API = Api(
    request.NAME,
    (request.PATH, request.BARE_PATH, request.AZURE_PATH),
    request,
    response,
    KEY,
    OPENAI,
    named_paths=(DEPLOYMENT + request.BARE_PATH,),
    operation="text_completion",
    numeric=True,
)
