"""The JSON of the proxy's own requests of the Messages API, and the text in their responses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.anthropic_messages.call import LEAST_REPLY, request_body, text_in


def test_a_request_has_a_system_prompt_a_user_message_and_room_for_the_reply() -> None:
    assert json.loads(request_body("m", "be short", "hello", 100)) == {
        "model": "m",
        "max_tokens": LEAST_REPLY,
        "system": "be short",
        "messages": [{"role": "user", "content": "hello"}],
    }
    assert json.loads(request_body("m", "", "", 5_000))["max_tokens"] == 10_000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Re"}, {"type": "text", "text": "d."}],
            "Red.",
        ),
        ([], ""),
        ([7, {"type": "text"}, {"type": "text", "text": 5}], ""),
    ],
)
def test_the_text_is_that_of_all_text_blocks(content: Any, text: str) -> None:
    assert text_in(json.dumps({"content": content}).encode()) == text


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"error":{"message":"no"}}', b'{"content":"x"}', b"[" * 100_000])
def test_what_is_no_response_has_none(body: bytes) -> None:
    assert text_in(body) is None
