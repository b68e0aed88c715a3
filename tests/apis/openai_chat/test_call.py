"""The JSON of the proxy's own chat requests, and the text in their responses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.openai_chat.call import request_body, text_in


def test_a_request_has_a_system_message_a_user_message_and_no_reply_limit() -> None:
    said = json.loads(request_body("m", "be short", "hello", 100))
    system, user = {"role": "system", "content": "be short"}, {"role": "user", "content": "hello"}
    assert said == {"model": "m", "messages": [system, user]}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Red.", "Red."),
        ("", ""),
        (None, ""),
        (7, ""),
        ([{"type": "text", "text": "Re"}, {"type": "text", "text": "d."}, {"type": "image"}, 7], "Red."),
    ],
)
def test_the_text_is_that_of_the_first_choice(content: Any, text: str) -> None:
    assert text_in(json.dumps({"choices": [{"message": {"content": content}}, {"message": {}}]}).encode()) == text


def test_a_response_without_choices_has_an_empty_text() -> None:
    assert text_in(b'{"choices":[]}') == ""


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"error":{"message":"no"}}', b"\xff", b"[" * 100_000])
def test_what_is_no_response_has_none(body: bytes) -> None:
    assert text_in(body) is None
