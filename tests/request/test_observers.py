"""Who is told of requests: each is told though another fails, and what is kept for a recording is given back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from proxy.apis.openai_chat import API
from proxy.model.outcome import PASSTHROUGH, Outcome
from proxy.model.plan import Mode
from proxy.observe.recent import Recent
from proxy.request.context import RequestContext
from proxy.request.observers import Ended, OnPage, Outcomes, Recording
from proxy.request.stages import Answered, Received
from proxy.wire.tap import Tap

OUTCOME, HEADERS = Outcome("chat", "passed", 200), [(b"authorization", b"Bearer x")]
BODY = b'{"model":"m"}'


class Tape:
    """A recorder that keeps what it is given."""

    def __init__(self) -> None:
        self.added: list[Any] = []
        self.held: list[bytes] = []

    def add(self, requests: Sequence[Any]) -> None:
        self.added.extend(requests)

    def hold(self, body: bytes) -> bytes:
        self.held.append(body)
        return body

    def drop(self, body: bytes) -> None:
        self.held.remove(body)


@pytest.fixture
def tape() -> Tape:
    return Tape()


def recording(tape: Any) -> Recording:
    return Recording(tape)


def context(answered: Answered | None = None) -> RequestContext:
    return RequestContext(Received(API, Mode.FIT, "", HEADERS, body=BODY), answered=answered)


def test_what_was_passed_through_is_recorded_without_a_body(tape: Tape) -> None:
    recording(tape).ended(Ended(Outcome(PASSTHROUGH, "passed", 200), HEADERS))
    (one,) = tape.added
    assert one.headers is HEADERS and not one.body


def test_a_body_is_recorded_as_the_request_has_it(tape: Tape) -> None:
    recording(tape).ended(Ended(OUTCOME, HEADERS, context(Answered(200))))
    assert tape.added[0].body == BODY and tape.held == []


def test_a_body_that_was_dropped_while_its_answer_took_its_time_is_held_and_given_back(tape: Tape) -> None:
    one, request = recording(tape), context(Answered(200, None, Tap(API, "application/json")))
    one.keep(request)
    assert tape.held == [BODY] and request.record.held == BODY
    request.received = Received(API, Mode.FIT, "", HEADERS)
    one.ended(Ended(OUTCOME, HEADERS, request))
    assert tape.added[0].body == BODY and (tape.held, request.record.held) == ([], b"")
    one.drop(request)
    assert tape.held == [], "nothing is given back twice"


def test_what_is_held_of_a_request_that_nobody_could_report_is_given_back(tape: Tape) -> None:
    one, request = recording(tape), context()
    one.keep(request)
    one.drop(request)
    assert tape.held == [] and tape.added == []


def test_metrics_log_and_page_keep_nothing() -> None:
    said: list[Outcome] = []
    recent = Recent()
    for observer in (Outcomes(said.append), OnPage(recent)):
        observer.keep(context())
        observer.ended(Ended(OUTCOME, HEADERS, context()))
        observer.drop(context())
    assert said == [OUTCOME] and [kept.outcome.endpoint for kept in recent.since(0)] == ["chat"]
