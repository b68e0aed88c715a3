"""Which requests are traced, and the ids and times of their spans while they are under way. It exports nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from proxy.config.otel import Sampler
from proxy.model.api import Api, ResponseState
from proxy.model.trace import AttemptSpan, Trace
from proxy.wire.headers import Header
from proxy.wire.response_id import response_id
from proxy.wire.tap import Tap
from proxy.wire.trace_context import TraceContext, trace_context, trace_state, with_trace_context

Headers = Sequence[Header]
RATIO_BITS = 64  # OpenTelemetry's TraceIdRatioBased compares the last 64 bits of the trace id


class RequestTrace(msgspec.Struct):
    """The spans of one request so far. Times in nanoseconds since 1970: the clock is read once, and what has passed
    since then is measured, so that a clock that is set meanwhile makes no span negative."""

    method: str
    context: TraceContext  # of the request's own span
    parent_id: str
    started: int
    began: int  # on the monotonic clock, in nanoseconds
    ended: int = 0
    attempts: tuple[AttemptSpan, ...] = ()
    state: str = ""
    response_id: str = ""
    finish: str = ""
    _attempt_id: str = ""  # of the attempt under way
    _attempt_started: int = 0
    _attempt_status: int = 0
    _attempt_upstream: str = ""

    def now(self) -> int:
        """The time."""
        return self.started + time.monotonic_ns() - self.began

    def attempt(self, headers: Headers, upstream: str = "") -> list[Header]:
        """Begins the span of an attempt, and returns its headers: the upstream's spans become children of it. An
        `upstream` has a name if there are several."""
        self.stop()
        self._attempt_id, self._attempt_started, self._attempt_status = new_span_id(), self.now(), 0
        self._attempt_upstream = upstream
        context = TraceContext(self.context.trace_id, self._attempt_id, self.context.flags)
        return with_trace_context(headers, context)

    def answered(self, status: int) -> None:
        """The upstream responded with this status."""
        self._attempt_status = status

    def read(self, api: Api, body: bytes) -> None:
        """Reads the id and the finish reason of a complete answer."""
        self.response_id, self.finish = response_id(body), api.response.read(body, ResponseState()).finish or ""

    def read_along(self, tap: Tap) -> None:
        """Reads them of an answer that was relayed."""
        self.response_id, self.finish = tap.response_id, tap.finish or ""

    def stop(self) -> None:
        """Ends the attempt's span, if there is one. The last call ends the request's own span."""
        self.ended = self.now()
        if self._attempt_id:
            times, status = (self._attempt_started, self.ended), self._attempt_status
            span = AttemptSpan(self._attempt_id, *times, status, self._attempt_upstream)
            self.attempts = (*self.attempts, span)
            self._attempt_id = ""

    def result(self) -> Trace:
        """The trace, for the outcome."""
        return Trace(
            self.context.trace_id,
            self.context.span_id,
            self.method,
            self.started,
            self.ended,
            self.parent_id,
            self.attempts,
            state=self.state,
            response_id=self.response_id,
            finish=self.finish,
        )


Begin = Callable[[str, Headers], tuple[RequestTrace | None, Headers]]  # `Tracer.begin`


def untraced(method: str, headers: Headers) -> tuple[RequestTrace | None, Headers]:
    """Where nothing is traced."""
    return None, headers


@dataclass(frozen=True, slots=True)
class Tracer:
    """Begins traces, or continues those of clients."""

    sampler: Sampler

    def begin(self, method: str, headers: Headers) -> tuple[RequestTrace | None, Headers]:
        """The trace of a request, and the headers that make its span the parent of what follows. A request that is not
        sampled has no trace, and its headers stay as they are."""
        parent = trace_context(headers)
        trace_id = f"{random.getrandbits(128):032x}" if parent is None else parent.trace_id
        if not is_sampled(self.sampler, parent, trace_id):
            return None, headers
        # A trace that the sampler takes although its parent did not is sampled from here on.
        context = TraceContext(trace_id, new_span_id(), 1 if parent is None else parent.flags | 1)
        parent_id, times = "" if parent is None else parent.span_id, (time.time_ns(), time.monotonic_ns())
        trace = RequestTrace(method, context, parent_id, *times)
        if parent is not None:
            trace.state = trace_state(headers)
        return trace, with_trace_context(headers, context, starts=parent is None)


def is_sampled(sampler: Sampler, parent: TraceContext | None, trace_id: str) -> bool:
    """The decision of the sampler (OpenTelemetry's samplers of the same names)."""
    if parent is not None and sampler.parent_based:
        return parent.sampled
    return int(trace_id[-RATIO_BITS // 4 :], 16) < sampler.ratio * (1 << RATIO_BITS)


def new_span_id() -> str:
    """A random id of a span."""
    return f"{random.getrandbits(64):016x}"
