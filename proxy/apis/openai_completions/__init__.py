"""OpenAI's Completions API, which continues texts."""

from __future__ import annotations

from proxy.apis.openai_completions import request, response
from proxy.model.api import Api, never_joined
from proxy.wire.openai import choices, stream, usage


class Completions:
    """POST /v1/completions; see `proxy.model.api.Api`."""

    name = request.NAME
    paths = (request.PATH, request.BARE_PATH, request.AZURE_PATH)

    numeric = True
    recognises = staticmethod(request.recognises)
    scan = staticmethod(request.scan)
    known_prefix = staticmethod(request.known_prefix)
    parse = staticmethod(request.parse)
    render = staticmethod(request.render)
    without_extension = staticmethod(request.without_extension)
    without_stream = staticmethod(request.without_stream)
    without_truncation = None
    joined = staticmethod(never_joined)

    usage_key = usage.KEY
    complete_usage = staticmethod(response.complete_usage)
    event_kind = staticmethod(choices.event_kind)
    read = staticmethod(choices.read)
    read_tail = staticmethod(choices.read_tail)
    landmarks = staticmethod(choices.landmarks)
    is_end_of_stream = staticmethod(stream.is_end_of_stream)
    keep_alive = staticmethod(choices.keep_alive)

    error_body = staticmethod(response.error_body)
    error_event = staticmethod(response.error_event)
    refusal_stream = staticmethod(response.refusal_stream)
    hold_s = response.HOLD_S
    compact_paths = ()
    root = ""


API: Api = Completions()
