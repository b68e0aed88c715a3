"""OpenAI's Chat Completions API."""

from __future__ import annotations

from proxy.apis.openai_chat import request
from proxy.model.api import Api
from proxy.wire.openai import errors
from proxy.wire.scan import known_prefix_of
from proxy.wire.scan import scan as scan_body


class ChatCompletions:
    """POST /v1/chat/completions; see `proxy.model.api.Api`."""

    name = request.NAME
    paths = (request.PATH, request.BARE_PATH)

    scan = staticmethod(scan_body)
    known_prefix = staticmethod(known_prefix_of)
    parse = staticmethod(request.parse)
    render = staticmethod(request.render)
    without_extension = staticmethod(request.without_ours)
    without_stream = staticmethod(request.without_stream)

    error_body = staticmethod(errors.error_body)
    error_event = staticmethod(errors.error_event)


API: Api = ChatCompletions()
