"""A provider of Anthropic's API, as a script for `tests.recorder`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.recorder import Peer, Request, Script, answer, chunk, head

USAGE = {"input_tokens": 25, "output_tokens": 2}
DONE: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "usage": USAGE}
DONE |= {"content": [{"type": "text", "text": "Hello you"}], "stop_reason": "end_turn", "stop_sequence": None}
EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "message_start", "message": {**DONE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " you"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": USAGE},
    {"type": "message_stop"},
)


def piece(event: dict[str, Any]) -> bytes:
    return chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


def claude(after: Callable[[int], Any] = lambda number: None) -> Script:
    """A provider that answers; `after` is called, and awaited, after so many events of a stream."""

    async def script(request: Request, peer: Peer) -> None:
        if not json.loads(request.body).get("stream"):
            await peer.send(answer(json.dumps(DONE).encode()))
            return
        await peer.send(head(b"200 OK", b"content-type: text/event-stream", b"transfer-encoding: chunked"))
        for number, event in enumerate(EVENTS):
            await peer.send(piece(event))
            if (waits := after(number)) is not None:
                await waits(peer)
        await peer.send(chunk(b""))

    return script


def refusing(status: bytes, kind: str, message: str, *headers: bytes) -> Script:
    async def script(request: Request, peer: Peer) -> None:
        told = {"type": "error", "error": {"type": kind, "message": message}}
        await peer.send(answer(json.dumps(told).encode(), status, (b"content-type: application/json", *headers)))

    return script
