"""Anthropic's Messages API."""

from __future__ import annotations

from proxy.apis.anthropic_messages import caching, call, context_edits, request, response
from proxy.apis.anthropic_messages.scan import API_NAME
from proxy.apis.anthropic_messages.server import ANTHROPIC
from proxy.model.api import Api, ContextEdits, SummaryCall

API = Api(
    API_NAME,
    (request.PATH, request.BARE_PATH),
    request,
    response,
    response.USAGE_KEY,
    ANTHROPIC,
    calls=(("POST", request.PATH + "/count_tokens"),),
    summary=SummaryCall(call.request_body, call.text_in, (call.VERSION,)),
    cache_blocks=caching.blocks_of,
    without_middle=request.without_middle,
    edits=ContextEdits(
        context_edits.NAME, context_edits.FIELD, context_edits.MARK, context_edits.apply, context_edits.report
    ),
)
