"""Questions of the command line to a running proxy: what it learned of a model, and to forget that."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote, urlsplit

SECONDS = 5.0  # that an answer is waited for
HEADERS = {"x-plimsoll-admin": "1"}
MOST_BYTES = 16 << 20  # of an answer
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}  # where to ask what listens on every address


class Unanswered(Exception):
    """It did not do what it was asked; its text says why. `reached` says that something answered."""

    def __init__(self, text: str, *, reached: bool) -> None:
        super().__init__(text)
        self.reached = reached


def place(host: str, port: int) -> str:
    """The URL of a proxy that listens there."""
    host = ANYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host and not host.startswith("[") else f"http://{host}:{port}"


def learned(url: str, model: str) -> dict[str, Any]:
    """What the proxy at a URL learned of a model. Raises Unanswered, and ValueError for what is no URL."""
    return _asked(url, "GET", f"/learned?model={quote(model, safe='')}")


def forget(url: str, model: str) -> dict[str, Any]:
    """Has the proxy at a URL forget what it learned of a model; what that was. Raises as `learned`."""
    return _asked(url, "POST", "/forget", json.dumps({"model": model}))


def _asked(url: str, method: str, path: str, body: str | None = None) -> dict[str, Any]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in ("http", "https"):
        raise ValueError("must be the URL of a running proxy, such as http://127.0.0.1:8080")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=SECONDS)
    try:
        connection.request(method, parts.path.rstrip("/") + path, body, HEADERS)
        answer = connection.getresponse()
        status, payload = answer.status, answer.read(MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unanswered(f"no proxy answers at {url}: {why}", reached=False) from None
    finally:
        connection.close()
    return _read(url, status, payload)


def _read(url: str, status: int, payload: bytes) -> dict[str, Any]:
    try:
        told = json.loads(payload)
    except ValueError:
        told = None
    if status == 200 and isinstance(told, dict) and {"model", "limits", "counts", "agreed"} <= told.keys():
        return told
    error = told.get("error") if isinstance(told, dict) else None
    said = error.get("message") if isinstance(error, dict) else None
    why = f"it answers {status}" + (f": {said}" if isinstance(said, str) else "; is that Plimsoll's admin port?")
    raise Unanswered(f"{url} does not tell: {why}", reached=True)
