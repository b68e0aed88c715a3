"""Ollama's kind of server: its own APIs stand beside those of OpenAI's that it imitates."""

from __future__ import annotations

from proxy.model.server import LoadedList, Server
from proxy.wire.ollama import loaded

OLLAMA = Server(
    "ollama",
    lists=("/api/tags", "/api/ps"),
    roots=("/api/",),
    beside=True,
    asked_at="/v1/chat/completions",
    loaded=LoadedList(loaded.PATH, loaded.windows_in, loaded.tagged),
    words=tuple("api embed tags show pull push create copy delete ps version".split()),
    labels={"api": "ollama"},
)
