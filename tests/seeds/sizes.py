"""Conversations of a known size, and what the program knows of the models that they are sent to."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from proxy.apis.openai_chat import request
from proxy.config.rules import load_rules
from proxy.config.windows import Windows, load_windows
from proxy.fit.plan import plan
from proxy.model.conversation import Prompt
from proxy.model.plan import CandidateModel, Facts, Ladder, LadderStep, Plan
from proxy.model.ports import Meter
from proxy.model.structs import replace
from proxy.tokens.meter import meter_for
from tests.makers import body
from tests.tokens.remembering import Remembering

WORD = " alpha"  # one token in every encoding that we have


@functools.cache
def windows() -> Windows:
    """The shipped table of models."""
    return load_windows(load_rules(None).windows)


def shipped(name: str, *to: str) -> Ladder:
    """A shipped ladder, with models that it may switch to."""
    return load_rules(None, defaults={"switch_model": {"to": list(to)}} if to else {}).ladders[name]


def only(ladder: Ladder, step: str) -> Ladder:
    """The ladder with this one step of it."""
    steps: tuple[LadderStep, ...] = tuple(ladder_step for ladder_step in ladder.steps if ladder_step.step == step)
    return replace(ladder, steps=steps)


def known(sent: Prompt, *to: str) -> Facts:
    """What a plan for this request is told: windows and counters of its model, and of others."""

    def meter(name: str) -> Meter:
        return meter_for(sent, name, Remembering())

    candidates = tuple(CandidateModel(name, windows().find(name), functools.partial(meter, name)) for name in to)
    return Facts(windows().find(sent.model), meter(sent.model), candidates)


def planned(
    messages: Sequence[dict[str, Any]], ladder: Ladder, *to: str, window: int | None = None, **fields: Any
) -> Plan:
    """The plan for a request, with the shipped table and the model's own counter; `window` caps the model's own."""
    sent = request.parse(body(messages, **fields))
    facts = known(sent, *to)
    if window is not None:
        facts = replace(facts, window=replace(facts.window, tokens=window, guessed=False))
    return plan(sent, ladder, facts)


def text(tokens: int, model: str = "gpt-4") -> str:
    """A text of so many tokens by the counter of a model, or the nearest to it that there is."""
    return WORD * round(tokens * 1000 / per_thousand(model))


@functools.cache
def per_thousand(model: str) -> int:
    """What a thousand of our words cost."""
    return known(request.parse(body([], model=model).replace(b"[]", b'[{"role":"user"}]'))).meter.text(WORD * 1000)


def assert_fits(found: Plan) -> None:
    """The post-condition of every plan."""
    draft = found.draft
    reply = draft.floor if draft.reply is None else draft.reply
    assert found.fits and draft.prompt + reply + draft.margin <= draft.window.tokens
    assert draft.prompt <= (draft.window.max_input or draft.prompt)
