"""The context of a request: its response headers, what is released, and its outcome."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.apis.openai_chat import API
from proxy.fit.plan import plan
from proxy.model.plan import Draft, Facts, LadderStep, Mode, Plan
from proxy.model.scan import Scan
from proxy.request.context import RequestContext
from proxy.request.stages import Planned, Received, Record, Scanned
from proxy.upstreams.extra_calls import CallCost
from tests.makers import facts, ladder, prompt, user, words

ASKED = prompt([user(words(60)), user(words(30))], max_tokens=20)


def halved(draft: Draft, known: Facts) -> Draft:
    """A step that drops the first block."""
    return draft.with_blocks(draft.blocks[1:])


def made(window: int = 100) -> Plan:
    """A plan of a request that does not fit."""
    return plan(ASKED, ladder(LadderStep("halve", halved)), facts(window))


def request(mode: Mode = Mode.FIT, plan: Plan | None = None, **record: Any) -> RequestContext:
    """A request in some stage, with its record."""
    context = RequestContext(Received(API, mode, "/v1/chat/completions", body=b"{}"), record=Record(**record))
    if plan is not None:
        context.scanned = Scanned(b"{}", Scan("gpt-4", 20, False, None), ladder=ladder())
        context.planned = Planned(b"{}", ASKED, facts(100), plan)
    return context


def test_the_outcome_has_extra_calls_and_the_upstreams_id() -> None:
    context = request(cost=CallCost(2, 1_234, 0.5), request_id=b"req_1")
    outcome = context.outcome()
    assert (outcome.extra_calls, outcome.extra_tokens, outcome.extra_seconds) == (2, 1_234, 0.5)
    assert outcome.request_id == "req_1"
    context.record.request_id = b"sk-secret"
    assert context.outcome().request_id == ""


def test_headers_have_what_is_known_by_then() -> None:
    assert request().headers() == []
    names = {name for name, _ in request(plan=made()).headers()}
    assert b"x-plimsoll-steps" in names and b"x-plimsoll-tokens-sent" in names


def test_after_a_failure_the_outcome_has_no_plan() -> None:
    context = request(plan=made(), result="bug")
    context.forget()
    outcome = context.outcome()
    assert (outcome.result, outcome.prompt, outcome.ladder, context.headers()) == ("bug", None, "", [])


@pytest.mark.parametrize("attempts", [0, 1])
def test_releasing_the_content_keeps_the_figures(attempts: int) -> None:
    context = request(plan=made(), attempts=attempts)
    before = context.outcome()
    context.release()
    assert (context.received.body, context.scanned, context.planned) == (b"", None, None)
    assert context.outcome() == before
    context.release()
    assert context.outcome() == before
