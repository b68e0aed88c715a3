"""How requests end without an answer of the upstream: the table from exceptions to results, and what clients get."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.apis.openai_responses import API as RESPONSES
from proxy.errors import ClientError, bad_header
from proxy.http.client.answer import UNREACHABLE, UpstreamError
from proxy.http.relay import BrokenOff, ClientDisconnected
from proxy.model.plan import Mode
from proxy.request.endings import ending, has_all
from proxy.request.passthrough import CLIENT_LEFT
from proxy.request.stages import Answered, Received
from proxy.wire.tap import Tap
from tests.e2e.services import TOO_MUCH, body, sentence
from tests.request.planned import Arrived, arrived, prepared, services

REJECTED = bad_header("x-plimsoll-window", "must be a number")


def begun(status: int | None = None) -> Arrived:
    """A request, of which the client may have the head of its answer."""
    context = arrived(b"{}")
    context.answered = None if status is None else Answered(status)
    return context


@pytest.mark.parametrize(
    ("error", "result", "status", "code"),
    [
        (REJECTED, "rejected", 400, "invalid_header"),
        (UpstreamError(504, "upstream_timeout", "It is silent."), "upstream_error", 504, "upstream_timeout"),
        (BrokenOff(UpstreamError(502, "lost", "It is lost.")), "broken_off", None, None),
        (ClientDisconnected(), "cancelled", CLIENT_LEFT, None),
        (asyncio.CancelledError(), "stopped", 503, "shutting_down"),
        (LookupError("canary"), "bug", 500, "proxy_error"),
    ],
)
def test_each_exception_has_one_end(error: BaseException, result: str, status: int | None, code: str | None) -> None:
    end = ending(error, begun())
    assert (end.result, end.status, end.breaks) == (result, status, False)
    if code is None:
        assert end.error is None
    else:
        assert end.error is not None and end.error.status == status and "canary" not in str(end.error.message)


def test_once_the_client_has_the_head_of_its_answer_no_second_one_is_sent() -> None:
    stopped = ending(asyncio.CancelledError(), begun(200))
    assert (stopped.result, stopped.status, stopped.error, stopped.breaks) == ("stopped", None, None, True)
    context = begun(200)
    failed = ending(LookupError(), context)
    assert (failed.status, failed.error, failed.breaks, context.record.result) == (None, None, False, "bug")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_what_ends_the_process_goes_on(error: BaseException) -> None:
    end = ending(error, begun())
    assert end.breaks and end.error is None and end.result == ""


def test_a_request_that_does_not_fit_says_so_and_has_the_figures_of_a_plan_that_was_not_carried_out() -> None:
    context = arrived(
        body([{"role": "system", "content": sentence(0, 20)}, {"role": "user", "content": "Hi"}], **TOO_MUCH)
    )
    with pytest.raises(ClientError) as raised:
        prepared(services().gateway.default.planner, context)
    end = ending(raised.value, context)
    assert (end.result, end.status, end.error) == ("unfit", 400, raised.value)
    headers = dict(end.extra)
    assert {b"x-plimsoll-tokens", b"x-plimsoll-count"} == set(headers)  # none of what went upstream: nothing did


@pytest.mark.parametrize(("code", "forgotten"), [(UNREACHABLE, True), ("upstream_timeout", False)])
def test_only_an_upstream_that_cannot_be_reached_may_have_other_limits_when_it_is_back(
    code: str, forgotten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, said = begun(), list[Any]()
    context.home = services().gateway.default
    monkeypatch.setattr(type(context.home.knowledge), "mark_unreachable", lambda self: said.append(self))
    ending(UpstreamError(502, code, "It failed."), context)
    assert said == ([context.home.knowledge] if forgotten else [])


@pytest.mark.parametrize(("last", "all_of_it"), [(b"response.completed", True), (b"response.created", False)])
def test_a_client_that_leaves_at_the_last_event_has_its_whole_answer(last: bytes, all_of_it: bool) -> None:
    tap = Tap(RESPONSES, "text/event-stream")
    tap.feed(b'data: {"type":"%b","response":{}}\n\n' % last)
    context = Arrived(Received(RESPONSES, Mode.FIT), answered=Answered(200, None, tap))
    assert has_all(context) is all_of_it and not has_all(Arrived(Received(RESPONSES, Mode.FIT)))
    assert (ending(ClientDisconnected(), context).status is None) is all_of_it
