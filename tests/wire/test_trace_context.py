"""The headers of W3C Trace Context: which are believed, and what goes on instead of them."""

from __future__ import annotations

import pytest

from proxy.wire.trace_context import TraceContext, trace_context, trace_state, with_trace_context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = f"00-{TRACE}-{SPAN}-01".encode()


def test_a_client_names_its_trace_and_its_span() -> None:
    headers = [(b"host", b"x"), (b"traceparent", SENT)]
    assert trace_context(headers) == TraceContext(TRACE, SPAN, 1)


@pytest.mark.parametrize(
    ("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("fe", False)]
)
def test_the_first_flag_says_whether_the_client_records(flags: str, sampled: bool) -> None:
    context = trace_context([(b"traceparent", f"00-{TRACE}-{SPAN}-{flags}".encode())])
    assert context is not None and context.sampled is sampled


def test_unknown_flags_are_not_passed_on() -> None:
    assert trace_context([(b"traceparent", f"00-{TRACE}-{SPAN}-ff".encode())]) == TraceContext(TRACE, SPAN, 3)


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    context = TraceContext(TRACE, SPAN, 1)
    assert trace_context([(b"traceparent", f"cc-{TRACE}-{SPAN}-01-what-comes-later".encode())]) == context
    assert trace_context([(b"traceparent", f"cc-{TRACE}-{SPAN}-01".encode())]) == context


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00-1-2-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-1",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_a_wrong_form_is_no_context(value: str) -> None:
    assert trace_context([(b"traceparent", value.encode())]) is None


def test_two_contexts_are_none() -> None:
    assert trace_context([(b"traceparent", SENT), (b"traceparent", SENT)]) is None


def test_no_header_is_no_context() -> None:
    assert trace_context([(b"host", b"x")]) is None


OTHERS = [(b"host", b"x"), (b"tracestate", b"vendor=1"), (b"baggage", b"user=2"), (b"cookie", b"a"), (b"cookie", b"b")]


def test_a_context_replaces_the_clients_and_leaves_the_rest_in_order() -> None:
    sent = with_trace_context([(b"traceparent", SENT), *OTHERS], TraceContext(TRACE, "1" * 16, 1))
    assert sent == [*OTHERS, (b"traceparent", f"00-{TRACE}-{'1' * 16}-01".encode())]


def test_a_new_trace_takes_no_state_of_another() -> None:
    sent = with_trace_context([(b"traceparent", b"nonsense"), *OTHERS], TraceContext("2" * 32, "1" * 16), starts=True)
    kept = [header for header in OTHERS if header[0] != b"tracestate"]
    assert sent == [*kept, (b"traceparent", f"00-{'2' * 32}-{'1' * 16}-01".encode())]


def test_a_tracestate_is_whole_printable_and_not_too_long() -> None:
    assert trace_state([(b"tracestate", b"a=1"), (b"x", b"y"), (b"tracestate", b"b=2")]) == "a=1,b=2"
    for found in ([], [b""], [b"a=\xff"], [b"a=\t"], [b"a=" + b"x" * 511]):
        assert trace_state([(b"tracestate", value) for value in found]) == ""
