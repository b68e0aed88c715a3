"""OpenAI's Responses API, and that of Azure and of compatible servers."""

from __future__ import annotations

from proxy.apis.openai_responses import request, response
from proxy.apis.openai_responses import scan as scanning
from proxy.model.api import Api, never_joined
from proxy.wire.openai import usage


class Responses:
    """POST /v1/responses; see `proxy.model.api.Api`."""

    name = request.NAME
    paths = (request.PATH, request.BARE_PATH, *request.AZURE_PATHS, *request.COMPACT_PATHS)
    compact_paths = request.COMPACT_PATHS
    root = ""

    numeric = False
    recognises = staticmethod(request.recognises)
    scan = staticmethod(scanning.scan)
    known_prefix = staticmethod(scanning.known_prefix)
    parse = staticmethod(request.parse)
    render = staticmethod(request.render)
    without_extension = staticmethod(request.without_extension)
    without_stream = staticmethod(request.without_stream)
    without_truncation = None
    joined = staticmethod(never_joined)

    usage_key = usage.KEY
    complete_usage = staticmethod(response.complete_usage)
    event_kind = staticmethod(response.event_kind)
    read = staticmethod(response.read)
    read_tail = staticmethod(response.read_tail)
    landmarks = staticmethod(response.landmarks)
    is_end_of_stream = staticmethod(response.is_end_of_stream)
    keep_alive = staticmethod(response.keep_alive)

    error_body = staticmethod(response.error_body)
    error_event = staticmethod(response.error_event)
    refusal_stream = staticmethod(response.refusal_stream)
    hold_s = response.HOLD_S


API: Api = Responses()
