"""Texts that are out of all proportion lose their middles before any step reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.apis.openai_chat import request
from proxy.fit import abridging
from proxy.fit.plan import plan
from proxy.model import oversized_json
from proxy.model.plan import Facts, Plan
from proxy.model.structs import replace
from tests.e2e.services import body
from tests.request.planned import services


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kilobytes instead of megabytes."""
    monkeypatch.setattr(oversized_json, "OUTSIZE", 200_000)
    monkeypatch.setattr(abridging, "FOR_A_TOKEN", 1)


def planned(
    messages: Sequence[Any], ladder: str = "default", pins: Sequence[int] = (), steps: Sequence[str] = ()
) -> Plan:
    """The plan for a model of 8,192 tokens."""
    made = services()
    prompt = request.parse(body(list(messages), "gpt-4"), pins)
    knowledge, chosen = made.gateway.default.planner.knowledge, made.rules.ladders[ladder]
    if steps:
        chosen = replace(chosen, steps=tuple(ladder_step for ladder_step in chosen.steps if ladder_step.step in steps))
    meter = knowledge.meter(prompt, "gpt-4")
    return plan(prompt, chosen, Facts(knowledge.window_now("gpt-4", chosen, None), meter))


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_a_long_text_is_cut_before_it_is_read_and_its_whole_cost_is_told() -> None:
    made = planned([user("What?"), {"role": "assistant", "content": "word " * 300_000}, user("And?")])
    assert made.fits and 290_000 < made.before.prompt < 310_000
    assert made.notes[0].step == "truncate_longest" and made.notes[0].tokens_after < 50_000


def test_what_is_short_enough_is_not_touched() -> None:
    made = planned([user("What?"), {"role": "assistant", "content": "word " * 30_000}, user("And?")])
    assert made.fits and made.notes[0].step != "truncate_longest"


def test_what_the_client_pins_and_what_no_step_may_cut_stays() -> None:
    long = [user("What?"), {"role": "assistant", "content": "word " * 300_000}, user("And?")]
    for made in (planned(long, pins=[1]), planned(long, "default", steps=("prune_history",))):
        assert all(b"bytes left out" not in message.raw for message in made.draft.messages)
        assert all(note.step != "truncate_longest" or note.tokens_after < 10_000 for note in made.notes)


def test_many_messages_share_what_steps_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abridging, "TOGETHER", 600_000)
    made = planned([user(f"{number}" + "word " * 36_000) for number in range(6)])
    assert made.notes[0].step == "truncate_longest" and made.notes[0].tokens_after < 6 * 30_000 and made.fits


def test_many_messages_that_are_short_each_share_it_too_and_what_is_pinned_keeps_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(abridging, "TOGETHER", 100_000)
    system = {"role": "system", "content": "Be brief. " * 300}
    told = [{"role": "assistant", "content": f"{number} " + "word " * 1_000} for number in range(400)]
    made = planned([system, user("What? " * 300), *told, user("And? " * 300)])
    assert made.notes[0].step == "truncate_longest" and made.notes[0].tokens_after < 60_000 < made.before.prompt
    sent = [message.text() for message in made.draft.messages]
    assert made.fits and {"Be brief. " * 300, "What? " * 300, "And? " * 300} <= set(sent)


@pytest.mark.parametrize("template", ["{asked}\n\n{text}", "Here it is:\n\n{text}\n\n{asked}"])
def test_the_question_in_an_oversized_message_survives(template: str) -> None:
    asked = "Where does the lighthouse keeper keep his boat?"
    text = "\n".join(f"Line {i} is about other things and more of them." for i in range(60_000))
    made = planned(
        [user("Hello"), {"role": "assistant", "content": "Hi"}, user(template.format(text=text, asked=asked))]
    )
    assert made.fits and asked in [message.text() for message in made.draft.messages][-1]


def test_an_oversized_text_may_be_cut_where_only_excerpts_are_made() -> None:
    made = planned([user("word " * 300_000), user("And?")], steps=("excerpt_texts",))
    assert made.fits and [note.step for note in made.notes] == ["truncate_longest", "excerpt_texts"]


def test_rows_that_were_cut_out_of_a_result_are_not_counted() -> None:
    rows = [{"id": n, "text": f"row {n} " + "word " * 5_000} for n in range(23)]
    for result in (json.dumps({"results": rows}), json.dumps(rows)):
        call = {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        asked = {"role": "assistant", "content": None, "tool_calls": [call]}
        answer = {"role": "tool", "tool_call_id": "a", "content": result}
        made = planned([user("Find row 3."), asked, answer, user("What is in row 3?")])
        told = next(m for m in made.draft.messages if m.answers).raw.decode()
        assert made.fits and "shown" in told
        assert "total" not in told and "result_count" not in told
