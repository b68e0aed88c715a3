"""One client connection: HTTP/1.1 for an ASGI application, with timeouts and memory limits for each client.

Theory of operation. llhttp (httptools) parses. `Protocol` keeps the state that llhttp does not have: which request a
byte belongs to, when to stop reading, and when to close. Four small state machines run side by side.

1. Input: what the next byte from the client is.

    state      attributes                       next state
    IDLE       not `_in_head`, not `_in_body`   first byte of a head: HEAD. `keep_alive_expiry` passed: closed
    HEAD       `_in_head`, `_head_timer` set    head complete: BODY, or UPGRADING after a WebSocket handshake.
                                                invalid or too large: REJECTED. `head_timeout` passed: closed
    BODY       `_in_body`                       body complete: IDLE. too many bytes without data: REJECTED
    UPGRADING  `_upgrading`,                    response 101: `_detach` hands the connection over.
               `_parsing_stopped`               another response: closed. Bytes wait in `_trailing_data`
    REJECTED   `_parsing_stopped`               the error of `_rejected_with` is sent, then closed

   The head timer also runs from the accept to the first head. `_framing_bytes` counts the bytes since the last complete
   head or the last body data. It bounds heads, trailers, chunk extensions and empty lines. A head that asks for another
   upgrade than a WebSocket is parsed again without that (`_replayed_head`), because llhttp stops at any upgrade.

2. Output: the responses, in the order of the requests (RFC 9112, 9.3.2). `_current` is the request whose response is
   due, `pipeline` the requests behind it, `cycle` the newest request, which receives the body. `on_response_complete`
   starts the next one. If there is none, the connection is idle, and `_idle_since` is the time since when (else -1). If
   the body of the newest request is still incomplete, the connection lingers: it reads and drops the rest, until
   `_linger_timer`.

3. Reading is paused for one of four reasons. The first ends when the application receives more of the body, the second
   with the upgrade. The others hold the flow (`Flow.hold`) until a response is complete.

    too many unread bytes of a body             `Cycle.feed_data`
    too many bytes behind a handshake           `_trailing_data`
    `pipeline` is full                          the rest of the input is `_unparsed`, from `_parse_offset` on
    bodies behind `_current` are too large      `_pipelined_bytes`

   A paused transport does not report a disconnect, so `Flow` polls for it while it is held.

4. Writing is paused while the client does not read. `_read_rate` runs meanwhile, and aborts the connection of a client
   that reads less than `min_rate`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import httptools

from proxy.errors import ClientError
from proxy.http.cancellation import MinReadRate
from proxy.http.server.cycle import STATUS_LINE, Cycle
from proxy.http.server.flow import Flow
from proxy.http.server.port import Port
from proxy.http.server.request_head import (
    BAD_REQUEST,
    CHECKED,
    HEAD_END,
    HEAD_TOO_LARGE,
    MAX_HEAD,
    MAX_HEADERS,
    MAX_PIPELINED,
    MAX_TARGET,
    SHORT_TARGET,
    TARGET_TOO_LONG,
    VERSION_NOT_SUPPORTED,
    error_of,
    expects_continue,
    has_many_heads,
    head_without_upgrade,
    is_handshake,
    parse_target,
    parse_target_cached,
    version_of,
)
from proxy.http.tunnel import Detached
from proxy.wire.headers import Header

HEAD_TIMEOUT_S = 20.0  # from the accept, or from a request's first byte, to the end of the request's head
KEEP_ALIVE_EXPIRY_S = 75.0  # longer than a load balancer's usual 60, so that it closes first and loses no response
LINGERING_SECONDS = 30.0  # for the rest of a body after its response is sent: a close at once could lose the response
MAX_BUFFERED = 64 * 1024  # bytes buffered behind a WebSocket handshake until its response, or behind a running request
MIN_RATE = 240.0  # bytes per second that a client must read while writing is paused
READ_RATE_SECONDS = 60.0  # interval over which that rate is measured
REJECT_CLOSE_SECONDS = 1.0  # from the response to a rejected request to the close of the connection
ERROR_HEAD = (
    b"content-type: application/json\r\ncontent-length: %d\r\nx-should-retry: false\r\nconnection: close\r\n\r\n"
)
ASGI = {"version": "3.0", "spec_version": "2.3"}


def _address(found: object) -> tuple[str, int] | None:
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) and len(found) >= 2 else None


class Protocol(asyncio.Protocol):
    """One client connection. The class attributes are its limits: seconds, and bytes per second.

    A request's scope contains `plimsoll.target`, the target byte for byte. Trailers are never added to the headers.
    After a WebSocket handshake no bytes are parsed as HTTP: the request's cycle may detach the connection, else it
    closes.
    """

    head_timeout = HEAD_TIMEOUT_S
    lingering_seconds = LINGERING_SECONDS
    min_rate = MIN_RATE
    read_seconds = READ_RATE_SECONDS
    keep_alive_expiry = KEEP_ALIVE_EXPIRY_S

    def __init__(self, port: Port) -> None:
        self.port = port
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.flow: Flow
        self.cycle: Cycle | None = None  # of the newest request
        self._parser = self._new_parser()
        self._client: tuple[str, int] | None = None
        self._scope: dict[str, Any] = {}  # what the scopes of all requests have in common
        self.pipeline: deque[Cycle] = deque()  # pipelined requests queued behind `_current`, the oldest last
        self._headers: list[Header] = []
        self._expects_continue = False
        self._url = b""
        self._rejected_with = BAD_REQUEST
        self._version = ""
        self._host = b""  # the last valid Host
        self._current: Cycle | None = None
        self._in_head = self._in_body = self._parsing_stopped = False
        self._framing_bytes = 0  # bytes since the last complete head or body data: heads, trailers, chunk extensions
        self._replayed_head = b""
        self._upgrading = False
        self._trailing_data = b""
        self._unparsed, self._parse_offset = b"", 0
        self._pipelined_bytes = 0  # bytes of bodies buffered behind the running request
        self._read_rate: MinReadRate | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._idle_since = -1.0
        self._keep_alive_timer: asyncio.TimerHandle | None = None

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # `version_of` checks the version. A request pipelined behind one with `Connection: close` must still parse.
        parser.set_dangerous_leniencies(lenient_version=True, lenient_data_after_close=True)
        return parser

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers the connection and starts the timeout for the first head."""
        self.transport = cast(asyncio.Transport, transport)
        self.flow = Flow(self.transport)
        self.port.connections.add(self)
        self._client = _address(transport.get_extra_info("peername"))
        self._scope = {
            "type": "http",
            "asgi": ASGI,
            "server": _address(transport.get_extra_info("sockname")),
            "client": self._client,
            "scheme": "http" if transport.get_extra_info("sslcontext") is None else "https",
            "root_path": "",
        }
        self._start_head_timer()
        if self.port.per_address and self._client is not None and not self.port.open_from(self._client[0]):
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops all timers and reports the disconnect to the running and the newest request."""
        self._stop_head_timer()
        self._stop_lingering()
        if self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()
            self._keep_alive_timer = None
        self._stop_read_rate()
        self._unparsed = b""
        for cycle in (self._current, self.cycle):  # of pipelined requests, the first and the last
            if cycle is not None and not cycle.response_complete:
                cycle.disconnect()
        self.port.connections.discard(self)
        if self.port.per_address and self._client is not None:
            self.port.closed_from(self._client[0])
        self.flow.close()
        if exc is None:
            self.transport.close()
        del self._parser  # breaks a reference cycle

    def data_received(self, data: bytes) -> None:
        """Parses bytes from the client. Input with many pipelined requests is parsed head by head."""
        if self._unparsed:
            self._unparsed = self._unparsed[self._parse_offset :] + data
            self._parse_offset = 0
        elif b"\r" in data and data.find(b"\r", data.find(HEAD_END) + len(HEAD_END)) >= 0 and has_many_heads(data):
            self._unparsed, self._parse_offset = data, 0
            self._parse_pipelined()
        else:
            self._parse(data)

    def _parse_pipelined(self) -> None:
        """Parses head by head, and pauses parsing and reading while the queue of pipelined requests is full."""
        data, start = self._unparsed, self._parse_offset
        while start < len(data) and len(self.pipeline) < MAX_PIPELINED:
            end = data.find(HEAD_END, start) + len(HEAD_END)
            end = end if end >= len(HEAD_END) else len(data)
            self._parse(data[start:end])
            start = end
        self._unparsed, self._parse_offset = (data, start) if start < len(data) else (b"", 0)
        if self._unparsed:
            self.flow.hold()

    def _parse(self, data: bytes) -> None:
        if self._parsing_stopped:
            if self._upgrading:
                self._buffer_trailing_data(data)
            return
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self._upgrading:
                self._parsing_stopped = True
                self._stop_head_timer()
                self._buffer_trailing_data(rest)
            else:
                self._parse_without_upgrade(rest)
        except httptools.HttpParserError:
            preface = self._parser.get_method() == b"PRI"  # RFC 9113, 3.4: the HTTP/2 preface
            self._reject(VERSION_NOT_SUPPORTED if preface else self._rejected_with)
        else:
            self._check_framing()

    def _check_framing(self) -> None:
        if not self._in_head:
            if self._framing_bytes > MAX_HEAD:
                self._reject(BAD_REQUEST)
            elif self._head_timer is not None and not self._framing_bytes:  # empty lines before a head (RFC 9112, 2.2)
                self._stop_head_timer()
        elif self._framing_bytes > MAX_HEAD:
            self._reject(HEAD_TOO_LARGE)
        elif self._head_timer is None:
            self._start_head_timer()

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    # Callbacks of the parser. `feed_data` raises HttpParserError when a callback raises.

    def on_message_begin(self) -> None:
        """Resets the state of the head at the start of a request."""
        self._idle_since = -1.0
        self._url = b""
        self._headers = []
        self._expects_continue = False
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        """Appends a part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collects a header, or a trailer after the body."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Validates the complete head, then passes the request to the application or rejects it."""
        self._in_head = False
        self._version = self._parser.get_http_version()
        if self._version != "1.1":
            self._version = version_of(self._version)
            if not self._version:
                raise self._rejection(VERSION_NOT_SUPPORTED)
        if len(self._url) > MAX_TARGET:
            raise self._rejection(TARGET_TOO_LONG)
        too_large = self._framing_bytes > MAX_HEAD and sum(len(n) + len(v) + 4 for n, v in self._headers) > MAX_HEAD
        if too_large or len(self._headers) > MAX_HEADERS:
            raise self._rejection(HEAD_TOO_LARGE)
        names = dict(self._headers)
        if names.get(b"host") != self._host or len(names) != len(self._headers) or not CHECKED.isdisjoint(names):
            self._check_headers(names)
        if self._parser.should_upgrade():
            method, version = self._parser.get_method(), self._parser.get_http_version()
            if not is_handshake(method, version, self._headers):
                if method == b"CONNECT":
                    raise self._rejection(BAD_REQUEST)
                self._replayed_head = head_without_upgrade(method, self._url, version, self._headers)
                return
            if self.cycle is not None and not self.cycle.response_complete:
                raise self._rejection(BAD_REQUEST)  # a handshake may not be pipelined behind a pending response
            self._upgrading = True
        self._receive_request()
        self._headers = []  # collects trailers, which are dropped (RFC 9110, 6.5.1)
        self._in_body = True
        self._framing_bytes = 0

    def _check_headers(self, names: Mapping[bytes, bytes]) -> None:
        error = error_of(self._headers, self._version)
        if error is not None:
            raise self._rejection(error)
        self._host = names.get(b"host", self._host)
        self._expects_continue = b"expect" in names and expects_continue(self._headers)

    def _receive_request(self) -> None:
        """Starts the application for the request, or queues the request behind the running one."""
        version, url, parser, state = self._version, self._url, self._parser, self.port.state
        path, raw_path, query = parse_target_cached(url) if len(url) <= SHORT_TARGET else parse_target(url)
        scope: dict[str, Any] = {
            **self._scope,
            "http_version": version,
            "headers": self._headers,
            "state": state.copy(),
            "method": parser.get_method().decode("ascii"),
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "plimsoll.target": url,
        }
        before = self.cycle
        keep_alive = version != "1.0" and not self._upgrading and parser.should_keep_alive() and "draining" not in state
        self.cycle = cycle = scope["plimsoll.cycle"] = Cycle(
            scope,
            self.transport,
            self.flow,
            self.port.event,
            self._expects_continue,
            keep_alive,
            self.on_response_complete,
        )
        if self._upgrading:
            cycle.detach = self._detach
        if before is None or before.response_complete:
            self._current = cycle
            self._start(cycle)
        else:  # pipelined requests are processed in order
            self.pipeline.appendleft(cycle)

    def _start(self, cycle: Cycle) -> None:
        tasks = self.port.tasks
        task = self.loop.create_task(cycle.run_asgi(self.port.app))
        cycle.on_return = partial(tasks.discard, task)  # a done callback of the task would cost an event loop iteration
        tasks.add(task)

    def _rejection(self, error: ClientError) -> ValueError:
        self._rejected_with = error
        return ValueError(error.code)

    def _buffer_trailing_data(self, data: bytes) -> None:
        """Buffers bytes behind a handshake until its response is sent."""
        self._trailing_data += data
        if len(self._trailing_data) > MAX_BUFFERED:
            self.flow.pause_reading()

    def _detach(self) -> Detached:
        """Detaches the connection for use as a WebSocket. Returns it with the buffered bytes."""
        trailing_data, self._trailing_data = self._trailing_data, b""
        self._upgrading = False
        self._stop_read_rate()
        return Detached(self.transport, self, trailing_data, self.flow.write_paused)

    def _parse_without_upgrade(self, rest: bytes) -> None:
        head, self._replayed_head = self._replayed_head, b""
        self._parser = self._new_parser()
        self._parse(head + rest)

    def on_body(self, body: bytes) -> None:
        """Passes bytes of the body to the newest request. Pauses reading when too many are buffered behind a running
        one."""
        self._framing_bytes = 0
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return
        cycle.feed_data(body)
        if self.pipeline:
            self._pipelined_bytes += len(body)
            if self._pipelined_bytes > MAX_BUFFERED:
                self.flow.hold()

    def on_message_complete(self) -> None:
        """Marks the request's body as complete."""
        if not self._replayed_head:
            self._framing_bytes = 0
            self._in_body = False
            if self._linger_timer is not None:
                self._stop_lingering()
            if self.cycle is not None and not self.cycle.response_complete:
                self.cycle.feed_eof()

    # Shutdown.

    @property
    def is_idle(self) -> bool:
        """Whether the connection is open for a request, and none is pending."""
        return (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing()

    def shutdown(self) -> None:
        """Closes the connection when the port closes: immediately, or after the pending response."""
        if self.is_idle:
            self.transport.close()
        elif self.cycle is not None:
            self.cycle.keep_alive = False

    def drain(self) -> None:
        """Drains the connection: a response that has not started is sent with `Connection: close`."""
        if self.cycle is not None and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Starts the next pipelined request, or the keep-alive timer. Reads the rest of an incomplete body for up to
        `lingering_seconds`."""
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._current = self.pipeline.pop()
            self._start(self._current)
        else:
            self._start_keep_alive()
            if not (self._unparsed or self._in_body or self.flow.read_paused):  # as mostly
                self._pipelined_bytes = 0
                return
        if self._unparsed:
            self._parse_pipelined()
        if not self.pipeline:
            self._pipelined_bytes = 0
        if self.flow.read_paused and not self._unparsed and self._pipelined_bytes <= MAX_BUFFERED:
            self.flow.release()
        # Only the newest request can have an incomplete body.
        if self._in_body and self.cycle is not None and self.cycle.response_complete and self._linger_timer is None:
            self._linger_timer = self.loop.call_later(self.lingering_seconds, self.transport.close)

    # Timeout for a client that does not read. It runs only while writing is paused, so a slow upstream never causes it.

    def pause_writing(self) -> None:
        """Applies backpressure and starts measuring the client's read rate. Below `min_rate` the connection is
        aborted."""
        self.flow.pause_writing()
        if self.min_rate and self._read_rate is None:
            size = self.transport.get_write_buffer_size
            self._read_rate = MinReadRate(self.loop, self.read_seconds, self.min_rate, size, self.transport.abort)

    def resume_writing(self) -> None:
        """Releases backpressure and stops measuring the client's read rate."""
        self.flow.resume_writing()
        self._stop_read_rate()

    def _stop_read_rate(self) -> None:
        if self._read_rate is not None:
            self._read_rate.stop()
            self._read_rate = None

    # One keep-alive timer per connection that re-arms itself costs less than one per request, set and cancelled.

    def _start_keep_alive(self) -> None:
        self._idle_since = self.loop.time()
        if self._keep_alive_timer is None:
            self._keep_alive_timer = self.loop.call_later(self.keep_alive_expiry, self._check_keep_alive)

    def _check_keep_alive(self) -> None:
        """Closes the connection if it was idle for `keep_alive_expiry`, else re-arms the timer."""
        self._keep_alive_timer = None
        if self._idle_since < 0 or self.transport.is_closing():
            return
        left = self._idle_since + self.keep_alive_expiry - self.loop.time()
        if left <= 0:
            # With unread bytes in the write buffer, a plain close could wait for the client forever.
            (self.transport.abort if self.transport.get_write_buffer_size() else self.transport.close)()
        else:
            self._keep_alive_timer = self.loop.call_later(left, self._check_keep_alive)

    def _stop_lingering(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    def _reject(self, error: ClientError) -> None:
        """Sends the error response to a rejected request, unless another response is due first, and closes."""
        self._parsing_stopped = True
        self._stop_head_timer()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnect()
            if cycle.response_started or not self._in_body:
                self.transport.close()
                return
        body = self.port.error_body(self._url.partition(b"?")[0].decode("latin-1"), error)
        self.transport.write(STATUS_LINE[error.status] + ERROR_HEAD % len(body) + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # A close with unread input resets the connection, and the client may lose the response (RFC 9112, 9.6).
        self.loop.call_later(REJECT_CLOSE_SECONDS, self.transport.close)
