"""Which requests are sampled, and the spans of a request while it is under way."""

from __future__ import annotations

import re
import time

import pytest

from proxy.config.otel import Sampler
from proxy.request.tracing import RequestTrace, Tracer, is_sampled
from proxy.wire.headers import Header, value_of
from proxy.wire.trace_context import TraceContext, trace_context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED: list[Header] = [(b"traceparent", f"00-{TRACE}-{SPAN}-01".encode()), (b"tracestate", b"vendor=1")]
UNSAMPLED: list[Header] = [(b"traceparent", f"00-{TRACE}-{SPAN}-00".encode()), (b"tracestate", b"vendor=1")]
FOLLOWING, ALWAYS, NEVER = Sampler(True, 1.0), Sampler(False, 1.0), Sampler(False, 0.0)


def begun(sampler: Sampler, headers: list[Header]) -> RequestTrace:
    trace, _ = Tracer(sampler).begin("POST", headers)
    assert trace is not None
    return trace


def test_a_sampled_trace_is_continued_with_a_span_of_our_own() -> None:
    trace, headers = Tracer(FOLLOWING).begin("POST", SAMPLED)
    assert trace is not None
    assert (trace.context.trace_id, trace.parent_id, trace.context.flags) == (TRACE, SPAN, 1)
    assert trace_context(headers) == trace.context and trace.context.span_id != SPAN
    assert value_of(headers, b"tracestate") == b"vendor=1"


def test_a_request_without_a_trace_begins_one() -> None:
    trace, headers = Tracer(FOLLOWING).begin("POST", [(b"host", b"x"), (b"tracestate", b"of=nothing")])
    assert trace is not None and trace.parent_id == ""
    assert re.fullmatch("[0-9a-f]{32}", trace.context.trace_id) and re.fullmatch("[0-9a-f]{16}", trace.context.span_id)
    assert [name for name, _ in headers] == [b"host", b"traceparent"]


def test_two_requests_share_no_id() -> None:
    one, two = begun(FOLLOWING, []), begun(FOLLOWING, [])
    assert len({one.context.trace_id, two.context.trace_id, one.context.span_id, two.context.span_id}) == 4


@pytest.mark.parametrize("headers", [UNSAMPLED, []])
def test_the_headers_of_what_is_not_sampled_stay_as_they_are(headers: list[Header]) -> None:
    trace, sent = Tracer(Sampler(True, 0.0)).begin("POST", headers)
    assert trace is None and sent is headers


def test_a_sampler_without_regard_for_the_parent_decides_alone() -> None:
    trace = begun(ALWAYS, UNSAMPLED)
    assert (trace.context.trace_id, trace.context.flags, trace.parent_id) == (TRACE, 1, SPAN)
    assert Tracer(NEVER).begin("POST", SAMPLED) == (None, SAMPLED)


def test_a_ratio_goes_by_the_last_half_of_the_trace_id() -> None:
    low, high = "f" * 16 + "0" * 15 + "1", "0" * 16 + "f" * 16
    for ratio, expected in ((0.0, (False, False)), (0.5, (True, False)), (1.0, (True, True))):
        assert tuple(is_sampled(Sampler(False, ratio), None, trace_id) for trace_id in (low, high)) == expected


def test_a_ratio_samples_about_that_part() -> None:
    sampled = sum(Tracer(Sampler(True, 0.25)).begin("POST", [])[0] is not None for _ in range(4_000))
    assert 800 < sampled < 1_200


def test_each_attempt_has_a_span_that_the_upstream_sees_as_its_parent() -> None:
    before = time.time_ns()
    trace = begun(FOLLOWING, SAMPLED)
    sent = []
    for status in (400, 200):
        sent.append(trace_context(trace.attempt(SAMPLED)))
        trace.answered(status)
        trace.stop()
    trace.stop()
    result = trace.result()
    assert [a.status for a in result.attempts] == [400, 200]
    assert sent == [TraceContext(TRACE, attempt.span_id, 1) for attempt in result.attempts]
    one, two = result.attempts
    assert before <= result.started <= one.started <= one.ended <= two.started <= two.ended <= result.ended
    assert (result.trace_id, result.parent_id, result.method) == (TRACE, SPAN, "POST")
    assert len({result.span_id, one.span_id, two.span_id, SPAN}) == 4


def test_an_attempt_without_a_response_has_no_status() -> None:
    trace = begun(FOLLOWING, SAMPLED)
    trace.attempt(SAMPLED)
    trace.stop()
    assert [a.status for a in trace.result().attempts] == [0]


def test_an_attempt_ends_where_the_next_one_begins() -> None:
    trace = begun(FOLLOWING, SAMPLED)
    trace.attempt(SAMPLED)
    trace.answered(200)
    trace.attempt(SAMPLED)
    trace.stop()
    assert [a.status for a in trace.result().attempts] == [200, 0]


def test_a_request_that_never_went_upstream_has_no_attempts() -> None:
    trace = begun(FOLLOWING, SAMPLED)
    trace.answered(200)
    trace.stop()
    assert trace.result().attempts == () and trace.result().ended >= trace.result().started


def test_a_clock_that_is_set_back_meanwhile_makes_no_span_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = begun(ALWAYS, [])
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    trace.attempt([])
    trace.answered(200)
    trace.stop()
    found = trace.result()
    (attempt,) = found.attempts
    assert found.started <= attempt.started <= attempt.ended <= found.ended
