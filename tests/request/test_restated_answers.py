"""The answer to a request that was cut, whose usage tells of what the client asked with."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest

from proxy.apis.openai_chat import API
from proxy.http.client.answer import Answer, UpstreamError
from proxy.http.client.response import Fault, TransportError
from proxy.request import restated_answers
from proxy.request.restated_answers import restated, restated_whole
from proxy.wire.headers import Header
from proxy.wire.restated import Change

CHANGE = Change(API, 1_000)
EVENTS = (b"content-type", b"text/event-stream")
JSON = (b"content-type", b"application/json")
SAID = b'data: {"choices":[]}\n\ndata: {"usage":{"prompt_tokens":%d}}\n\n'


class Reply:
    """An upstream's reply in pieces; it breaks off after them."""

    def __init__(self, *pieces: bytes, headers: tuple[Header, ...] = (EVENTS,), breaks: bool = False) -> None:
        self.status, self.headers = 200, [*headers]
        self.pieces, self.breaks, self.closed = [*pieces], breaks, False

    async def read(self) -> bytes:
        if self.pieces:
            return self.pieces.pop(0)
        if self.breaks:
            raise TransportError(Fault.INCOMPLETE, "lost")
        return b""

    async def pipe_to(self, sink: Any) -> None:
        raise AssertionError

    def buffered_body(self) -> bytes | None:
        return None

    async def aclose(self) -> None:
        self.closed = True


async def passed(answer: Answer) -> list[bytes]:
    got = []
    while chunk := await answer.next():
        got.append(chunk)
    assert answer.whole
    return got


def test_what_was_read_before_comes_first_and_who_watches_sees_what_the_upstream_sent() -> None:
    raw = SAID % 7
    seen: list[bytes] = []
    reply = Reply(raw[10:40], raw[40:], headers=(EVENTS, (b"content-length", b"%d" % len(raw)), (b"x-a", b"1")))
    answer = restated(CHANGE, Answer(reply), raw[:10], seen.append)
    assert answer is not None and answer.headers == [EVENTS, (b"x-a", b"1")]
    assert b"".join(asyncio.run(passed(answer))) == SAID % 1_007 and b"".join(seen) == raw


def test_each_event_passes_when_it_is_there() -> None:
    first, second = SAID[: SAID.index(b"\n\n") + 2], (SAID % 7)[SAID.index(b"\n\n") + 2 :]
    answer = restated(CHANGE, Answer(Reply(first, second)), b"", lambda chunk: None)
    assert answer is not None and asyncio.run(passed(answer))[0] == first


@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_a_coded_answer_is_decoded_piece_by_piece(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(restated_answers, "MAX_INFLATED", 5)
    packed = gzip.compress(SAID % 7)
    seen: list[bytes] = []
    pieces = [packed[start : start + size] for start in range(0, len(packed), size)]
    answer = restated(
        CHANGE, Answer(Reply(*pieces, headers=(EVENTS, (b"content-encoding", b"gzip")))), b"", seen.append
    )
    assert answer is not None and answer.headers == [EVENTS]
    assert b"".join(asyncio.run(passed(answer))) == SAID % 1_007 and b"".join(seen) == packed


def test_what_is_not_coded_as_it_says_breaks_off() -> None:
    reply = Reply(b"no gzip", headers=(EVENTS, (b"content-encoding", b"gzip")))
    answer = restated(CHANGE, Answer(reply), b"", lambda chunk: None)
    assert answer is not None
    with pytest.raises(UpstreamError):
        asyncio.run(passed(answer))


def test_an_upstream_that_breaks_off_in_the_middle_of_an_event_breaks_off_here() -> None:
    raw = SAID % 7

    async def check() -> None:
        reply = Reply(raw[:-9], breaks=True)
        answer = restated(CHANGE, Answer(reply), b"", lambda chunk: None)
        assert answer is not None and await answer.next() == raw[: raw.index(b"\n\n") + 2]
        with pytest.raises(UpstreamError):
            await answer.next()
        await answer.close()
        assert reply.closed

    asyncio.run(check())


@pytest.mark.parametrize("headers", [(), ((b"content-type", b"text/html"),), (EVENTS, (b"content-encoding", b"br"))])
def test_what_cannot_be_read_is_left_alone(headers: tuple[Header, ...]) -> None:
    assert restated(CHANGE, Answer(Reply(headers=headers)), b"", lambda chunk: None) is None
    error = Reply(headers=(JSON,))
    error.status = 400
    assert restated(CHANGE, Answer(error), b"", lambda chunk: None) is None


def test_a_whole_answer_has_the_length_of_its_new_body() -> None:
    body = b'{"usage":{"prompt_tokens":7}}'
    reply = Reply(headers=(JSON, (b"content-length", b"%d" % len(body)), (b"etag", b"x")))
    answer, written = restated_whole(CHANGE, Answer(reply), body)
    assert written == b'{"usage":{"prompt_tokens":1007}}' and answer.headers == [JSON, (b"content-length", b"32")]
    assert asyncio.run(passed(answer)) == []
