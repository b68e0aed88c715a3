"""The figures of a request by the last stage that it reached, as its outcome shows them."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.model.conversation import Call
from proxy.model.limits import CountUnit, Margin, Quality, Shape, Window
from proxy.model.outcome import SHAPES
from proxy.model.plan import Mode
from proxy.model.scan import Scan, Total
from proxy.model.structs import replace
from proxy.request.context import RequestContext
from proxy.request.figures import shape_of
from proxy.request.response_headers import headers_of
from proxy.request.stages import Answered, Counted, Planned, Scanned
from tests.makers import ladder, message, user
from tests.request.test_context import made, request


def scanned(found: Scanned, counted: Counted | None = None, **record: Any) -> RequestContext:
    """A request without a plan, with its record."""
    context = request(**record)
    context.planned = Planned(context.received, b"{}", found, counted)
    return context


def test_a_request_that_was_not_scanned_has_passed() -> None:
    context = request(Mode.OFF)
    context.answered = Answered(200)
    outcome = context.outcome()
    assert (outcome.endpoint, outcome.result, outcome.status, outcome.mode) == ("chat", "passed", 200, "off")
    assert (outcome.model, outcome.prompt, outcome.window, outcome.ladder, outcome.usage) == ("", None, 0, "", None)


def test_a_scanned_request_has_its_model() -> None:
    context = scanned(Scanned(b"{}", Scan("m", None, True, 10)))
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


def test_the_outcome_has_why_messages_stay_only_where_the_cut_was_sent() -> None:
    cut = made()
    marked = tuple(
        replace(b, messages=tuple(replace(m, why="kept: order") for m in b.messages)) for b in cut.draft.blocks
    )
    kept = replace(cut, draft=replace(cut.draft, blocks=marked))
    assert request(plan=kept, result="fitted", attempts=1).outcome().kept == (("order", 1),)
    assert request(plan=made(), result="fitted", attempts=1).outcome().kept == ()
    assert request(Mode.OBSERVE, kept, attempts=1).outcome().kept == ()
    assert request(plan=kept, result="unfit").outcome().kept == ()


def test_what_was_never_sent_was_neither_cut_nor_granted() -> None:
    outcome = request(plan=made(), result="unfit").outcome()
    assert (outcome.prompt, outcome.load_before) == (made().before.prompt, made().before.load)
    assert (outcome.notes, outcome.planned, outcome.prompt_sent, outcome.reply_sent) == ((), (), None, None)
    assert (outcome.load_after, outcome.messages_in, outcome.messages_sent) == (None, 2, 0)


def test_the_outcome_of_a_switched_request_has_both_models() -> None:
    sent = made()
    moved = replace(sent, draft=replace(sent.draft, model="larger", window=Window(500, source="x")))
    outcome = request(plan=moved, attempts=1).outcome()
    assert (outcome.model, outcome.model_sent, outcome.window, outcome.window_source) == ("gpt-4", "larger", 500, "x")


@pytest.mark.parametrize(("reserve", "reply", "kept"), [(None, None, 3_000), (50, 50, 50)])
def test_the_outcome_without_a_plan_has_the_total(reserve: int | None, reply: int | None, kept: int) -> None:
    counted = Counted(Window(8_000, source="x"), Total(1_000, Margin(), Quality.EXACT, 7, None))
    context = scanned(Scanned(b"{}", Scan("m", reserve, False, 100), ladder=ladder()), counted)
    assert context.outcome().prompt_sent is context.outcome().load_after is None, "it is not sent yet"
    assert context.planned is not None and dict(headers_of(context.planned, ""))[b"x-plimsoll-tokens"] == b"1000"
    context.record.attempt((), "")
    outcome = context.outcome()
    assert (outcome.prompt, outcome.prompt_sent, outcome.messages_in, outcome.messages_sent) == (1_000, 1_000, 7, 7)
    assert (outcome.reply_asked, outcome.reply_sent, outcome.reserve, outcome.window) == (reply, reply, kept, 8_000)
    assert outcome.load_before == outcome.load_after == (1_000 + kept) / 8_000
    separate = replace(counted, window=Window(8_000, separate=True))
    context.planned, context.figures = replace(context.planned, counted=separate), None
    alone = context.outcome()
    assert (alone.reply_sent, alone.reserve, alone.load_after) == (reply, 0, 0.125), "the reply takes no room"


@pytest.mark.parametrize(("prompt", "reserve", "load"), [(1_000, None, 1.0), (1_000, 1_500, 1.25), (1_975, None, 1.05)])
def test_the_load_without_a_plan_has_no_more_of_a_reply_without_a_limit_than_is_left(
    prompt: int, reserve: int | None, load: float
) -> None:
    counted = Counted(Window(2_000, source="x"), Total(prompt, Margin(), Quality.EXACT, 7, None))
    context = scanned(Scanned(b"{}", Scan("m", reserve, False, 100), ladder=ladder()), counted, attempts=1)
    assert context.outcome().load_before == context.outcome().load_after == load


def test_W22_the_shape_of_a_prompt_is_that_of_what_is_hardest_to_count() -> None:
    once, twice = (message(user("x"), calls=(Call("a", "f"),) * times) for times in (1, 2))
    text, tools = CountUnit(1.0), CountUnit(1.0, shape=Shape.TOOLS, schema=True)
    assert [shape_of(None), shape_of(text), shape_of(replace(tools, schema=False))] == ["", "text", "tools"]
    assert [shape_of(tools), shape_of(tools, [once]), shape_of(tools, [once, twice])] == list(SHAPES[2:])
    assert shape_of(None, [twice]) == ""
