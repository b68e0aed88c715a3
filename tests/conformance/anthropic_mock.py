"""A mock of Anthropic's API, made from the package itself: every endpoint of its api.md answers with a value of the
type that the package says it returns. It checks nothing.

`python anthropic_mock.py API_MD PORT`, by the interpreter in which the package is installed.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from datetime import date, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

ENDPOINT = re.compile(
    r'<code title="(\w+) ([^"?]+)[^"]*">client\.(beta\.)?.* -> (?:<a href="\./src/(\S+)\.py">([^<]+)</a>|(\w+))</code>'
)
GENERIC = re.compile(r"(\w+)\[(\w+)\]")
MAX_DEPTH = 12  # of values within values; deeper lists are empty
PLAIN: dict[Any, Any] = {
    str: "x",
    int: 0,
    float: 1.0,
    bool: True,
    object: {},
    datetime: "2019-12-27T18:11:19.117Z",
    date: "2019-12-27",
    type(None): None,
}
EVENT = b'event: ping\ndata: {"type": "ping"}\n\n'
NOTHING = ("application/json", b"{}")
Answers = dict[tuple[str, re.Pattern[str], bool], tuple[str, bytes]]  # by method, path, and whether it is a beta


def answers(text: str) -> Answers:
    """The media type and the body of the answer to each method and path of an api.md."""
    found: Answers = {}
    rows = sorted(ENDPOINT.findall(text), key=lambda row: row[1].count("{"))  # /x/y is no /x/{id}
    for method, path, beta, module, name, plain in rows:
        pattern = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))
        found[method.upper(), pattern, bool(beta)] = NOTHING if plain else answer(module.replace("/", "."), name)
    return found


def answer(module: str, name: str) -> tuple[str, bytes]:
    """The answer of an endpoint that returns this type: a value, null where it may be none, a page of values, or lines
    of them."""
    generic = GENERIC.fullmatch(name)
    one = value(getattr(importlib.import_module(module), generic[2] if generic else name))
    if generic and generic[1].startswith("JSONL"):
        return "application/x-jsonl", json.dumps(one).encode() + b"\n"
    if generic and generic[1] == "Optional":
        one = None
    elif generic:
        one = {"data": [one], "has_more": False, "first_id": None, "last_id": None, "next_page": None}
    return "application/json", json.dumps(one).encode()


def value(kind: Any, depth: int = 0) -> Any:
    """A value of a type, as JSON: of a model its required fields."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if origin is Literal:
        return args[0]
    if origin in (list, tuple):
        return [value(args[0], depth + 1)] if depth < MAX_DEPTH else []
    if origin is dict:
        return {"x": value(args[1], depth + 1)} if depth < MAX_DEPTH else {}
    if origin is Union or type(kind).__name__ == "UnionType":
        return None if type(None) in args else value(args[0], depth)
    if origin is not None:  # Annotated
        return value(args[0], depth)
    if inspect.isclass(kind) and hasattr(kind, "model_fields"):
        return dict(_fields(kind, depth))
    return value(kind.__value__, depth) if hasattr(kind, "__value__") else {}


def _fields(model: Any, depth: int) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        if field.is_required():
            yield field.alias or name, value(field.annotation, depth + 1)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"
    known: Answers

    def do_POST(self) -> None:
        """Any method."""
        body, (path, _, query) = self._body(), self.path.partition("?")
        asked = [(beta, one) for (m, p, beta), one in self.known.items() if m == self.command and p.fullmatch(path)]
        found = next((one for beta, one in asked if beta == ("beta=true" in query)), None)
        status = 404 if found is None else 200
        kind, told = found or NOTHING
        if b'"stream": true' in body or b'"stream":true' in body:
            kind, told = "text/event-stream", EVENT
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(told)))
        self.send_header("connection", "close")  # as it was asked: a client must not send another request on it
        self.end_headers()
        self.wfile.write(told)

    do_GET = do_DELETE = do_PUT = do_PATCH = do_POST

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what comes is noted before it."""


if __name__ == "__main__":
    Handler.known = answers(Path(sys.argv[1]).read_text())
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
