"""The context of a request: its response headers, what is released, and its outcome."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.apis.openai_chat import API
from proxy.fit.plan import plan
from proxy.model.outcome import Usage
from proxy.model.plan import Draft, Facts, LadderStep, Mode, Plan
from proxy.model.scan import Scan
from proxy.model.structs import replace
from proxy.request.context import RequestContext
from proxy.request.response_headers import headers_of
from proxy.request.stages import Answered, Descent, Planned, Received, Record, Scanned
from proxy.upstreams.extra_calls import CallCost
from tests.e2e.services import body, talk
from tests.makers import facts, ladder, prompt, user, words
from tests.request.planned import arrived, prepared, services

ASKED = prompt([user(words(60)), user(words(30))], max_tokens=20)


def halved(draft: Draft, known: Facts) -> Draft:
    """A step that drops the first block."""
    return draft.with_blocks(draft.blocks[1:])


def made(window: int = 100) -> Plan:
    """A plan of a request that does not fit."""
    return plan(ASKED, ladder(LadderStep("halve", halved)), facts(window))


def request(mode: Mode = Mode.FIT, plan: Plan | None = None, **record: Any) -> RequestContext:
    """A request in some stage, with its record."""
    received = Received(API, mode, "/v1/chat/completions", body=b"{}")
    planned = None
    if plan is not None:
        scanned = Scanned(b"{}", Scan("gpt-4", 20, False, None), ladder=ladder())
        planned = Planned(received, b"{}", scanned, descent=Descent(ASKED, facts(100), plan))
    return RequestContext(received, planned, record=Record(**record))


def test_the_outcome_has_extra_calls_and_the_upstreams_id() -> None:
    context = request(cost=CallCost(2, 1_234, 0.5), request_id=b"req_1")
    outcome = context.outcome()
    assert (outcome.extra_calls, outcome.extra_tokens, outcome.extra_seconds) == (2, 1_234, 0.5)
    assert outcome.request_id == "req_1"
    context.record.request_id = b"sk-secret"
    assert context.outcome().request_id == ""


def test_after_a_failure_the_outcome_has_no_plan() -> None:
    context = request(plan=made(), result="bug")
    assert context.planned is not None
    context.planned = context.planned.as_sent(b"{}")
    outcome = context.outcome()
    assert (outcome.result, outcome.prompt, outcome.ladder) == ("bug", None, "")
    assert headers_of(context.planned, "") == []


@pytest.mark.parametrize("attempts", [0, 1])
def test_releasing_the_content_keeps_the_figures(attempts: int) -> None:
    context = request(plan=made(), attempts=attempts)
    before = context.outcome()
    context.close()
    context.planned = None
    assert context.outcome() == before
    context.close()
    assert context.outcome() == before


def test_what_is_sent_has_the_count_that_was_made_meanwhile() -> None:
    async def check() -> None:
        context, counted = request(plan=made()), asyncio.Event()
        planned = context.planned
        assert planned is not None

        async def count() -> Planned:
            await counted.wait()
            return replace(planned, result="not_understood")

        context.counting = asyncio.create_task(count())
        assert context.latest is planned and context.result == ""
        counted.set()
        await context.counting
        assert context.latest is not planned and context.result == context.outcome().result == "not_understood"
        context.counting = asyncio.create_task(count())
        context.counting.cancel()
        await asyncio.wait([context.counting])
        assert context.latest is planned

    asyncio.run(check())


@pytest.mark.parametrize(("share", "status", "cut"), [(0.3, 200, True), (0.3, 500, False), (0.97, 200, False)])
def test_an_outcome_says_whether_the_upstream_cut_the_prompt_silently(share: float, status: int, cut: bool) -> None:
    context = arrived(body(talk(100)))
    prepared(services().gateway.default.planner, context)
    context.record.attempts = 1
    sent = context.outcome().prompt_sent
    assert sent is not None
    context.answered = Answered(status)
    assert not context.final().truncated, "without usage nothing is known"
    context.answered = Answered(status, Usage(int(share * sent)))
    assert context.final().truncated is cut


def test_what_was_never_counted_is_never_said_to_be_cut() -> None:
    context = arrived(body(talk(2)))
    context.answered = Answered(200, Usage(1))
    assert not context.final().truncated
