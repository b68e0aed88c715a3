"""One client connection: HTTP/1.1 for an ASGI application, with timeouts and memory limits for each client."""

from __future__ import annotations

import asyncio
import re
import select
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, cast
from urllib.parse import unquote

import httptools

from proxy.errors import ClientError
from proxy.http.callbacks import ErrorBody, Event, ignore
from proxy.http.cancellation import MinReadRate
from proxy.http.server.cycle import STATUS_LINE, Cycle
from proxy.http.server.flow import Flow
from proxy.http.tunnel import Detached
from proxy.wire.headers import Header

HEAD_SECONDS = 20.0  # from the accept, or from a request's first byte, to the end of the request's head
MAX_HEAD = 64 * 1024  # bytes of a request's head
MAX_HEADERS = 200
MAX_TARGET = 32 * 1024
SHORT_TARGET = 256  # bytes; parsed targets up to this length are cached
KEEP_ALIVE_SECONDS = 75.0  # longer than a load balancer's usual 60, so that it closes first and loses no response
LINGER_SECONDS = 30.0  # for the rest of a body after its response is sent: an immediate close could lose the response
MOST_BEHIND = 64 * 1024  # bytes buffered behind a WebSocket handshake until its response, or behind a running request
MOST_PIPELINED = 8  # requests that may queue behind a running one; at this number, parsing pauses
HEAD_END = b"\r\n\r\n"
WATCH_SECONDS = 1.0  # between two checks for a client's disconnect while reading is paused
MIN_RATE = 240.0  # bytes per second that a client must read while writing is paused
READ_SECONDS = 60.0  # interval over which that rate is measured
REFUSED_SECONDS = 1.0  # from the response to a rejected request to the close of the connection
REFUSAL_HEAD = (
    b"content-type: application/json\r\ncontent-length: %d\r\nx-should-retry: false\r\nconnection: close\r\n\r\n"
)
ASGI = {"version": "3.0", "spec_version": "2.3"}
Asgi = Callable[[Any, Any, Any], Awaitable[None]]
UPGRADE = frozenset((b"upgrade", b"http2-settings"))  # headers, and options of Connection

BAD = ClientError(400, "This is no legal HTTP request.", code="bad_request")
HEAD_TOO_LARGE = ClientError(
    431, f"The request's head has over {MAX_HEAD} bytes or {MAX_HEADERS} headers.", code="head_too_large"
)
TARGET_TOO_LONG = ClientError(414, f"The request's target has over {MAX_TARGET} bytes.", code="target_too_long")
NO_VERSION = ClientError(505, "HTTP/1.1 and HTTP/1.0 are spoken here.", code="http_version_not_supported")
NO_HOST = ClientError(400, "A request has one Host, which is a host and perhaps a port.", code="invalid_host")
# RFC 9112, 3.2: uri-host [ ":" port ]; the host may be empty. RFC 6874 adds the zone of an IPv6 address.
HOST = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]+(?:%25[\w.~-]+)?\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?[ \t]*"
)
NO_CODING = ClientError(501, "No Transfer-Encoding but chunked is understood.", code="transfer_coding_unsupported")


def _parsed(url: bytes) -> tuple[str, bytes, bytes]:
    """Returns the target's decoded path, its raw path and its query. Raises HttpParserError or ValueError if the target
    is invalid."""
    if url == b"*":  # RFC 9112, 3.2.4
        return "*", b"*", b""
    parsed = httptools.parse_url(url)
    if (parsed.schema or b"http").lower() not in (b"http", b"https"):
        raise ValueError("a scheme that is not ours")
    raw = parsed.path or b"/"  # the absolute form may have an empty path (RFC 9110, 4.2.3)
    path = raw.decode("ascii")
    return unquote(path) if "%" in path else path, raw, parsed.query or b""


_remembered = lru_cache(maxsize=1024)(_parsed)


def _staying(headers: Iterable[Header]) -> Iterator[Header]:
    """Yields the headers without the upgrade. Other options of Connection stay: they name hop-by-hop headers."""
    for name, value in headers:
        if name == b"connection":
            value = b",".join(option for option in value.split(b",") if option.strip().lower() not in UPGRADE)
        if name not in UPGRADE and (value or name != b"connection"):
            yield name, value


def _address(found: object) -> tuple[str, int] | None:
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) and len(found) >= 2 else None


def _crowded(data: bytes) -> bool:
    """Whether `data` may contain more pipelined requests than the queue allows. The first head is usually followed by a
    body with few line breaks: a search that finds none in 1 MB takes 20 us, a count of them takes 500."""
    at = data.find(HEAD_END) + len(HEAD_END)
    for _ in range(2 * MOST_PIPELINED):
        at = data.find(b"\n", at) + 1
        if not at:
            return False
    return data.count(HEAD_END) > MOST_PIPELINED


