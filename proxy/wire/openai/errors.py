"""The JSON of the proxy's own errors in the shape that OpenAI's APIs share."""

from __future__ import annotations

import msgspec

from proxy.errors import CONTEXT_LENGTH_EXCEEDED, INSUFFICIENT_QUOTA
from proxy.model.api import ErrorFields

# The statuses whose cause is not the request. 501 and 505 name a part of HTTP that the client may not use.
SERVER_ERRORS = frozenset((500, 502, 503, 504))


def error_body(error: ErrorFields, too_long: str | None = None) -> bytes:
    """The body of an error response. All four keys of OpenAI's error object are always present.

    `too_long` is the field that is too long when the request does not fit the context window.
    """
    param = too_long if error.code == CONTEXT_LENGTH_EXCEEDED else error.param
    kind = "server_error" if error.status in SERVER_ERRORS else "invalid_request_error"
    if error.code == INSUFFICIENT_QUOTA:
        kind = INSUFFICIENT_QUOTA
    fields = {"message": error.message, "type": kind, "param": param, "code": error.code or None}
    return msgspec.json.encode({"error": fields})


def error_event(error: ErrorFields, too_long: str | None = None) -> bytes:
    """The server-sent event that reports an error in a stream that has begun; its data is the body."""
    return b"data: " + error_body(error, too_long) + b"\n\n"
