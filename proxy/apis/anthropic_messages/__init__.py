"""Anthropic's Messages API."""

from __future__ import annotations

from proxy.apis.anthropic_messages import request, response
from proxy.apis.anthropic_messages.scan import API_NAME
from proxy.model.api import Api

API = Api(
    API_NAME,
    (request.PATH, request.BARE_PATH),
    request,
    response,
    response.USAGE_KEY,
    without_middle=request.without_middle,
)
