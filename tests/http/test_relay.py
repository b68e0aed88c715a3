"""What a scripted client sees of an answer, and what happens when it leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from proxy.errors import ClientError
from proxy.http import relay as module
from proxy.http.client.answer import Answer
from proxy.http.client.response import Fault, TransportError
from proxy.http.receiving import Message
from proxy.http.relay import BrokenOff, ClientDisconnected, relay, send_error
from tests.serving import run

Step = bytes | Exception | asyncio.Event
JSON = [(b"content-type", b"application/json")]
SSE = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"transfer-encoding", b"chunked")]
LOST = TransportError(Fault.INCOMPLETE, "lost")


class Form:
    """The format of an invented API."""

    def error_event(self, error: ClientError) -> bytes:
        return (
            b"data: " + json.dumps([error.status, error.code, error.message], separators=(",", ":")).encode() + b"\n\n"
        )

    def is_end_of_stream(self, tail: bytes) -> bool:
        return tail.rstrip().endswith(b"event: end")


FORM = Form()


class Visitor:
    """A client: says its messages one after the other, then is silent until `leaves` is set; keeps what it got."""

    def __init__(self, *messages: Message) -> None:
        self._messages = list(messages)
        self.leaves = asyncio.Event()
        self.got: list[Message] = []

    async def receive(self) -> Message:
        if self._messages:
            return self._messages.pop(0)
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.got.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(m["body"] for m in self.got[1:])

    @property
    def ended(self) -> bool:
        return bool(self.got) and self.got[-1].get("more_body") is False


class Scripted:
    """An upstream's reply: bytes are given, exceptions raised, events waited for."""

    def __init__(self, steps: list[Step], headers: list[tuple[bytes, bytes]], status: int = 200) -> None:
        self.status, self.headers = status, headers
        self._steps = steps
        self.closed = False

    async def read(self) -> bytes:
        while self._steps:
            if isinstance(self._steps[0], asyncio.Event):
                await self._steps[0].wait()
            step = self._steps.pop(0)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, bytes):
                return step
        return b""

    async def pipe_to(self, sink: Any) -> None:
        return

    def buffered_body(self) -> bytes | None:
        return None

    async def aclose(self) -> None:
        self.closed = True


def reply(*steps: Step, headers: list[tuple[bytes, bytes]] | None = None, status: int = 200) -> Scripted:
    return Scripted(list(steps), JSON if headers is None else headers, status)


def test_an_answer_is_sent_as_it_comes_and_is_watched() -> None:
    async def check() -> None:
        visitor, made = Visitor(), reply(b"b", b"c", status=201)
        seen: list[bytes] = []
        await relay(
            Answer(made),
            visitor.receive,
            visitor.send,
            FORM,
            [b"", b"a"],
            [(b"x-plimsoll-count", b"exact")],
            seen.append,
        )
        assert visitor.got[0] == {
            "type": "http.response.start",
            "status": 201,
            "headers": [*JSON, (b"x-plimsoll-count", b"exact")],
        }
        assert [(m["body"], m["more_body"]) for m in visitor.got[1:]] == [
            (b"a", True),
            (b"b", True),
            (b"c", True),
            (b"", False),
        ]
        assert seen == [b"a", b"b", b"c"]
        assert not made.closed

    run(check())


def test_the_last_byte_of_a_known_length_goes_out_as_the_last() -> None:
    async def check() -> None:
        visitor = Visitor()
        made = reply(b"ab", b"c", headers=[(b"content-length", b"3")])
        await relay(Answer(made), visitor.receive, visitor.send, FORM)
        assert [(m["body"], m["more_body"]) for m in visitor.got[1:]] == [(b"ab", True), (b"c", False)]

    run(check())


@pytest.mark.parametrize("status", [204, 304])
def test_the_length_of_an_answer_without_body_is_left_out(status: int) -> None:
    async def check() -> None:
        visitor = Visitor()
        await relay(
            Answer(reply(headers=[(b"content-length", b"3"), (b"etag", b"a")], status=status)),
            visitor.receive,
            visitor.send,
            FORM,
        )
        assert visitor.got[0]["headers"] == [(b"etag", b"a")]
        assert visitor.ended

    run(check())


def test_a_watcher_that_fails_is_reported_and_costs_the_client_nothing() -> None:
    events: list[tuple[str, Any]] = []

    def fails(chunk: bytes) -> None:
        raise KeyError("secret")

    def report(message: str, **figures: object) -> None:
        events.append((message, figures))

    async def check() -> None:
        visitor = Visitor()
        await relay(
            Answer(reply(b"a", b"b")),
            visitor.receive,
            visitor.send,
            FORM,
            watch=fails,
            event=report,
        )
        assert visitor.body == b"ab"
        assert visitor.ended

    run(check())
    assert events == [("a callback that observes responses failed", {"error": "KeyError"})]


