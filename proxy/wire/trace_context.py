"""The headers that carry a trace on (W3C Trace Context, https://www.w3.org/TR/trace-context/)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from proxy.wire.headers import Header

TRACEPARENT, TRACESTATE = b"traceparent", b"tracestate"
# version, trace-id, parent-id, flags; later versions may append fields (section 4.3)
FORM = re.compile(rb"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
STATE, MAX_STATE = re.compile(rb"[ -~]+"), 512  # 3.3.1.5: vendors should pass on at least so much
FIRST_VERSION = b"00"
NO_TRACE, NO_SPAN = "0" * 32, "0" * 16
SAMPLED, RANDOM = 0x01, 0x02  # flags; all others are unknown and not passed on


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """The place of a request in a trace. Ids are lower-case hexadecimal; `span_id` is the parent of what follows."""

    trace_id: str
    span_id: str
    flags: int = SAMPLED

    @property
    def sampled(self) -> bool:
        """Whether the sender records the trace."""
        return bool(self.flags & SAMPLED)


def trace_context(headers: Sequence[Header]) -> TraceContext | None:
    """The context that a client sent; None without one, and if its form is wrong, as if there were none (4.3)."""
    values = [value for name, value in headers if name == TRACEPARENT]
    found = FORM.fullmatch(values[0]) if len(values) == 1 else None
    if found is None or (found[1] == FIRST_VERSION and found[5]):
        return None
    trace_id, span_id = found[2].decode(), found[3].decode()
    if trace_id == NO_TRACE or span_id == NO_SPAN:
        return None
    return TraceContext(trace_id, span_id, int(found[4], 16) & (SAMPLED | RANDOM))


def trace_state(headers: Sequence[Header]) -> str:
    """The `tracestate` that a client sent, of which several headers are one (3.3.1); empty if it is none that may be
    passed on: longer than 512 characters, or with others than the printable ones of ASCII."""
    found = b",".join(value for name, value in headers if name == TRACESTATE)
    return found.decode() if len(found) <= MAX_STATE and STATE.fullmatch(found) else ""


def with_trace_context(headers: Iterable[Header], context: TraceContext, *, starts: bool = False) -> list[Header]:
    """The headers with this context instead of the client's. Where it `starts` a trace, a `tracestate` that came along
    belongs to no trace and is dropped; `baggage` stays in any case."""
    dropped = (TRACEPARENT, TRACESTATE) if starts else (TRACEPARENT,)
    kept = [header for header in headers if header[0] not in dropped]
    kept.append((TRACEPARENT, f"00-{context.trace_id}-{context.span_id}-{context.flags:02x}".encode()))
    return kept
