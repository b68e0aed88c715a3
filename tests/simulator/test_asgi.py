"""Responses over ASGI."""

from __future__ import annotations

from proxy.simulator.asgi import EVENT_HEADERS, JSON_HEADERS, failing, whole


def test_a_whole_response_knows_its_length_and_comes_in_two_chunks() -> None:
    made = whole(201, b"abcde", more=((b"x", b"y"),))
    assert made.status == 201 and tuple(made.chunks) == (b"ab", b"cde")
    assert tuple(made.headers) == (*JSON_HEADERS, (b"content-length", b"5"), (b"x", b"y"))
    assert tuple(whole(200, b"", EVENT_HEADERS).headers) == (*EVENT_HEADERS, (b"content-length", b"0"))


def test_a_stream_that_fails_ends_with_its_error() -> None:
    def chunks() -> list[bytes]:
        return [b"a", b"b", b"c"]

    assert list(failing(chunks(), None, b"!")) == chunks()
    assert list(failing(chunks(), 2, b"!")) == [b"a", b"b", b"!"]
    assert list(failing(chunks(), 0, b"!")) == [b"!"]