@pytest.mark.parametrize(
    ("sent", "gap"),
    [
        ([], b""),
        ([b"data: {}\n\n"], b""),
        ([b"data: {}\r\n\r\n"], b""),
        ([b"data: {}\n"], b"\n"),
        ([b"data: {}\n", b"\n"], b""),
    ],
)
def test_a_stream_of_events_that_breaks_ends_with_an_error_event_and_no_end(sent: list[bytes], gap: bytes) -> None:
    async def check() -> None:
        visitor, made = Visitor(), reply(*sent, LOST, headers=SSE)
        with pytest.raises(BrokenOff) as raised:
            await relay(Answer(made), visitor.receive, visitor.send, FORM)
        assert raised.value.error.code == "upstream_error"
        error = b'[502,"upstream_error","lost"]'
        assert visitor.body == b"".join(sent) + gap + b"data: " + error + b"\n\n"
        assert not visitor.ended
        assert made.closed

    run(check())


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        (SSE, b'data: {"cho'),
        ([*SSE, (b"content-encoding", b"gzip")], b""),
        ([*SSE, (b"content-length", b"100")], b""),
        (JSON, b'{"a":'),
        ([], b""),
    ],
)
def test_where_an_error_event_would_be_misread_the_answer_just_breaks_off(
    headers: list[tuple[bytes, bytes]], sent: bytes
) -> None:
    async def check() -> None:
        visitor = Visitor()
        made = reply(sent, LOST, headers=headers) if sent else reply(LOST, headers=headers)
        with pytest.raises(BrokenOff):
            await relay(Answer(made), visitor.receive, visitor.send, FORM)
        assert visitor.body == sent
        assert not visitor.ended

    run(check())


def leaves_after(visitor: Visitor, chunk: bytes) -> Callable[[bytes], None]:
    def watch(data: bytes) -> None:
        if data == chunk:
            visitor.leaves.set()

    return watch


def test_a_client_that_leaves_in_an_answer_gives_it_up() -> None:
    async def check() -> None:
        visitor, made = Visitor(), reply(b"data: {}\n\n", asyncio.Event(), headers=SSE)
        with pytest.raises(ClientDisconnected):
            await relay(Answer(made), visitor.receive, visitor.send, FORM, watch=leaves_after(visitor, b"data: {}\n\n"))
        assert made.closed

    run(check())


@pytest.mark.parametrize("last", [b"event: end\n\n", b"event: end\r\n\r\n"])
def test_a_client_that_leaves_at_done_has_all_and_the_rest_is_read_for_the_connection(
    monkeypatch: pytest.MonkeyPatch, last: bytes
) -> None:
    monkeypatch.setattr(module, "DRAIN_SECONDS", 30.0)  # however late this test is told to go on

    async def check() -> None:
        visitor, end, seen = Visitor(), asyncio.Event(), [b""]
        made = reply(b"data: {}\n\n", last[:5], last[5:], end, b": bye\n\n", headers=SSE)

        def watch(data: bytes) -> None:
            seen.append(data)
            if data == last[5:]:
                visitor.leaves.set()

        relaying = asyncio.create_task(relay(Answer(made), visitor.receive, visitor.send, FORM, watch=watch))
        await asyncio.sleep(0.25)
        end.set()
        await relaying
        assert not made.closed
        assert seen[-1] == b": bye\n\n"

    run(check())


@pytest.mark.parametrize("stuck", [True, False])
def test_a_stream_that_does_not_end_after_done_is_not_waited_for(stuck: bool) -> None:
    async def check() -> None:
        visitor, last = Visitor(), b"event: end\n\n"
        wait = asyncio.Event()
        made = reply(last, wait, *(() if stuck else (LOST,)), headers=SSE)
        relaying = asyncio.create_task(
            relay(Answer(made), visitor.receive, visitor.send, FORM, watch=leaves_after(visitor, last))
        )
        if not stuck:
            await asyncio.sleep(0.3)
            wait.set()
        await asyncio.wait_for(relaying, 30)
        assert made.closed

    run(check())


def test_an_error_of_ours_goes_out_as_the_json_that_it_is_given() -> None:
    async def check() -> None:
        visitor = Visitor()
        await send_error(visitor.send, ClientError(400, "No."), b"{}", [(b"x-a", b"1")])
        headers = dict(visitor.got[0]["headers"])
        assert visitor.got[0]["status"] == 400
        assert headers[b"content-type"] == b"application/json"
        assert headers[b"content-length"] == b"2"
        assert headers[b"x-should-retry"] == b"false"
        assert headers[b"x-a"] == b"1"
        assert visitor.body == b"{}"

    run(check())


def test_an_error_of_a_body_that_stalled_closes_the_connection() -> None:
    async def check() -> None:
        visitor = Visitor()
        await send_error(visitor.send, ClientError(408, "Slow.", code="body_timeout", retry=True), b"{}")
        assert (b"connection", b"close") in visitor.got[0]["headers"]
        assert (b"x-should-retry", b"true") in visitor.got[0]["headers"]

    run(check())
