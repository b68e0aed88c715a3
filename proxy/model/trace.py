"""The trace of a finished request: the ids and times of its spans (W3C Trace Context, OpenTelemetry)."""

from __future__ import annotations

import msgspec


class AttemptSpan(msgspec.Struct, frozen=True):
    """One request to the upstream. Times in nanoseconds since 1970. `status`: 0 if there was no response. `upstream`:
    its name, if there are several."""

    span_id: str
    started: int
    ended: int
    status: int = 0
    upstream: str = ""


class Trace(msgspec.Struct, frozen=True):
    """A sampled request. Ids are lower-case hexadecimal; times are nanoseconds since 1970.

    `span_id` is the request's own span; the spans of its attempts are that span's children. `parent_id` is the client's
    span, empty if the request began the trace. `method`: of the HTTP request. `state`: the `tracestate` that came with
    it. `response_id`, `finish`: the id and the finish reason of the answer; empty if it has none.
    """

    trace_id: str
    span_id: str
    method: str
    started: int
    ended: int
    parent_id: str = ""
    attempts: tuple[AttemptSpan, ...] = ()
    state: str = ""
    response_id: str = ""
    finish: str = ""
