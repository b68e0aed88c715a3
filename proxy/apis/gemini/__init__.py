"""Gemini's own API, as far as the proxy itself calls it, and its kind of server."""

from __future__ import annotations

from proxy.apis.gemini import count
from proxy.model.server import Server

COUNT_BODY = count.body
SERVERS = (Server("gemini", roots=("/v1beta/",), words=("v1beta",)),)
