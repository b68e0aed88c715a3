"""Questions to a running proxy: where it is, and what is said when it does not answer as one."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from proxy.cli.admin_client import RequestFailed, forget, learned, url_of
from tests.ports import held_port

TOLD = {"model": "a/b c", "limits": [], "counts": [], "agreed": {"callers": 0, "ratio": None}}


@contextmanager
def answering(status: int, payload: bytes) -> Iterator[tuple[str, list[str]]]:
    """A server that answers everything alike; its URL, and what it was asked."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.command} {self.path} {self.headers['x-plimsoll-admin']}")
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_proxy_is_asked_for_one_model() -> None:
    with answering(200, json.dumps(TOLD).encode()) as (url, asked):
        assert learned(url, "a/b c") == TOLD == forget(url + "/", "a/b c")
        assert asked == ["GET /learned?model=a%2Fb%20c 1", "POST /forget 1"]


@pytest.mark.parametrize(
    ("status", "payload", "said"),
    [
        (403, b'{"error":{"message":"No."}}', "returned 403: No."),
        (404, b"<html>", "returned 404; is this Plimsoll's admin port?"),
        (200, b"[]", "returned 200; is this"),
        (200, b'{"model":"x"}', "returned 200; is this"),
        (500, b'{"error":"x"}', "returned 500; is this"),
    ],
)
def test_what_does_not_tell_is_said_not_to(status: int, payload: bytes, said: str) -> None:
    with answering(status, payload) as (url, _), pytest.raises(RequestFailed, match="returned") as told:
        learned(url, "m")
    assert said in str(told.value) and told.value.reached


def test_nobody_there_is_said_with_the_reason() -> None:
    with held_port() as port:
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(RequestFailed, match=f"no proxy responds at {url}: Connection refused") as told:
            forget(url, "m")
    assert not told.value.reached


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://h", "http://", "http://h:99999", "http://[::1"])
def test_what_is_no_url_is_said_to_be_none(url: str) -> None:
    with pytest.raises(ValueError, match="must be the URL of a running proxy"):
        learned(url, "m")


def test_what_listens_everywhere_is_asked_on_this_machine() -> None:
    assert url_of("0.0.0.0", 1) == url_of("127.0.0.1", 1) == "http://127.0.0.1:1"
    assert url_of("::", 1) == "http://[::1]:1"
    assert url_of("llm.example.com", 8081, "https") == "https://llm.example.com:8081"
