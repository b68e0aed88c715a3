"""The proxy's own calls of POST /v1/messages: the JSON of a request, and the text in a response."""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.model.lenient_json import UNREADABLE, mapping, string

VERSION = (b"anthropic-version", b"2023-06-01")  # where no client's own is at hand: every version has what is sent
LEAST_REPLY = 4_096  # tokens: the API requires a limit, and the oldest models take no more


class _Response(msgspec.Struct):
    content: list[Any]


_RESPONSE = msgspec.json.Decoder(_Response)


def request_body(model: str, instructions: str, text: str, most: int) -> bytes:
    """The body of a request with a system prompt and a user message. A reply of about `most` tokens is expected; its
    limit leaves room for what a model says around it."""
    messages = [{"role": "user", "content": text}]
    fields = {"model": model, "max_tokens": max(LEAST_REPLY, 2 * most), "system": instructions, "messages": messages}
    return msgspec.json.encode(fields)


def text_in(body: bytes) -> str | None:
    """The text of a response's text blocks; None for what is no response of this API."""
    try:
        blocks = _RESPONSE.decode(body).content
    except UNREADABLE:
        return None
    return "".join(string(mapping(block).get("text")) for block in blocks if mapping(block).get("type") == "text")
