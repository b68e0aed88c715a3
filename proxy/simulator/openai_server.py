"""What all APIs of OpenAI's server refuse: a wrong method, and a body that is no object."""

from __future__ import annotations

from typing import Any

from proxy.simulator.check import ApiError
from proxy.simulator.json import decode_object
from proxy.simulator.settings import RecordedRequest


def posted(request: RecordedRequest) -> tuple[bytes, dict[str, Any]]:
    """The decompressed body of a POST, and its fields. Raises `ApiError` (405, 400)."""
    check_method(request, "POST")
    raw = request.decompressed()
    body = decode_object(raw)
    if body is None:
        raise ApiError(400, "We could not parse the JSON body of your request.")
    return raw, body


def check_method(request: RecordedRequest, method: str) -> None:
    """Raises `ApiError` (405) for a request of another method."""
    if request.method != method:
        raise ApiError(405, f"Not allowed to {request.method} on {request.path}.")
