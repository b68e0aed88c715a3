"""A proxy's admin port with figures that do not change, for tests of what shows them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OVERVIEW: dict[str, Any] = {
    "at": 1_700_010_000.0,
    "token": "that-changes-at-every-start",
    "started_at": 1_700_000_000.0,
    "version": {"plimsoll": "0.9.0", "python": "3.11.2", "litellm": "1.106.2"},
    "workers": {"count": 2, "reached": 2},
    "requests": {
        **{"total": 1234, "measured": 1200, "in_flight": 3, "cut": 85, "cut_share": 0.0708, "healed": 5},
        **{"rescued": 60, "unfit": 2, "failed": 4},
    },
    "tokens": {"prompt": 5_000_000, "prompt_sent": 4_200_000, "saved": 800_000, "cached": 1_000_000},
    "money": {"saved_net": 2.4},
    "own_seconds": {"p50": 0.00009, "p99": 0.0021},
    "upstream_seconds": {"p50": 0.9, "p99": 9.0},
    "models": [
        {
            **{"model": "gpt-4o", "requests": 100, "window": 128_000, "source": "table", "load_p95": 0.97},
            **{"saved": 800_000, "cut": 7, "unfit": 2},
        }
    ],
    "redis": {"configured": True, "healthy": True},
    "rules": {"valid": True},
    "memory": {"refused": 0},
}
CUT: dict[str, Any] = {
    **{"id": "0-a-2", "at": 1_700_009_990.0, "endpoint": "chat", "path": "/v1/chat/completions", "result": "fitted"},
    **{"status": 200, "model": "gpt-4o", "model_sent": "gpt-4o", "window": 128_000, "prompt": 140_000},
    **{"prompt_sent": 90_000, "load_before": 1.12, "load_after": 0.73, "upstream_ms": 820.0, "upstream": ""},
    "steps": [{"step": "prune_history", "tokens_before": 140_000, "tokens_after": 90_000}],
}
PASSED = {
    **CUT,
    **{"id": "0-a-1", "model": "o3-mini", "model_sent": "o3-mini", "result": "passed", "steps": [], "load_before": 0.1},
    **{"prompt": 512, "prompt_sent": 512},
}


@dataclass(slots=True)
class Admin:
    """The port, what is answered there, and the paths that were asked for with their tokens."""

    port: int = 0
    overview: dict[str, Any] = field(default_factory=lambda: OVERVIEW)
    requests: list[dict[str, Any]] = field(default_factory=lambda: [CUT, PASSED])
    token: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, token: str) -> tuple[int, Any]:
        self.asked.append((path, token))
        if self.token and token != self.token:
            return 401, {"error": {"code": "token_required", "message": "The token is missing or wrong."}}
        if path == "/api/overview":
            return 200, self.overview
        return 200, {"requests": self.requests, "more": False}


@contextmanager
def admin_server(admin: Admin) -> Iterator[Admin]:
    """The port, open until the end of the block. The next block gets the same one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = admin.answer(self.path, self.headers.get("x-plimsoll-admin", ""))
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *values: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", admin.port), Handler)
    admin.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield admin
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
