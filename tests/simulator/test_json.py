"""The simulator's own JSON helpers."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator.json import decode_object, text_of


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"1", b"null", b'{"a":"\xff"}', b"[" * 100_000])
def test_what_is_no_object(raw: bytes) -> None:
    assert decode_object(raw) is None


def test_an_object_is_its_fields() -> None:
    assert decode_object(b' {"a": [1, null], "b": "\\u00e4"}') == {"a": [1, None], "b": "ä"}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("x", "x"),
        ([{"type": "text", "text": "a"}, {"type": "image_url"}, {"text": "b"}], "ab"),
        ([{"text": 1}, "x", None], ""),
        (None, ""),
        (7, ""),
    ],
)
def test_the_text_of_a_content(content: Any, text: str) -> None:
    assert text_of(content) == text
