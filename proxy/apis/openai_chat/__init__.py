"""OpenAI's Chat Completions API."""

from __future__ import annotations

from proxy.apis.openai_chat import request, response
from proxy.apis.openai_chat import scan as scanning
from proxy.model.api import Api, never_joined
from proxy.wire.openai import stream, usage


class ChatCompletions:
    """POST /v1/chat/completions; see `proxy.model.api.Api`."""

    name = request.NAME
    paths = (request.PATH, request.BARE_PATH, request.AZURE_PATH)

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
    is_end_of_stream = staticmethod(stream.is_end_of_stream)
    keep_alive = staticmethod(response.keep_alive)

    error_body = staticmethod(response.error_body)
    error_event = staticmethod(response.error_event)
    refusal_stream = staticmethod(response.refusal_stream)
    hold_s = response.HOLD_S
    compact_paths = ()
    root = ""


API: Api = ChatCompletions()
