"""The APIs, one package each."""

from __future__ import annotations

from proxy.errors import ClientError


def error_body(path: str, error: ClientError) -> bytes:
    """The JSON of an error for a client of `path`: in the shape of that path's API, OpenAI's by default."""
    return error.body()