class Port:
    """State shared by all connections of one listening port: the application, its lifespan state, the callbacks for
    error bodies and events, the open connections and the running tasks."""

    __slots__ = ("app", "connections", "error_body", "event", "state", "tasks")

    def __init__(self, app: Asgi, state: dict[str, Any], error_body: ErrorBody, event: Event = ignore) -> None:
        self.app, self.state, self.error_body, self.event = app, state, error_body, event
        self.connections: set[Protocol] = set()
        self.tasks: set[asyncio.Task[None]] = set()


class Protocol(asyncio.Protocol):
    """One client connection, with timeouts and limits for the head of a request.

    A request's scope contains `plimsoll.target`, the target byte for byte. Trailers are never added to the headers.
    After a WebSocket handshake no bytes are parsed as HTTP: the request's cycle may detach the connection, else it
    closes.
    """

    head_seconds = HEAD_SECONDS
    linger_seconds = LINGER_SECONDS
    min_rate = MIN_RATE
    read_seconds = READ_SECONDS
    keep_alive_seconds = KEEP_ALIVE_SECONDS

    def __init__(self, port: Port) -> None:
        self.port = port
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.flow: Flow
        self.cycle: Cycle | None = None  # of the newest request
        self._parser = self._new_parser()
        self._server: tuple[str, int] | None = None
        self._client: tuple[str, int] | None = None
        self.pipeline: deque[Cycle] = deque()  # pipelined requests queued behind `_running`, the oldest last
        self._headers: list[Header] = []
        self._expects_continue = False
        self._url = b""
        self._error = BAD
        self._version = ""
        self._host = b""  # the last valid Host
        self._running: Cycle | None = None
        self._head_open = self._body_open = self._deaf = False
        self._unmade = 0  # bytes since the last complete head or body data: heads, trailers, chunk extensions
        self._replay = b""
        self._switching = False
        self._behind = b""
        self._unparsed, self._at = b"", 0
        self._waiting = 0  # bytes of bodies buffered behind the running request
        self._watch: asyncio.TimerHandle | None = None
        self._unread: MinReadRate | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._idle_since = -1.0
        self._idle_timer: asyncio.TimerHandle | None = None

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # `_check_version` checks the version. A request pipelined behind one with `Connection: close` must still parse.
        parser.set_dangerous_leniencies(lenient_version=True, lenient_data_after_close=True)
        return parser

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers the connection and starts the timeout for the first head."""
        self.transport = cast(asyncio.Transport, transport)
        self.flow = Flow(self.transport)
        self.port.connections.add(self)
        self._server = _address(transport.get_extra_info("sockname"))
        self._client = _address(transport.get_extra_info("peername"))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops all timers and reports the disconnect to the running and the newest request."""
        self._head_in_time()
        self._stop_lingering()
        for timer in (self._idle_timer, self._watch):
            if timer is not None:
                timer.cancel()
        self._idle_timer = self._watch = None
        self._reads()
        self._unparsed = b""
        for cycle in (self._running, self.cycle):  # of pipelined requests, the first and the last
            if cycle is not None and not cycle.response_complete:
                cycle.leave()
        self.port.connections.discard(self)
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        del self._parser  # breaks a reference cycle

    def data_received(self, data: bytes) -> None:
        """Parses bytes from the client. Input with many pipelined requests is parsed head by head."""
        if self._unparsed:
            self._unparsed = self._unparsed[self._at :] + data
            self._at = 0
        elif data.find(b"\n", data.find(HEAD_END) + len(HEAD_END)) >= 0 and _crowded(data):
            self._unparsed, self._at = data, 0
            self._parse_in_turn()
        else:
            self._parse(data)

    def _parse_in_turn(self) -> None:
        """Parses head by head, and pauses parsing and reading while the queue of pipelined requests is full."""
        data, start = self._unparsed, self._at
        while start < len(data) and len(self.pipeline) < MOST_PIPELINED:
            end = data.find(HEAD_END, start) + len(HEAD_END)
            end = end if end >= len(HEAD_END) else len(data)
            self._parse(data[start:end])
            start = end
        self._unparsed, self._at = (data, start) if start < len(data) else (b"", 0)
        if self._unparsed:
            self._hold()

    def _hold(self) -> None:
        """Pauses reading until the queue is shorter. A paused transport does not report a disconnect, so a timer polls
        for it."""
        self.flow.hold()
        if self._watch is None and hasattr(select, "POLLRDHUP"):
            self._watch = self.loop.call_later(WATCH_SECONDS, self._look_for_client)

    def _look_for_client(self) -> None:
        self._watch = None
        if self.transport.is_closing() or not self.flow.held:
            return
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        if poll.poll(0):
            self.transport.abort()
        else:
            self._watch = self.loop.call_later(WATCH_SECONDS, self._look_for_client)

    def _parse(self, data: bytes) -> None:
        if self._deaf:
            if self._switching:
                self._keep(data)
            return
        self._unmade += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self._switching:
                self._deaf = True
                self._head_in_time()
                self._keep(rest)
            else:
                self._go_on_without_upgrade(rest)
        except httptools.HttpParserError:
            preface = self._parser.get_method() == b"PRI"  # RFC 9113, 3.4: the HTTP/2 preface
            self._refuse(NO_VERSION if preface else self._error)
        else:
            self._weigh()

    def _weigh(self) -> None:
        if not self._head_open:
            if self._unmade > MAX_HEAD:
                self._refuse(BAD)
            elif self._head_timer is not None and not self._unmade:  # empty lines before a head (RFC 9112, 2.2)
                self._head_in_time()
        elif self._unmade > MAX_HEAD:
            self._refuse(HEAD_TOO_LARGE)
        elif self._head_timer is None:
            self._expect_head()

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _head_in_time(self) -> None:
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
        self._head_open = True

    def on_url(self, url: bytes) -> None:
        """Appends a part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collects a header, or a trailer after the body."""
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Validates the complete head, then passes the request to the application or rejects it."""
        self._head_open = False
        self._version = self._parser.get_http_version()
        if self._version != "1.1":
            self._check_version()
        if len(self._url) > MAX_TARGET:
            raise self._because(TARGET_TOO_LONG)
        too_large = self._unmade > MAX_HEAD and sum(len(n) + len(v) + 4 for n, v in self._headers) > MAX_HEAD
        if too_large or len(self._headers) > MAX_HEADERS:
            raise self._because(HEAD_TOO_LARGE)
        hosts = 0
        for name, value in self._headers:
            if name == b"host":
                hosts += 1
                if value != self._host:
                    self._check_host(value)
            elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                raise self._because(NO_CODING)  # the upstream would get the body without this header
        if hosts != 1 and (hosts or self._version != "1.0"):
            raise self._because(NO_HOST)
        if self._parser.should_upgrade():
            if not self._is_handshake():
                self._replay = self._plain_head()
                return
            if self.cycle is not None and not self.cycle.response_complete:
                raise self._because(BAD)  # a handshake may not be pipelined behind a pending response
            self._switching = True
        self._begin()
        self._headers = []  # collects trailers, which are dropped (RFC 9110, 6.5.1)
        self._body_open = True
        self._unmade = 0

    def _check_version(self) -> None:
        """Treats a higher minor version as 1.1 (RFC 9110, 2.5). Rejects another major version."""
        major, _, minor = self._version.partition(".")
        if major != "1":
            raise self._because(NO_VERSION)
        self._version = "1.0" if minor == "0" else "1.1"

    def _check_host(self, value: bytes) -> None:
        if not HOST.fullmatch(value):
            raise self._because(NO_HOST)
        self._host = value

    def _begin(self) -> None:
        """Starts the application for the request, or queues the request behind the running one."""
        version = self._version
        url = self._url
        path, raw_path, query = _remembered(url) if len(url) <= SHORT_TARGET else _parsed(url)
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": ASGI,
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": "http",
            "root_path": "",
            "headers": self._headers,
            "state": self.port.state.copy(),
            "method": self._parser.get_method().decode("ascii"),
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "plimsoll.target": self._url,
        }
        before = self.cycle
        keep_alive = (
            version != "1.0"
            and not self._switching
            and self._parser.should_keep_alive()
            and "draining" not in self.port.state
        )
        self.cycle = cycle = scope["plimsoll.cycle"] = Cycle(
            scope,
            self.transport,
            self.flow,
            self.port.event,
            self._expects_continue,
            keep_alive,
            self.on_response_complete,
        )
        if self._switching:
            cycle.hand_over = self._handed_over
        if before is None or before.response_complete:
            self._running = cycle
            self._start(cycle)
        else:  # pipelined requests are processed in order
            self.pipeline.appendleft(cycle)

    def _start(self, cycle: Cycle) -> None:
        tasks = self.port.tasks
        task = self.loop.create_task(cycle.run_asgi(self.port.app))
        cycle.over = partial(tasks.discard, task)  # a done callback of the task would cost an event loop iteration
        tasks.add(task)

    def _because(self, error: ClientError) -> ValueError:
        self._error = error
        return ValueError(error.code)

    def _is_handshake(self) -> bool:
        """Whether the request is a WebSocket handshake (RFC 6455, 4.1): an HTTP/1.1 GET without a body."""
        told = dict(self._headers)
        return (
            [value.lower() for name, value in self._headers if name == b"upgrade"] == [b"websocket"]
            and self._parser.get_method() == b"GET"
            and self._parser.get_http_version() == "1.1"
            and told.get(b"content-length", b"0") == b"0"
            and b"transfer-encoding" not in told
        )

    def _keep(self, data: bytes) -> None:
        """Buffers bytes behind a handshake until its response is sent."""
        self._behind += data
        if len(self._behind) > MOST_BEHIND:
            self.flow.pause_reading()

    def _handed_over(self) -> Detached:
        """Detaches the connection for use as a WebSocket. Returns it with the buffered bytes."""
        behind, self._behind = self._behind, b""
        self._switching = False
        self._reads()
        return Detached(self.transport, self, behind, self.flow.write_paused)

    def _plain_head(self) -> bytes:
        """Returns the head without its request to upgrade, which a server may ignore (RFC 9110, 7.8). Many Java clients
        send `Upgrade: h2c` with every first request, and llhttp treats their bodies as data of the new protocol."""
        if self._parser.get_method() == b"CONNECT":
            raise self._because(BAD)
        kept = [b"%b: %b\r\n" % header for header in _staying(self._headers)]
        version = self._parser.get_http_version().encode()
        return b"%b %b HTTP/%b\r\n%b\r\n" % (self._parser.get_method(), self._url, version, b"".join(kept))

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        head, self._replay = self._replay, b""
        self._parser = self._new_parser()
        self._parse(head + rest)

    def on_body(self, body: bytes) -> None:
        """Passes bytes of the body to the newest request. Pauses reading when too many are buffered behind a running
        one."""
        self._unmade = 0
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return
        cycle.takes(body)
        if self.pipeline:
            self._waiting += len(body)
            if self._waiting > MOST_BEHIND:
                self._hold()

    def on_message_complete(self) -> None:
        """Marks the request's body as complete."""
        if not self._replay:
            self._unmade = 0
            self._body_open = False
            if self._linger_timer is not None:
                self._stop_lingering()
            if self.cycle is not None and not self.cycle.response_complete:
                self.cycle.ends()

    # Shutdown.

    def shutdown(self) -> None:
        """Closes the connection when the port closes: immediately, or after the pending response."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def drain(self) -> None:
        """Drains the connection: a response that has not started is sent with `Connection: close`."""
        if self.cycle is not None and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Starts the next pipelined request, or the keep-alive timeout. Reads the rest of an incomplete body for up to
        `linger_seconds`."""
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._running = self.pipeline.pop()
            self._start(self._running)
        else:
            self._rests()
        if self._unparsed:
            self._parse_in_turn()
        if not self.pipeline:
            self._waiting = 0
        if self.flow.read_paused and not self._unparsed and self._waiting <= MOST_BEHIND:
            self.flow.release()
        # Only the newest request can have an incomplete body.
        if self._body_open and self.cycle is not None and self.cycle.response_complete and self._linger_timer is None:
            self._linger_timer = self.loop.call_later(self.linger_seconds, self.transport.close)

    # Timeout for a client that does not read. It runs only while writing is paused, so a slow upstream never causes it.

    def pause_writing(self) -> None:
        """Applies backpressure and starts measuring the client's read rate. Below `min_rate` the connection is
        aborted."""
        self.flow.pause_writing()
        if self.min_rate and self._unread is None:
            size = self.transport.get_write_buffer_size
            self._unread = MinReadRate(self.loop, self.read_seconds, self.min_rate, size, self.transport.abort)

    def resume_writing(self) -> None:
        """Releases backpressure and stops measuring the client's read rate."""
        self.flow.resume_writing()
        self._reads()

    def _reads(self) -> None:
        if self._unread is not None:
            self._unread.stop()
            self._unread = None

    # One keep-alive timer per connection that re-arms itself costs less than one per request, set and cancelled.

    def _rests(self) -> None:
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.keep_alive_seconds, self._rested)

    def _rested(self) -> None:
        """Closes the connection if it was idle for `keep_alive_seconds`, else re-arms the timer."""
        self._idle_timer = None
        if self._idle_since < 0 or self.transport.is_closing():
            return
        left = self._idle_since + self.keep_alive_seconds - self.loop.time()
        if left <= 0:
            # With unread bytes in the write buffer, a plain close could wait for the client forever.
            (self.transport.abort if self.transport.get_write_buffer_size() else self.transport.close)()
        else:
            self._idle_timer = self.loop.call_later(left, self._rested)

    def _stop_lingering(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    def _refuse(self, error: ClientError) -> None:
        """Sends the error response to a rejected request, unless another response is due first, and closes."""
        self._deaf = True
        self._head_in_time()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.leave()
            if cycle.response_started or not self._body_open:
                self.transport.close()
                return
        body = self.port.error_body(self._url.partition(b"?")[0].decode("latin-1"), error)
        self.transport.write(STATUS_LINE[error.status] + REFUSAL_HEAD % len(body) + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # A close with unread input resets the connection, and the client may lose the response (RFC 9112, 9.6).
        self.loop.call_later(REFUSED_SECONDS, self.transport.close)
