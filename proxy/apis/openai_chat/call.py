"""The proxy's own calls of POST /v1/chat/completions: the JSON of a request, and the text in a response."""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.model.lenient_json import UNREADABLE, Json, mapping, string


class _Message(msgspec.Struct):
    content: Any = None


class _Choice(msgspec.Struct):
    message: _Message


class _Response(msgspec.Struct):
    choices: list[_Choice]


_RESPONSE = msgspec.json.Decoder(_Response)


def request_body(model: str, instructions: str, text: str, most: int) -> bytes:
    """The body of a request with a system message and a user message.

    It sets no reply limit, whatever is expected `most`: the field's name differs between models.
    """
    messages = [{"role": "system", "content": instructions}, {"role": "user", "content": text}]
    return msgspec.json.encode({"model": model, "messages": messages})


def text_in(body: bytes) -> str | None:
    """The text of a response's first choice, empty if it has none; None for what is no response of this API."""
    try:
        choices = _RESPONSE.decode(body).choices
    except UNREADABLE:
        return None
    return _text(choices[0].message.content) if choices else ""


def _text(content: Json) -> str:
    """A message's content as text: a string, or its text parts joined."""
    if not isinstance(content, list):
        return string(content)
    return "".join(string(mapping(part).get("text")) for part in content)
