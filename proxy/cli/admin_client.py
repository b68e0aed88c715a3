"""A client of a running proxy's admin endpoints: what it learned about a model, its figures, its last requests."""

from __future__ import annotations

import http.client
import json
from collections.abc import Collection
from typing import Any
from urllib.parse import quote, urlsplit

TIMEOUT_S = 5.0
HEADER, NO_TOKEN = "x-plimsoll-admin", "1"
LEARNED_KEYS = frozenset(("model", "limits", "counts", "agreed"))
MAX_RESPONSE_BYTES = 16 << 20
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}  # to reach a proxy that listens on all addresses


class RequestFailed(Exception):
    """The request failed; the text has the reason. `reached`: there was a response."""

    def __init__(self, text: str, *, reached: bool) -> None:
        super().__init__(text)
        self.reached = reached


def url_of(host: str, port: int, scheme: str = "http") -> str:
    """The URL of a proxy that listens on this address."""
    host = LOOPBACK.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{scheme}://{host}:{port}"


def learned(url: str, model: str, token: str = NO_TOKEN) -> dict[str, Any]:
    """What the proxy at `url` learned about a model, as JSON. `token`: its PLIMSOLL_ADMIN_TOKEN, if that is set.

    Raises `RequestFailed`, and `ValueError` for an invalid URL.
    """
    return _request(url, "GET", f"/learned?model={quote(model, safe='')}", token, LEARNED_KEYS)


def overview(url: str, token: str = NO_TOKEN) -> dict[str, Any]:
    """The figures of the proxy at `url` since its start, as JSON. Raises as `learned`."""
    return _request(url, "GET", "/api/overview", token, ("requests", "tokens", "models"))


def requests(url: str, count: int, token: str = NO_TOKEN) -> dict[str, Any]:
    """Its last requests, newest first, as JSON. Raises as `learned`."""
    return _request(url, "GET", f"/api/requests?limit={count}", token, ("requests",))


def forget(url: str, model: str, token: str = NO_TOKEN) -> dict[str, Any]:
    """Makes the proxy at `url` forget what it learned about a model, and returns that. Raises as `learned`."""
    return _request(url, "POST", "/forget", token, LEARNED_KEYS, json.dumps({"model": model}))


def _request(
    url: str, method: str, path: str, token: str, keys: Collection[str], body: str | None = None
) -> dict[str, Any]:
    """The JSON object of a response; it has these keys."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in ("http", "https"):
        raise ValueError("must be the URL of a running proxy, such as http://127.0.0.1:8080")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=TIMEOUT_S)
    try:
        connection.request(method, parts.path.rstrip("/") + path, body, {HEADER: token})
        response = connection.getresponse()
        status, payload = response.status, response.read(MAX_RESPONSE_BYTES)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise RequestFailed(f"no proxy responds at {url}: {reason}", reached=False) from None
    finally:
        connection.close()
    return _parse(url, status, payload, keys)


def _parse(url: str, status: int, payload: bytes, keys: Collection[str]) -> dict[str, Any]:
    try:
        body = json.loads(payload)
    except ValueError:
        body = None
    if status == 200 and isinstance(body, dict) and all(key in body for key in keys):
        return body
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    reason = f": {message}" if isinstance(message, str) else "; is this Plimsoll's admin port?"
    if status == 401:
        reason += " Set PLIMSOLL_ADMIN_TOKEN as for the proxy."
    raise RequestFailed(f"{url} returned {status}{reason}", reached=True)
