"""HAR 1.2 archives, of browsers, proxies and mitmproxy (`mitmdump -nr f --set hardump=out.har`).

Source: HTTP Archive 1.2, "entries", "postData". Answers that were streams are often missing from them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from proxy.apis import at, by_path, named
from proxy.config.price_hosts import provider_at
from proxy.model.api import ResponseState
from proxy.model.lenient_json import Json, RawFields, mapping, string
from proxy.model.outcome import Usage
from proxy.replay.recorded import EachEntry, Found, Reader, Recorded, Skipped
from proxy.replay.values import MAX_NAME, moment, of, status, text


def recognises(fields: RawFields) -> bool:
    """Whether it is an archive, or one entry of it."""
    return "log" in fields or ("startedDateTime" in fields and bool({"request", "pageTimings"} & fields.keys()))


def read(entry: bytes, fields: RawFields) -> Iterator[Found]:
    """An archive, or one of its entries."""
    if "log" not in fields:
        yield _request({name: of(fields, name) for name in ("startedDateTime", "request", "response")})
        return
    entries = mapping(of(fields, "log")).get("entries")
    if not isinstance(entries, list):
        yield Skipped("an archive without entries")
        return
    for one in entries:
        yield _request(mapping(one))


def _request(entry: Mapping[str, Json]) -> Found:
    request, response = mapping(entry.get("request")), mapping(entry.get("response"))
    path = _path(string(request.get("url")))
    known = (known for known in by_path() if path.endswith(known.removeprefix("/v1")))
    api_path = next(known, path if named(path) is not None else "")
    if request.get("method") != "POST" or not api_path:
        return Skipped("a request that is none to a model", other=True)
    body = string(mapping(request.get("postData")).get("text")).encode("utf-8", "replace")
    if not body:
        return Skipped("a request without its body")
    return Recorded(
        body,
        at=moment(entry.get("startedDateTime")),
        path=api_path,
        app=_header(request, "user-agent"),
        usage=_usage(api_path, response),
        status=status(response.get("status")),
        provider=provider_at(_host(string(request.get("url")))),
    )


def _path(url: str) -> str:
    try:
        return urlsplit(url[: MAX_NAME * 10]).path.rstrip("/")
    except ValueError:
        return ""


def _host(url: str) -> str:
    try:
        return urlsplit(url[: MAX_NAME * 10]).hostname or ""
    except ValueError:
        return ""


def _header(request: Mapping[str, Json], name: str) -> str:
    headers = request.get("headers")
    for header in headers if isinstance(headers, list) else ():
        if string(mapping(header).get("name")).lower() == name:
            return text(mapping(header).get("value")).partition(" ")[0]
    return ""


def _usage(path: str, response: Mapping[str, Json]) -> Usage | None:
    content = mapping(response.get("content"))
    body = string(content.get("text"))
    try:
        raw = base64.b64decode(body) if content.get("encoding") == "base64" else body.encode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return None
    api = at(path)
    assert api is not None  # `_request` found it
    state = ResponseState()
    if raw.lstrip()[:1] == b"{":
        return api.response.read(raw, state).usage
    for line in raw.splitlines():
        if line.startswith(b"data:") and api.usage_key in line:
            state = api.response.read(line[5:].strip(), state)
    return state.usage


READER = Reader("HAR", recognises, lambda: EachEntry(read))
