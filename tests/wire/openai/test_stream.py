"""The last event of a stream, however a server writes it."""

from __future__ import annotations

import pytest

from proxy.wire.openai.stream import is_end_of_stream


@pytest.mark.parametrize("tail", [b"data: [DONE]\n\n", b"data:[DONE]\r\n\r\n", b'data: {"a":1}\n\ndata: [DONE]'])
def test_done_ends_a_stream(tail: bytes) -> None:
    assert is_end_of_stream(tail)


@pytest.mark.parametrize("tail", [b"", b"data: [DONE]\n\ndata: {}\n\n", b"data: [DONE", b': "[DONE]"\n\n'])
def test_nothing_else_does(tail: bytes) -> None:
    assert not is_end_of_stream(tail)
