"""The stages of a request, its response headers and its outcome at each stage."""

from __future__ import annotations

import time
from typing import Any

import pytest

from proxy.apis.openai_chat import API
from proxy.fit.plan import plan
from proxy.model.limits import Margin, Quality, Window
from proxy.model.outcome import Usage
from proxy.model.plan import Draft, Facts, LadderStep, Mode, Plan
from proxy.model.scan import Scan, Total
from proxy.model.structs import replace
from proxy.request.context import Answered, Counted, Planned, Received, Record, RequestContext, Scanned
from proxy.upstreams.extra_calls import CallCost
from proxy.wire.tap import Tap
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


def test_a_request_that_was_not_scanned_has_passed() -> None:
    context = request(Mode.OFF)
    context.answered = Answered(200)
    outcome = context.outcome()
    assert (outcome.endpoint, outcome.result, outcome.status, outcome.mode) == ("chat", "passed", 200, "off")
    assert (outcome.model, outcome.prompt, outcome.window, outcome.ladder, outcome.usage) == ("", None, 0, "", None)


def test_a_scanned_request_has_its_model() -> None:
    context = request()
    context.scanned = Scanned(b"{}", Scan("m", None, True, 10))
    outcome = context.outcome()
    assert (outcome.model, outcome.model_sent, outcome.stream, outcome.prompt) == ("m", "m", True, None)


def test_the_outcome_of_a_plan_has_what_was_sent() -> None:
    sent = made()
    outcome = request(plan=sent, result="fitted", attempts=1).outcome()
    assert (outcome.prompt, outcome.prompt_sent) == (sent.before.prompt, sent.draft.prompt)
    assert sent.before.prompt > sent.draft.prompt
    assert (outcome.messages_in, outcome.messages_sent, outcome.ladder, outcome.quality) == (2, 1, "test", "exact")
    assert (outcome.reply_asked, outcome.reply_sent, outcome.reserve) == (20, 20, 20)
    assert outcome.load_before == sent.before.load and outcome.load_after == sent.draft.load
    assert [note.step for note in outcome.notes] == ["halve"]


def test_the_outcome_of_what_was_only_observed_has_the_original_as_sent() -> None:
    context = request(Mode.OBSERVE, made(), attempts=1)
    outcome = context.outcome()
    assert outcome.prompt == outcome.prompt_sent and outcome.messages_in == outcome.messages_sent == 2
    assert ([note.step for note in outcome.planned], outcome.notes) == (["halve"], ())
    assert dict(context.headers())[b"x-plimsoll-mode"] == b"observe"
    assert context.headers()[-1] == request(Mode.OBSERVE).headers()[0], "also where nothing was counted"


def test_what_was_never_sent_was_neither_cut_nor_granted() -> None:
    outcome = request(plan=made(), result="unfit").outcome()
    assert (outcome.prompt, outcome.load_before) == (made().before.prompt, made().before.load)
    assert (outcome.notes, outcome.planned, outcome.prompt_sent, outcome.reply_sent) == ((), (), None, None)
    assert (outcome.load_after, outcome.messages_in, outcome.messages_sent) == (None, 2, 0)


def test_the_outcome_has_extra_calls_and_the_upstreams_id() -> None:
    context = request(cost=CallCost(2, 1_234, 0.5), request_id=b"req_1")
    outcome = context.outcome()
    assert (outcome.extra_calls, outcome.extra_tokens, outcome.extra_seconds) == (2, 1_234, 0.5)
    assert outcome.request_id == "req_1"
    context.record.request_id = b"sk-secret"
    assert context.outcome().request_id == ""


def test_the_outcome_of_a_switched_request_has_both_models() -> None:
    sent = made()
    moved = replace(sent, draft=replace(sent.draft, model="larger", window=Window(500, source="x")))
    outcome = request(plan=moved, attempts=1).outcome()
    assert (outcome.model, outcome.model_sent, outcome.window, outcome.window_source) == ("gpt-4", "larger", 500, "x")


@pytest.mark.parametrize(("reserve", "reply", "kept"), [(None, None, 3_000), (50, 50, 50)])
def test_the_outcome_without_a_plan_has_the_total(reserve: int | None, reply: int | None, kept: int) -> None:
    context = request()
    context.scanned = Scanned(b"{}", Scan("m", reserve, False, 100), ladder=ladder())
    context.counted = Counted(Window(8_000, source="x"), Total(1_000, Margin(), Quality.EXACT, 7, None))
    assert context.outcome().prompt_sent is context.outcome().load_after is None, "it is not sent yet"
    assert dict(context.headers())[b"x-plimsoll-tokens"] == b"1000"
    context.record.attempt()
    outcome = context.outcome()
    assert (outcome.prompt, outcome.prompt_sent, outcome.messages_in, outcome.messages_sent) == (1_000, 1_000, 7, 7)
    assert (outcome.reply_asked, outcome.reply_sent, outcome.reserve, outcome.window) == (reply, reply, kept, 8_000)
    assert outcome.load_before == outcome.load_after == (1_000 + kept) / 8_000
    separate = replace(context.counted, window=Window(8_000, separate=True))
    context.counted, context.figures = separate, None
    alone = context.outcome()
    assert (alone.reply_sent, alone.reserve, alone.load_after) == (reply, 0, 0.125), "the reply takes no room"


@pytest.mark.parametrize(("prompt", "reserve", "load"), [(1_000, None, 1.0), (1_000, 1_500, 1.25), (1_975, None, 1.05)])
def test_the_load_without_a_plan_has_no_more_of_a_reply_without_a_limit_than_is_left(
    prompt: int, reserve: int | None, load: float
) -> None:
    context = request(attempts=1)
    context.scanned = Scanned(b"{}", Scan("m", reserve, False, 100), ladder=ladder())
    context.counted = Counted(Window(2_000, source="x"), Total(prompt, Margin(), Quality.EXACT, 7, None))
    assert context.outcome().load_before == context.outcome().load_after == load


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


def test_the_upstreams_time_is_only_that_between_sending_and_its_end() -> None:
    record = Record()
    record.stop_waiting()
    assert record.upstream_seconds == 0.0
    record.attempt()
    time.sleep(0.01)
    record.stop_waiting()
    once = record.upstream_seconds
    assert once >= 0.01
    record.stop_waiting()
    assert record.upstream_seconds == once
    record.attempt()
    record.stop_waiting()
    assert record.upstream_seconds > once


@pytest.mark.parametrize("mode", Mode)
def test_only_fit_and_strict_change_anything(mode: Mode) -> None:
    assert Received(API, mode).may_change == (mode in ("fit", "strict"))


def test_usage_is_what_the_tap_read() -> None:
    tap = Tap(API, "application/json")
    tap.feed(b'{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}')
    context = request()
    context.answered = Answered(200, tap=tap)
    assert context.outcome().usage == Usage(5, 2)


def test_the_stages_cannot_be_changed() -> None:
    scan = Scan("m", None, False, 1)
    stages: list[Any] = [Received(API, Mode.FIT), Scanned(b"", scan), Counted(Window(1)), Planned(), Answered(200)]
    for stage in stages:
        with pytest.raises(AttributeError):
            setattr(stage, type(stage).__struct_fields__[0], None)
