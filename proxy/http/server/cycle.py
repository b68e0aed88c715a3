"""One request and its response on a client connection, for an ASGI application.

The ASGI scope contains the cycle as `plimsoll.cycle`. It offers operations that ASGI messages cannot express.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any

from proxy.http.callbacks import Event
from proxy.http.server.flow import Flow
from proxy.http.tunnel import Detached
from proxy.wire.headers import SWITCH, Header

UNREAD = 512 * 1024  # bytes of a body buffered before reading pauses; with 64 KB, reading pauses sixteen times per MB
LONG = 8 << 20  # bytes; a larger body is joined in a thread: 64 MB take 50 to 100 ms, which would block the event loop
TINY = 4 * 1024  # bytes; shorter parts of a body are merged on arrival: separate objects would cost 28 times their size
JOINED = 8 * 1024  # bytes of merged parts that are turned into `bytes`, which join without the GIL. Reading then yields
# to the event loop: uvloop reads up to 32 times per iteration, which is up to a million chunks and 400 ms.
LINE = b"%b: %b"
CLOSE = (b"connection", b"close")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
NO_BODY = frozenset((204, 304))  # RFC 9112, 6.3: the response ends with its head
ILLEGAL_NAME = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')  # RFC 9110, 5.6.2
ILLEGAL_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # RFC 9110, 5.5
FAILED = b"Internal Server Error"
FAILED_HEADERS = ((b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(FAILED)), CLOSE)


PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
STATUS_LINE = {status: b"HTTP/1.1 %d %b\r\n" % (status, PHRASES.get(status, b"")) for status in range(100, 600)}


class Cycle:
    """One request and its response. `left` is called when the client disconnects before the response is complete.
    `over` is called when the application has returned. `hand_over` is set if the request is a WebSocket handshake."""

    __slots__ = (
        "_chunked", "_event", "_gathers", "_grow", "_left_to_send", "_most_unread", "_parts", "_unframed", "_unread",
        "_waits", "_yields", "arrived", "disconnected", "flow", "hand_over", "keep_alive", "left", "message_event",
        "more_body", "on_response", "over", "response_complete", "response_started", "scope", "transport",
        "waiting_for_100_continue",
    )  # fmt: skip

    def __init__(
        self,
        scope: dict[str, Any],
        transport: asyncio.Transport,
        flow: Flow,
        event: Event,
        expects: bool,
        keep_alive: bool,
        on_response: Callable[[], None],
    ) -> None:
        self.scope = scope
        self.transport = transport
        self.flow = flow
        self.message_event = asyncio.Event()
        self._event = event
        self.on_response = on_response
        self.disconnected = False
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = expects
        self.more_body = True
        self.response_started = False
        self.response_complete = False
        self._chunked = False
        self._left_to_send = 0  # bytes of a response with a content-length
        self.left: Callable[[], None] | None = None
        self.over: Callable[[], object] = _nothing
        self.hand_over: Callable[[], Detached] | None = None
        self.arrived = 0  # bytes of the body received so far
        self._parts: list[bytes | bytearray] = []
        self._unread = 0
        self._most_unread = UNREAD
        self._gathers = False
        self._waits = self._yields = False  # reading is paused until `receive`, or until the loop's next iteration
        self._grow: Callable[[int], bool] | None = None
        self._unframed = False  # the close of the connection ends the response: HTTP/1.0 has no chunked coding

    async def run_asgi(self, app: Callable[..., Any]) -> None:
        """Runs the application. If it fails or returns without a response, sends a 500 or closes the connection."""
        scope = self.scope
        try:
            await app(scope, self.receive, self.send)
        except BaseException as error:
            # The error's text may contain client content, so only its type is logged.
            self._event("an application failed", error=type(error).__name__)
            if self.response_started:
                self.transport.close()
            else:
                await self._fail()
        else:
            if not self.response_started and not self.disconnected:
                self._event("an application returned without an answer")
                await self._fail()
            elif not self.response_complete and not self.disconnected:
                self.transport.close()  # deliberate: it signals a truncated response to the client
        finally:
            scope.pop("plimsoll.cycle", None)  # breaks a reference cycle
            self.on_response = _nothing
            self.hand_over = None
            self.over()
            self.over = _nothing

    async def _fail(self) -> None:
        await self.send({"type": "http.response.start", "status": 500, "headers": FAILED_HEADERS})
        await self.send({"type": "http.response.body", "body": FAILED})

    def leave(self) -> None:
        """Marks the client as disconnected and calls `left`. Further calls have no effect."""
        if not self.disconnected:
            self.disconnected = True
            self.message_event.set()
            if self.left is not None:
                self.left()

    @property
    def is_handshake(self) -> bool:
        """Whether the request is a WebSocket handshake."""
        return self.hand_over is not None

    # The request's body.

    def takes(self, body: bytes) -> None:
        """Buffers received bytes of the body. Pauses reading above the limit."""
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
        """Pauses reading until the event loop's next iteration."""
        if not self._yields:
            self._yields = True
            self.flow.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._yields = False
        if not self._waits and not self.disconnected and self._unread <= self._most_unread:
            self.flow.resume_reading()

    def ends(self) -> None:
        """Marks the body as complete."""
        self.more_body = False
        self.message_event.set()

    def gather(self, most: int, grow: Callable[[int], bool] | None = None) -> None:
        """Makes `receive` return the whole body in one message. It returns the part received so far once that part
        exceeds `most` bytes, or once `grow` returns False. `grow` is called with the number of buffered bytes."""
        self._gathers, self._most_unread, self._grow, self._waits = True, most, grow, False
        if self.more_body and self._unread <= most and not self.disconnected:
            self.message_event.clear()

    def body_at_hand(self) -> bytes | None:
        """Returns the whole body if it has been received, else None. It replaces a call of `receive`: it never waits,
        so it needs no timeout."""
        if self.more_body or self.disconnected or self.response_started:
            return None
        self.message_event.clear()
        if self.flow.read_paused:
            self.flow.resume_reading()
        return self._taken()

    def pause(self) -> None:
        """Pauses reading until the next `receive`."""
        self._waits = True
        self.flow.pause_reading()

    def _taken(self) -> bytes:
        parts, self._parts, self._unread = self._parts, [], 0
        first = parts[0] if parts else b""
        return first if len(parts) <= 1 and type(first) is bytes else b"".join(parts)

    async def receive(self) -> Any:
        """Returns the next ASGI message: `http.request` or `http.disconnect`. Sends 100 Continue first if it is due."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(CONTINUE)
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

    # The response.

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Sends an ASGI message of the response, and waits while writing is paused. Raises RuntimeError for a message
        out of order, or one that violates the response's framing."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started and message["type"] == "http.response.start":
            self._send_head(message["status"], message.get("headers", ()))
        elif self.response_started and not self.response_complete and message["type"] == "http.response.body":
            self._send_body(message.get("body", b""), message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} is not due now")

    def _send_head(self, status: int, headers: Sequence[Header]) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        lines = [STATUS_LINE[status]]
        framed = closes = False
        for name, value in headers:
            if ILLEGAL_NAME.search(name) or ILLEGAL_VALUE.search(value):
                raise RuntimeError("an illegal character in a header")
            name = name.lower()
            if name == b"content-length" and not framed:
                framed, self._left_to_send = True, int(value)
            elif name == b"transfer-encoding" and value.lower() == b"chunked":
                framed = self._chunked = True
                self._left_to_send = 0
            elif name == b"connection" and b"close" in [token.strip() for token in value.lower().split(b",")]:
                self.keep_alive, closes = False, True
            lines.append(b"%b: %b\r\n" % (name, value))
        if not self.keep_alive and not closes:
            lines.append(b"connection: close\r\n")
        if not framed and self.scope["method"] != "HEAD" and status not in NO_BODY:
            if self.scope["http_version"] == "1.1":
                self._chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                self._unframed = True
        lines.append(b"\r\n")
        self.transport.write(b"".join(lines))

    def _send_body(self, body: bytes, more: bool) -> None:
        if self.scope["method"] == "HEAD":
            self._left_to_send = 0
        elif self._chunked:
            end = b"" if more else b"0\r\n\r\n"
            self.transport.write(b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end)
        else:
            if not self._unframed:
                if len(body) > self._left_to_send:
                    raise RuntimeError("the answer is longer than its content-length")
                self._left_to_send -= len(body)
            self.transport.write(body)
        if not more:
            if self._left_to_send:
                raise RuntimeError("the answer is shorter than its content-length")
            self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    @property
    def flows(self) -> bool:
        """Whether the response has a chunked body, which `flow_on` can write."""
        return self._chunked and self.scope["method"] != "HEAD"

    def flow_on(self, chunk: bytes) -> bool:
        """Writes one chunk of a chunked response without waking a task, unlike `send`. Returns False if writing is then
        paused, or if the client has disconnected."""
        if self.disconnected:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        return not self.flow.write_paused

    def answered_at_once(self, status: int, headers: Sequence[Header], body: bytes) -> bool:
        """Writes a whole response with one system call; two ASGI messages take two. Returns False and writes nothing
        if `send` must be used instead: for example, writing is paused, or the headers do not declare the body's length.
        """
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

    def switched(self, headers: Sequence[Header]) -> Detached | None:
        """Responds to a WebSocket handshake with 101 and detaches the connection. Returns None and writes nothing if
        the connection is closed, a response has started, or a header is illegal."""
        head = _head(101, [*headers, *SWITCH])
        if self.hand_over is None or self.disconnected or self.response_started or head is None:
            return None
        self.response_started = True
        self.transport.write(head + b"\r\n\r\n")
        return self.hand_over()


def _head(status: int, headers: Sequence[Header]) -> bytes | None:
    """Returns the status line and headers without the empty line, or None if a line break would inject a header."""
    lines = [STATUS_LINE[status][:-2], *map(LINE.__mod__, headers)]
    head = b"\r\n".join(lines)
    return head if head.count(b"\n") == len(lines) - 1 == head.count(b"\r") else None


def _nothing() -> None:
    """The callback after the application has returned: does nothing."""
