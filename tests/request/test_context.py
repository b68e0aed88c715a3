"""A visit: what is told of a request, from nothing known to a plan that was sent."""

from __future__ import annotations

import time

import pytest

from proxy.apis.openai_chat import API
from proxy.fit.plan import plan
from proxy.model.limits import Margin, Quality, Window
from proxy.model.outcome import Usage
from proxy.model.plan import Draft, Facts, LadderStep, Mode, Plan
from proxy.model.scan import Scan, Total
from proxy.model.structs import replace
from proxy.request.context import RequestContext
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


def test_a_request_that_nobody_looked_at_has_passed() -> None:
    told = RequestContext(API, Mode.OFF, status=200, model="m").outcome()
    assert (told.endpoint, told.result, told.status, told.mode) == ("chat", "passed", 200, "off")
    assert (told.model, told.model_sent, told.prompt, told.window, told.ladder, told.usage) == (
        "m",
        "m",
        None,
        0,
        "",
        None,
    )


def test_a_plan_is_told_as_it_was_sent() -> None:
    sent = made()
    told = RequestContext(API, Mode.FIT, ladder=ladder(), plan=sent, result="fitted", status=200, attempts=1).outcome()
    assert (told.prompt, told.prompt_sent) == (sent.before.prompt, sent.draft.prompt)
    assert told.prompt > told.prompt_sent if told.prompt and told.prompt_sent else False
    assert (told.messages_in, told.messages_sent, told.ladder, told.quality) == (2, 1, "test", "exact")
    assert (told.reply_asked, told.reply_sent, told.reserve) == (20, 20, 20)
    assert told.load_before == sent.before.load and told.load_after == sent.draft.load
    assert [note.step for note in told.notes] == ["halve"]


def test_what_was_only_observed_is_told_with_what_was_sent() -> None:
    context = RequestContext(API, Mode.OBSERVE, ladder=ladder(), plan=made(), attempts=1)
    told = context.outcome()
    assert told.prompt == told.prompt_sent and told.messages_in == told.messages_sent == 2
    assert ([note.step for note in told.planned], told.notes) == (["halve"], ())
    assert dict(context.headers())[b"x-plimsoll-mode"] == b"observe"
    assert context.headers()[-1] == RequestContext(API, Mode.OBSERVE).headers()[0], "also where nothing was measured"


def test_what_was_never_sent_was_neither_cut_nor_granted() -> None:
    told = RequestContext(API, Mode.FIT, ladder=ladder(), plan=made(), result="unfit", status=400).outcome()
    assert (told.prompt, told.load_before) == (made().before.prompt, made().before.load)
    assert (told.notes, told.planned, told.prompt_sent, told.reply_sent) == ((), (), None, None)
    assert (told.load_after, told.messages_in, told.messages_sent) == (None, 2, 0)


def test_extra_calls_and_the_upstreams_id_are_told() -> None:
    context = RequestContext(API, Mode.FIT, spent=CallCost(2, 1_234, 0.5), request_id=b"req_1")
    told = context.outcome()
    assert (told.extra_calls, told.extra_tokens, told.extra_seconds, told.request_id) == (2, 1_234, 0.5, "req_1")
    context.request_id = b"sk-secret"
    assert context.outcome().request_id == ""


def test_a_plan_of_what_moved_names_both_models() -> None:
    sent = made()
    moved = replace(sent, draft=replace(sent.draft, model="larger", window=Window(500, source="x")))
    told = RequestContext(API, Mode.FIT, ladder=ladder(), plan=moved, model="small", attempts=1).outcome()
    assert (told.model, told.model_sent, told.window, told.window_source) == ("small", "larger", 500, "x")


@pytest.mark.parametrize(("reserve", "reply", "held"), [(None, None, 3_000), (50, 50, 50)])
def test_a_total_is_told_where_no_plan_was_needed(reserve: int | None, reply: int | None, held: int) -> None:
    context = RequestContext(
        API,
        Mode.FIT,
        ladder=ladder(),
        scan=Scan("m", reserve, False, 100),
        total=Total(1_000, Margin(), Quality.EXACT, 7, None),
        window=Window(8_000, source="x"),
    )
    assert context.outcome().prompt_sent is context.outcome().load_after is None, "it is not sent yet"
    context.departs()
    told = context.outcome()
    assert (told.prompt, told.prompt_sent, told.messages_in, told.messages_sent) == (1_000, 1_000, 7, 7)
    assert (told.reply_asked, told.reply_sent, told.reserve, told.window) == (reply, reply, held, 8_000)
    assert told.load_before == told.load_after == (1_000 + held) / 8_000
    assert dict(context.headers())[b"x-plimsoll-tokens"] == b"1000"


def test_headers_say_what_is_known_by_then() -> None:
    context = RequestContext(API, Mode.FIT)
    assert context.headers() == []
    context.plan = made()
    names = {name for name, _ in context.headers()}
    assert b"x-plimsoll-steps" in names and b"x-plimsoll-tokens-sent" in names


def test_what_was_forgotten_is_not_told() -> None:
    context = RequestContext(API, Mode.FIT, ladder=ladder(), plan=made(), prompt=ASKED, facts=facts(100), result="bug")
    context.forget()
    told = context.outcome()
    assert (told.result, told.prompt, told.ladder, context.headers()) == ("bug", None, "", [])


def test_the_upstreams_time_is_only_that_between_going_and_coming() -> None:
    context = RequestContext(API, Mode.FIT)
    context.returns()
    assert context.upstream_seconds == 0.0
    context.departs()
    time.sleep(0.01)
    context.returns()
    once = context.upstream_seconds
    assert once >= 0.01
    context.returns()
    assert context.upstream_seconds == once
    context.departs()
    context.returns()
    assert context.upstream_seconds > once


@pytest.mark.parametrize("mode", Mode)
def test_only_fit_and_strict_change_anything(mode: Mode) -> None:
    assert RequestContext(API, mode).acts == (mode in ("fit", "strict"))


def test_usage_is_what_the_tap_saw() -> None:
    tap = Tap(API, "application/json")
    tap.feed(b'{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}')
    assert RequestContext(API, Mode.FIT, tap=tap).outcome().usage == Usage(5, 2)
