"""One request and its answer on a client's connection: uvicorn's cycle, made lean for what nearly every request does.

An application finds it in its scope as `plimsoll.cycle`, and may ask it for what ASGI's messages cannot say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from proxy.http.tunnel import Taken
from proxy.wire.headers import SWITCH, Header, value_of

UNREAD = 512 * 1024  # bytes of a body that wait for whoever reads them; uvicorn's 64 KB stop and go sixteen times a MB
LONG = 8 << 20  # bytes of a body that are joined in a thread: 64 MB take 50 to 100 ms, and let others go on there
TINY = 4 * 1024  # bytes; shorter pieces of a body are joined as they come: each of its own would cost 28 times its size
JOINED = 8 * 1024  # bytes of such pieces that become bytes again, which are joined without the interpreter's lock; then
# others have their turn: uvloop reads up to 32 times in one of its own, which are a million chunks, and 400 ms
LINE = b"%b: %b"
CLOSE = (b"connection", b"close")


class Cycle(RequestResponseCycle):
    """One request and its answer. `left` is called when the client goes away before its answer is complete, `over`
    when its application has returned. `hand_over` is there where the request is a WebSocket's handshake."""

    def __init__(
        self,
        scope: dict[str, Any],
        transport: asyncio.Transport,
        flow: FlowControl,
        logger: logging.Logger,
        expects: bool,
        keep_alive: bool,
        on_response: Callable[[], None],
    ) -> None:
        self.scope = scope  # type: ignore[assignment]
        self.transport = transport
        self.flow = flow
        self.logger = logger
        self.access_log = False
        self.default_headers = []
        self.message_event = asyncio.Event()
        self.on_response = on_response
        self.disconnected = False
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = expects
        self.more_body = True
        self.response_started = False
        self.response_complete = False
        self.chunked_encoding = None
        self.expected_content_length = 0
        self.left: Callable[[], None] | None = None
        self.over: Callable[[], object] = _nothing
        self.hand_over: Callable[[], Taken] | None = None
        self.arrived = 0  # bytes of the body so far
        self._parts: list[bytes | bytearray] = []
        self._unread = 0
        self._most_unread = UNREAD
        self._gathers = False
        self._waits = self._yields = False  # nothing is read until it is asked for, or until the loop's next turn
        self._grow: Callable[[int], bool] | None = None
        self._unframed = False  # an answer whose end is the connection's: HTTP/1.0 knows no chunks

    async def run_asgi(self, app: Callable[..., Any]) -> None:
        """Lets an application answer."""
        scope = self.scope
        try:
            await app(scope, self.receive, self.send)
        except BaseException as error:
            # Its text may hold what a client wrote.
            self.logger.error("An application failed: %s", type(error).__name__)
            if self.response_started:
                self.transport.close()
            else:
                await self.send_500_response()
        else:
            if not self.response_started and not self.disconnected:
                self.logger.error("An application returned without an answer.")
                await self.send_500_response()
            elif not self.response_complete and not self.disconnected:
                self.transport.close()  # that is meant: it shows the client that the answer broke off
        finally:
            scope.pop("plimsoll.cycle", None)  # type: ignore[typeddict-item]  # a circle would be garbage
            self.on_response = _nothing
            self.hand_over = None
            self.over()
            self.over = _nothing

    def leave(self) -> None:
        """The client is gone."""
        if not self.disconnected:
            self.disconnected = True
            self.message_event.set()
            if self.left is not None:
                self.left()

    @property
    def is_handshake(self) -> bool:
        """Whether it asks for a WebSocket."""
        return self.hand_over is not None

    # The request's body.

    def takes(self, body: bytes) -> None:
        """Bytes of the body came."""
        parts = self._parts
        if not parts or len(body) >= TINY:
            parts.append(body)
        elif type(parts[-1]) is bytearray:
            parts[-1] += body
            if len(parts[-1]) >= JOINED:
                parts[-1] = bytes(parts[-1])
                self._yield()
        else:
            parts.append(bytearray(body))
        self.arrived += len(body)
        self._unread += len(body)
        if self._grow is not None and not self._grow(self._unread):
            self._grow, self._most_unread = None, -1
        if self._unread > self._most_unread:
            self.flow.pause_reading()
            self.message_event.set()
        elif not self._gathers:
            self.message_event.set()

    def _yield(self) -> None:
        """Reads on in the event loop's next turn."""
        if not self._yields:
            self._yields = True
            self.flow.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._yields = False
        if not self._waits and not self.disconnected and self._unread <= self._most_unread:
            self.flow.resume_reading()

    def ends(self) -> None:
        """That was all of it."""
        self.more_body = False
        self.message_event.set()

    def gather(self, most: int, grow: Callable[[int], bool] | None = None) -> None:
        """From now on `receive` gives all of the body at once, or what came of it as soon as that is over `most`
        bytes, or more than `grow`, which is told how many there are, lets come."""
        self._gathers, self._most_unread, self._grow, self._waits = True, most, grow, False
        if self.more_body and self._unread <= most and not self.disconnected:
            self.message_event.clear()

    def body_at_hand(self) -> bytes | None:
        """The whole body, where all of it has come; it is not received any more then. What `receive` gives, without a
        wait that needs a deadline."""
        if self.more_body or self.disconnected or self.response_started:
            return None
        self.message_event.clear()
        if self.flow.read_paused:
            self.flow.resume_reading()
        return self._taken()

    def pause(self) -> None:
        """Leaves what comes in the socket until the body is asked for."""
        self._waits = True
        self.flow.pause_reading()

    def _taken(self) -> bytes:
        parts, self._parts, self._unread = self._parts, [], 0
        first = parts[0] if parts else b""
        return first if len(parts) <= 1 and type(first) is bytes else b"".join(parts)

    async def receive(self) -> Any:
        """ASGI's next message."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        more, long = self.more_body, self._unread > LONG
        return {"type": "http.request", "body": await self._joined() if long else self._taken(), "more_body": more}

    async def _joined(self) -> bytes:
        parts, self._parts, self._unread = self._parts, [], 0
        return await asyncio.get_running_loop().run_in_executor(None, b"".join, parts)

    # The answer.

    async def send(self, message: Any) -> None:
        """ASGI's messages of the answer."""
        if self.scope["http_version"] != "1.1" and await self._sent_as_of_old(message):
            return
        await super().send(message)

    async def _sent_as_of_old(self, message: Any) -> bool:
        if not self.response_started:
            self._unframed = value_of(message.get("headers", ()), b"content-length") is None
            self.chunked_encoding = False if self._unframed else None
            return False
        if not self._unframed or self.response_complete or self.scope["method"] == "HEAD":
            return False
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if not self.disconnected:
            self.transport.write(message.get("body", b""))
            if not message.get("more_body", False):
                self._complete()
        return True

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    @property
    def flows(self) -> bool:
        """Whether chunks of an answer may be written with `flow_on`."""
        return bool(self.chunked_encoding) and self.scope["method"] != "HEAD"

    def flow_on(self, chunk: bytes) -> bool:
        """Writes a chunk of an answer that has no length: what ASGI's message does after a task has woken up for it.
        False where the client takes no more for now, or is gone."""
        if self.disconnected:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        return not self.flow.write_paused

    def answered_at_once(self, status: int, headers: Sequence[Header], body: bytes) -> bool:
        """Writes a whole answer in one piece: ASGI's two messages take two system calls. False, and nothing is
        written, where they must do it: nobody takes bytes just now, or the length is not in the headers."""
        if self.flow.write_paused or self.response_started or self.scope["method"] == "HEAD":
            return False
        if self.disconnected:
            return True
        if (b"content-length", b"%d" % len(body)) not in headers or CLOSE in headers:
            return False
        head = _head(status, headers if self.keep_alive else [*headers, CLOSE])
        if head is None:
            return False
        self.response_started = True
        self.waiting_for_100_continue = False
        self.transport.write(b"%b\r\n\r\n%b" % (head, body))
        self._complete()
        return True

    def switched(self, headers: Sequence[Header]) -> Taken | None:
        """Answers a WebSocket's handshake with 101 and hands its connection over; None where it is closed, or cannot be
        answered so."""
        head = _head(101, [*headers, *SWITCH])
        if self.hand_over is None or self.disconnected or self.response_started or head is None:
            return None
        self.response_started = True
        self.transport.write(head + b"\r\n\r\n")
        return self.hand_over()


def _head(status: int, headers: Sequence[Header]) -> bytes | None:
    """A status line and headers, without the empty line; None where a line break would begin another header."""
    lines = [STATUS_LINE[status][:-2], *map(LINE.__mod__, headers)]
    head = b"\r\n".join(lines)
    return head if head.count(b"\n") == len(lines) - 1 == head.count(b"\r") else None


def _nothing() -> None:
    """Nobody is told of an answer that ends when its application has returned."""
