"""One request and its response on a client connection, for an ASGI application.

The ASGI scope contains the cycle as `plimsoll.cycle`. It offers operations that ASGI messages cannot express.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any

from proxy.http.callbacks import Event
from proxy.http.server.flow import Flow
from proxy.http.tunnel import Detached
from proxy.wire.headers import SWITCH, Header, head_of

MAX_UNREAD = 512 * 1024  # bytes of a body buffered before reading pauses; with 64 KB it pauses sixteen times per MB
THREAD_BYTES = 8 << 20  # a larger body is joined in a thread: 64 MB would block the event loop for 50 to 100 ms
MIN_PART = 4 * 1024  # bytes; shorter parts of a body are merged: separate objects would cost 28 times their size
# Bytes of merged parts that are turned into `bytes`, which join without the GIL. Reading then yields to the event loop:
# uvloop reads up to 32 times per iteration, which is up to a million chunks and 400 ms.
MERGED_PART = 8 * 1024
CLOSE = (b"connection", b"close")
HEAD_END = b"\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
NO_BODY = frozenset((204, 304))  # RFC 9112, 6.3: the response ends with its head
FRAMING = frozenset((b"content-length", b"transfer-encoding", b"connection"))
CHUNKED = (b"transfer-encoding", b"chunked")
FAILED = b"Internal Server Error"
FAILED_HEADERS = ((b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(FAILED)), CLOSE)


PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
STATUS_LINE = {status: b"HTTP/1.1 %d %b\r\n" % (status, PHRASES.get(status, b"")) for status in range(100, 600)}
START_LINE = {status: line[:-2] for status, line in STATUS_LINE.items()}


class Cycle:
    """One request and its response.

    on_disconnect: called when the client disconnects before the response is complete.
    on_response_complete: called when the response is complete.
    on_return: called when the application has returned.
    detach: detaches the connection from HTTP; set if the request is a WebSocket handshake.
    received: bytes of the body received so far.
    """

    __slots__ = (
        "_body_parts",
        "_chunked",
        "_ends_with_connection",
        "_event",
        "_grow",
        "_news",
        "_paused",
        "_reads_whole",
        "_remaining",
        "_unread_bytes",
        "_unread_limit",
        "_waiting",
        "_yielding",
        "detach",
        "disconnected",
        "flow",
        "keep_alive",
        "more_body",
        "on_disconnect",
        "on_response_complete",
        "on_return",
        "received",
        "response_complete",
        "response_started",
        "scope",
        "transport",
        "waiting_for_100_continue",
    )  # fmt: skip

    def __init__(
        self,
        scope: dict[str, Any],
        transport: asyncio.Transport,
        flow: Flow,
        event: Event,
        expects_continue: bool,
        keep_alive: bool,
        on_response_complete: Callable[[], None],
    ) -> None:
        self.scope = scope
        self.transport = transport
        self.flow = flow
        self._news = False  # `receive` has something to return
        self._waiting: asyncio.Event | None = None  # made once `receive` must wait: for most requests it need not
        self._event = event
        self.on_response_complete = on_response_complete
        self.disconnected = False
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = expects_continue
        self.more_body = True
        self.response_started = False
        self.response_complete = False
        self._chunked = False
        self._remaining = 0  # bytes of a response with a content-length
        self.on_disconnect: Callable[[], None] | None = None
        self.on_return: Callable[[], object] = _ignore
        self.detach: Callable[[], Detached] | None = None
        self.received = 0  # bytes of the body received so far
        self._body_parts: list[bytes | bytearray] = []
        self._unread_bytes = 0
        self._unread_limit = MAX_UNREAD
        self._reads_whole = False
        self._paused = self._yielding = False  # reading is paused until `receive`, or until the loop's next iteration
        self._grow: Callable[[int], bool] | None = None
        self._ends_with_connection = False  # HTTP/1.0 has no chunked coding: the close ends the response

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
                self._event("an application returned without a response")
                await self._fail()
            elif not self.response_complete and not self.disconnected:
                self.transport.close()  # deliberate: it signals a truncated response to the client
        finally:
            scope.pop("plimsoll.cycle", None)  # breaks a reference cycle
            self.on_response_complete = _ignore
            self.detach = None
            self.on_return()
            self.on_return = _ignore

    async def _fail(self) -> None:
        await self.send({"type": "http.response.start", "status": 500, "headers": FAILED_HEADERS})
        await self.send({"type": "http.response.body", "body": FAILED})

    def disconnect(self) -> None:
        """Marks the client as disconnected and calls `on_disconnect`. Further calls have no effect."""
        if not self.disconnected:
            self.disconnected = True
            self._announce()
            if self.on_disconnect is not None:
                self.on_disconnect()

    def _announce(self) -> None:
        self._news = True
        if self._waiting is not None:
            self._waiting.set()

    def _forget_news(self) -> None:
        self._news = False
        if self._waiting is not None:
            self._waiting.clear()

    @property
    def is_handshake(self) -> bool:
        """Whether the request is a WebSocket handshake."""
        return self.detach is not None

    # The request's body.

    def feed_data(self, body: bytes) -> None:
        """Buffers received bytes of the body. Pauses reading above the limit."""
        parts, size = self._body_parts, len(body)
        if not parts or size >= MIN_PART:
            parts.append(body)
        elif type(parts[-1]) is bytearray:
            parts[-1] += body
            if len(parts[-1]) >= MERGED_PART:
                parts[-1] = bytes(parts[-1])
                self._yield()
        else:
            parts.append(bytearray(body))
        self.received += size
        self._unread_bytes = unread = self._unread_bytes + size
        if self._grow is not None and not self._grow(unread):
            self._grow, self._unread_limit = None, -1
        if unread > self._unread_limit:
            self.flow.pause_reading()
            self._announce()
        elif not self._reads_whole:
            self._announce()

    def _yield(self) -> None:
        """Pauses reading until the event loop's next iteration."""
        if not self._yielding:
            self._yielding = True
            self.flow.pause_reading()
            asyncio.get_running_loop().call_soon(self._end_yield)

    def _end_yield(self) -> None:
        self._yielding = False
        if not self._paused and not self.disconnected and self._unread_bytes <= self._unread_limit:
            self.flow.resume_reading()

    def feed_eof(self) -> None:
        """Marks the body as complete."""
        self.more_body = False
        self._announce()

    def read_whole(self, most: int, grow: Callable[[int], bool] | None = None) -> None:
        """Makes `receive` return the whole body in one message. It returns the part received so far once that part
        exceeds `most` bytes, or once `grow` returns False. `grow` is called with the number of buffered bytes."""
        self._reads_whole, self._unread_limit, self._grow, self._paused = True, most, grow, False
        if self.more_body and self._unread_bytes <= most and not self.disconnected:
            self._forget_news()

    def received_body(self) -> bytes | None:
        """Returns the whole body if it has been received, else None. It replaces a call of `receive`: it never waits,
        so it needs no timeout."""
        if self.more_body or self.disconnected or self.response_started:
            return None
        self._forget_news()
        if self.flow.read_paused:
            self.flow.resume_reading()
        return self._take_parts()

    def pause(self) -> None:
        """Pauses reading until the next `receive`."""
        self._paused = True
        self.flow.pause_reading()

    def _take_parts(self) -> bytes:
        parts, self._body_parts, self._unread_bytes = self._body_parts, [], 0
        if len(parts) == 1 and type(parts[0]) is bytes:
            return parts[0]
        return b"".join(parts)

    async def receive(self) -> Any:
        """Returns the next ASGI message: `http.request` or `http.disconnect`. Sends 100 Continue first if it is due."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(CONTINUE)
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            if not self._news:
                if self._waiting is None:
                    self._waiting = asyncio.Event()
                await self._waiting.wait()
            self._forget_news()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        more, long = self.more_body, self._unread_bytes > THREAD_BYTES
        body = await self._join_in_thread() if long else self._take_parts()
        return {"type": "http.request", "body": body, "more_body": more}

    async def _join_in_thread(self) -> bytes:
        parts, self._body_parts, self._unread_bytes = self._body_parts, [], 0
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
            raise RuntimeError(f"{message['type']} is out of order")

    def _send_head(self, status: int, headers: Sequence[Header]) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        head = head_of(START_LINE[status], [*headers, *self._frame(status, headers)])
        if head is None:
            raise RuntimeError("a line break in a header")
        self.transport.write(head + HEAD_END)

    def _frame(self, status: int, headers: Sequence[Header]) -> list[Header]:
        """Notes how the response's headers frame its body. Returns the headers that they lack for it."""
        framed = closes = False
        for name, value in headers:
            if name not in FRAMING:
                continue
            if name == b"content-length" and not framed:
                framed, self._remaining = True, int(value)
            elif name == b"transfer-encoding" and value.lower() == b"chunked":
                framed = self._chunked = True
                self._remaining = 0
            elif name == b"connection" and b"close" in [token.strip() for token in value.lower().split(b",")]:
                self.keep_alive, closes = False, True
        lacking = [] if self.keep_alive or closes else [CLOSE]
        if not framed and self.scope["method"] != "HEAD" and status not in NO_BODY:
            if self.scope["http_version"] == "1.1":
                self._chunked = True
                lacking.append(CHUNKED)
            else:
                self._ends_with_connection = True
        return lacking

    def _send_body(self, body: bytes, more: bool) -> None:
        if self.scope["method"] == "HEAD":
            self._remaining = 0
        elif self._chunked:
            end = b"" if more else b"0\r\n\r\n"
            self.transport.write(b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end)
        else:
            if not self._ends_with_connection:
                if len(body) > self._remaining:
                    raise RuntimeError("the response is longer than its content-length")
                self._remaining -= len(body)
            self.transport.write(body)
        if not more:
            if self._remaining:
                raise RuntimeError("the response is shorter than its content-length")
            self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        self._announce()
        if not self.keep_alive:
            self.transport.close()
        self.on_response_complete()

    @property
    def is_chunked(self) -> bool:
        """Whether the response has a chunked body, which `send_chunk` can write."""
        return self._chunked and self.scope["method"] != "HEAD"

    def send_chunk(self, chunk: bytes) -> bool:
        """Writes one chunk of a chunked response without waking a task, unlike `send`. Returns False if writing is then
        paused, or if the client has disconnected."""
        if self.disconnected:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        return not self.flow.write_paused

    def send_at_once(self, status: int, headers: Sequence[Header], body: bytes) -> bool:
        """Writes a whole response with one system call; two ASGI messages take two. Returns False and writes nothing
        if `send` must be used instead: for example, writing is paused, or the headers do not declare the body's length.
        """
        if self.flow.write_paused or self.response_started or self.scope["method"] == "HEAD":
            return False
        if self.disconnected:
            return True
        if (b"content-length", b"%d" % len(body)) not in headers or CLOSE in headers:
            return False
        head = head_of(START_LINE[status], headers if self.keep_alive else [*headers, CLOSE])
        if head is None:
            return False
        self.response_started = True
        self.waiting_for_100_continue = False
        self.transport.write(HEAD_END.join((head, body)))
        self._complete()
        return True

    def switch_protocols(self, headers: Sequence[Header]) -> Detached | None:
        """Responds to a WebSocket handshake with 101 and detaches the connection. Returns None and writes nothing if
        the connection is closed, a response has started, or a header is illegal."""
        head = head_of(START_LINE[101], [*headers, *SWITCH])
        if self.detach is None or self.disconnected or self.response_started or head is None:
            return None
        self.response_started = True
        self.transport.write(head + HEAD_END)
        return self.detach()


def _ignore() -> None:
    """The callback after the application has returned: does nothing."""
