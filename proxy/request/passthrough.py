"""Every path that is not fitted: requests and answers are streamed through unchanged.

A WebSocket handshake that the upstream accepts becomes a tunnel.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from proxy.apis import error_body, stream_format
from proxy.apis.paths import shown
from proxy.errors import ClientError, stopped
from proxy.http.client.answer import Answer, UpstreamError
from proxy.http.client.dialer import set_socket_options
from proxy.http.receiving import Receive, Scope, Upload, cycle_of, receive_body, target_of
from proxy.http.relay import BrokenOff, ClientDisconnected, Send, relay, send_error, until_disconnect
from proxy.http.server.cycle import CLOSE
from proxy.http.tunnel import Tunnel
from proxy.model.outcome import PASSTHROUGH, WEBSOCKET, Outcome
from proxy.request.tracing import RequestTrace
from proxy.upstreams.upstream import Body, Sender
from proxy.wire.headers import REQUEST_ID, Header, answered_id, request_id, to_client, value_of

SWITCHED = 101
CLIENT_LEFT = 499  # logged for a client that disconnected before the answer (nginx)
BODY_SECONDS = 60.0
ALLOWED = ((b"allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),)


async def passthrough(
    scope: Scope,
    receive: Receive,
    send: Send,
    upstream: Sender,
    on_done: Callable[[Outcome], None],
    body_seconds: float = BODY_SECONDS,
    rate: float = 0.0,
    trace: RequestTrace | None = None,
) -> None:
    """Streams one HTTP request to the upstream, and its answer to the client.

    `on_done` gets its outcome: `passed`, `rejected` (by us), `upstream_error`, `broken_off` (the upstream's
    connection was lost), `cancelled` (by the client), `stopped` (with the server) or `bug`. `body_seconds` is how long
    the client may pause in its request's body, `rate` how many bytes a second it must send. `trace`: if the
    request is sampled.
    """
    passage = _Passage(scope, receive, send, upstream, body_seconds, rate, trace)
    result, status = "bug", 500
    try:
        result, status = await passage.go()
    except asyncio.CancelledError:
        result, status = await passage.stop()
        if passage.begun:
            raise  # the client must see that its answer breaks off
    finally:
        on_done(passage.outcome(result, status))


class _Passage:
    """One request. Times of `time.perf_counter`, in seconds."""

    __slots__ = (
        *("_attempts", "_began", "_body_seconds", "_cycle", "_first", "_receive", "_scope", "_send", "_sent"),
        *("_rate", "_trace", "_tunnel", "_upstream", "answer"),
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        upstream: Sender,
        body_seconds: float,
        rate: float,
        trace: RequestTrace | None,
    ) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._upstream, self._body_seconds, self._rate, self._trace = upstream, body_seconds, rate, trace
        self._began = self._sent = time.perf_counter()
        self._first: float | None = None
        self._cycle = cycle_of(scope)
        self._tunnel: Tunnel | None = None
        self._attempts = 0
        self.answer: Answer | None = None

    @property
    def _is_handshake(self) -> bool:
        return self._cycle is not None and self._cycle.is_handshake

    async def go(self) -> tuple[str, int]:
        """The result and the status that the client got."""
        try:
            self._check()
            answer = await self._ask()
            if answer.status == SWITCHED:
                return await self._join(answer)
            extra = (CLOSE,) if self._is_handshake else ()
            form = stream_format(self._scope["path"])
            await relay(answer, self._receive, self._send, form, extra=extra, started=self._begins, cycle=self._cycle)
        except ClientError as error:
            return await self._reject(error)
        except UpstreamError as error:
            await self._fail(error.for_client())
            return "upstream_error", error.status
        except BrokenOff:
            assert self.answer is not None
            return "broken_off", self.answer.status
        except ClientDisconnected:
            return "cancelled", CLIENT_LEFT
        return "passed", answer.status

    def _check(self) -> None:
        if self._scope["method"] == "TRACE":
            raise ClientError(405, "TRACE is not passed on.", code="method_not_allowed")
        if not target_of(self._scope).startswith(b"/"):
            raise ClientError(400, "The request's target is not a path.", code="invalid_target")

    async def _ask(self) -> Answer:
        body = await self._body()
        self._sent = time.perf_counter()
        self._attempts = 1
        target, headers = target_of(self._scope), self._scope["headers"]
        if self._trace is not None:
            headers = self._trace.attempt(headers)
        if self._is_handshake:
            sending = self._upstream.upgrade(target, headers)
        else:
            sending = self._upstream.send(self._scope["method"], target, headers, body)
        self.answer = await until_disconnect(sending, self._receive, self._cycle)
        if self._trace is not None:
            self._trace.answered(self.answer.status)
        return self.answer

    async def _join(self, answer: Answer) -> tuple[str, int]:
        """Tunnels bytes between client and upstream until both have closed."""
        assert self._cycle is not None
        try:
            upstream = answer.detach()
            client = self._cycle.switch_protocols(to_client(answer.headers))
            if client is None:
                raise ClientDisconnected
            set_socket_options(client.transport.get_extra_info("socket"))
            self._begins()
            self._tunnel = tunnel = Tunnel(client, upstream)
            try:
                await tunnel.wait_closed()
            finally:
                tunnel.close()
        finally:
            await answer.close()
        if tunnel.upstream.error is not None:
            return "broken_off", SWITCHED
        return ("passed" if tunnel.client.error is None else "cancelled"), SWITCHED

    async def _body(self) -> Body:
        """The body: bytes if it arrived whole, else a stream. Then `_receive` of the stream detects a disconnect."""
        headers = self._scope["headers"]
        length = value_of(headers, b"content-length")
        if length == b"0" or (length is None and value_of(headers, b"transfer-encoding") is None):
            return None
        first, more = await receive_body(self._receive, self._body_seconds)
        if not more:
            return first
        upload = Upload(first, self._receive, self._body_seconds, self._rate)
        self._receive = upload.receive
        return upload.chunks()

    async def _reject(self, error: ClientError) -> tuple[str, int]:
        """Sends the error. If the answer has begun, the connection is closed instead: the answer stays incomplete."""
        if self.answer is None:
            await self._fail(error, ALLOWED if error.status == 405 else ())
        return "rejected", error.status

    async def _fail(self, error: ClientError, extra: Sequence[Header] = ()) -> None:
        await send_error(self._send, error, error_body(self._scope["path"], error), extra)

    @property
    def begun(self) -> bool:
        """Whether the client has received a part of its answer."""
        if self._cycle is None or self._tunnel is not None:
            return self.answer is not None
        return self._cycle.response_started

    async def stop(self) -> tuple[str, int]:
        """The server stops: sends a 503 to a client whose answer has not begun."""
        if self.begun:
            return "stopped", self.answer.status if self.answer else 0
        await self._fail(stopped())
        return "stopped", stopped().status

    def _begins(self) -> None:
        self._first = time.perf_counter() - self._sent

    def outcome(self, result: str, status: int) -> Outcome:
        """The outcome, for metrics and log."""
        tunnel = self._tunnel
        kind = value_of(self.answer.headers, b"content-type") if self.answer else None
        if self._trace is not None:
            self._trace.stop()
        return Outcome(
            endpoint=WEBSOCKET if self._is_handshake else PASSTHROUGH,
            result=result,
            status=status,
            stream=bool(kind and kind.startswith(b"text/event-stream")),
            own_seconds=self._sent - self._began,
            upstream_seconds=time.perf_counter() - self._sent,
            first_byte_seconds=self._first,
            bytes_in=tunnel.client.received if tunnel else 0,
            bytes_out=tunnel.upstream.received if tunnel else 0,
            path=shown(target_of(self._scope)),
            attempts=self._attempts,
            request_id=request_id(self._id()),
            trace=None if self._trace is None else self._trace.result(),
        )

    def _id(self) -> bytes:
        answered = answered_id(self.answer.headers) if self.answer else None
        return answered or value_of(self._scope["headers"], REQUEST_ID) or b""
