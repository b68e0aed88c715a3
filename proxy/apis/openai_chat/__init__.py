"""OpenAI's Chat Completions API."""

from __future__ import annotations

from proxy.apis.openai_chat import call, request, response
from proxy.model.api import Api, SummaryCall
from proxy.model.server import Server
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
    summary=SummaryCall(call.request_body, call.text_in),
    without_middle=request.without_middle,
)
# litellm, a library, translates requests of this API for its providers.
SERVERS = (Server("litellm", paths=(request.PATH, request.BARE_PATH), asked_at=request.PATH),)
