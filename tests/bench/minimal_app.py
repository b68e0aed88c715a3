"""The application of the A/B of servers: reads the body and answers, whole or in chunks. It imports nothing of ours, so
that any ASGI server runs it in an environment of its own."""

from __future__ import annotations

from typing import Any

ANSWER = b'{"id":"chatcmpl-1","object":"chat.completion","choices":[],"usage":{"prompt_tokens":1}}' + b" " * 200
CHUNK = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"delta":{"content":" word"}}]}\n\n'
CHUNKS = 100
WHOLE = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
STREAM = [(b"content-type", b"text/event-stream")]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers every request with 200; in chunks where its body asks for a stream."""
    if scope["type"] != "http":
        raise ValueError(scope["type"])  # the application has no lifespan
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    body = b"".join(parts)
    if b'"stream":true' not in body[:64]:
        await send({"type": "http.response.start", "status": 200, "headers": WHOLE})
        await send({"type": "http.response.body", "body": ANSWER})
        return
    await send({"type": "http.response.start", "status": 200, "headers": STREAM})
    for _ in range(CHUNKS):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
