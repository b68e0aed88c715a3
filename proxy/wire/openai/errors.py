"""The JSON of the proxy's own errors in the shape that OpenAI's APIs share."""

from __future__ import annotations

import msgspec

from proxy.model.api import ErrorFields


def error_body(error: ErrorFields) -> bytes:
    """The body of an error response. All four keys of OpenAI's error object are always present."""
    fields = {"message": error.message, "type": error.kind, "param": error.param, "code": error.code or None}
    return msgspec.json.encode({"error": fields})


def error_event(error: ErrorFields) -> bytes:
    """The server-sent event that reports an error in a stream that has begun."""
    return b"data: " + error_body(error) + b"\n\n"
