"""OpenAI's Responses API, and that of Azure and of compatible servers."""

from __future__ import annotations

from proxy.apis.openai_responses import request, response
from proxy.model.api import Api
from proxy.wire.openai.server import OPENAI
from proxy.wire.openai.usage import KEY

API = Api(
    request.NAME,
    (request.PATH, request.BARE_PATH, *request.AZURE_PATHS, *request.COMPACT_PATHS),
    request,
    response,
    KEY,
    OPENAI,
    calls=(
        ("POST", request.PATH + "/compact"),
        ("POST", request.PATH + "/input_tokens"),
        ("GET", request.PATH),  # a WebSocket's handshake
    ),
    compact_paths=request.COMPACT_PATHS,
    hold_s=response.HOLD_S,
    refusal_stream=response.refusal_stream,
    without_middle=request.without_middle,
)
