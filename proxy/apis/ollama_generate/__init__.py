"""Ollama's native API that continues texts."""

from __future__ import annotations

from proxy.apis.ollama_generate import request
from proxy.model.api import Api, never_joined
from proxy.wire.ollama import options, response


class OllamaGenerate:
    """POST /api/generate; see `proxy.model.api.Api`."""

    name = request.NAME
    paths = (request.PATH,)

    numeric = True
    recognises = staticmethod(request.recognises)
    scan = staticmethod(request.scan)
    known_prefix = staticmethod(request.known_prefix)
    parse = staticmethod(request.parse)
    render = staticmethod(request.render)
    without_extension = staticmethod(request.without_extension)
    without_stream = staticmethod(options.without_stream)
    joined = staticmethod(never_joined)
    without_truncation = staticmethod(options.without_truncation)

    usage_key = response.USAGE_KEY
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
    compact_paths = ()
    root = "/api/"


API: Api = OllamaGenerate()
