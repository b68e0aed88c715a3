"""Parts of unknown cost neither refuse nor cut a request; after a refusal they count."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from proxy.fit.plan import plan, start
from proxy.fit.steps import prune_history
from proxy.fit.unknown_costs import MOST_ALLOWED, after_refusal, on_what_is_shown, unknown_tokens
from proxy.model.conversation import Costs, Prompt
from proxy.model.limits import LearnedLimits, Margin, Window
from proxy.model.outcome import Refusal
from proxy.model.plan import Facts, Ladder, LadderStep
from proxy.model.structs import replace
from proxy.tokens.meter import meter_for
from tests import makers
from tests.tokens.remembering import Remembering

MODEL = "gpt-4o-mini"
EACH = 25_501  # tokens of an image of 1,000 by 1,000
PRUNE = partial(prune_history.apply, params=prune_history.Params())
LADDER = Ladder("test", (LadderStep("prune_history", PRUNE, at=0.85),))


def picture(number: int) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"https://example.org/{number}.jpg"}}


def asked(images: int, words: int = 10, turns: int = 1) -> Prompt:
    told: list[dict[str, Any]] = []
    for turn in range(turns):
        told += [makers.user(makers.words(words, f"t{turn}w")), makers.assistant("Yes.")]
    last = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, *map(picture, range(images))]}
    return replace(makers.prompt([*told, last]), model=MODEL, costs=Costs.UNPROVABLE)


def facts(prompt: Prompt, tokens: int = 128_000, learned: LearnedLimits | None = None) -> Facts:
    return Facts(Window(tokens), meter_for(prompt, MODEL, Remembering(), learned or LearnedLimits()))


@pytest.mark.parametrize("images", [1, 4, 5, 40])
def test_what_is_not_known_cuts_and_refuses_nothing(images: int) -> None:
    made = plan(asked(images), LADDER, facts(asked(images)))
    assert not made.changed and made.possible and made.trusting
    assert made.draft.prompt > EACH * images, "but its figures have it"


def test_what_is_shown_is_cut_as_without_it_and_what_is_unknown_stays_in_the_figures() -> None:
    prompt = asked(6, 3_000, 12)
    made = plan(prompt, LADDER, facts(prompt, 64_000))
    assert made.changed and made.trusting and made.draft.prompt > 6 * EACH
    bare = plan(asked(0, 3_000, 12), LADDER, facts(asked(0, 3_000, 12), 64_000))
    assert len(made.draft.drops) == pytest.approx(len(bare.draft.drops), abs=2)


def test_what_the_body_shows_may_still_be_too_long() -> None:
    prompt = asked(1, 3_000)
    made = plan(prompt, Ladder("test", ()), facts(prompt, 4_000))
    assert not made.possible


def test_unknown_costs_widen_the_margin_up_to_a_bound() -> None:
    prompt = asked(1)
    known = facts(prompt)
    assert on_what_is_shown(known, 300).meter.margin == Margin(known.meter.margin.base + 300, 0.02)
    assert on_what_is_shown(known, 99_000).meter.margin == Margin(known.meter.margin.base + MOST_ALLOWED, 0.02)


def test_after_a_refusal_they_count_as_what_the_upstreams_own_count_leaves_for_them() -> None:
    prompt = asked(4)
    known = facts(prompt)
    sent = start(prompt, LADDER, known)
    rest = sent.prompt - 4 * EACH
    told, restated = after_refusal(known, sent, Refusal("r", limit=128_000, prompt=rest + 4 * 40_000))
    assert told.assuming and restated.prompt == rest + 160_000
    assert unknown_tokens(told.meter, prompt.messages) == 160_000
    assert not plan(prompt, LADDER, told).trusting


def test_after_a_refusal_without_figures_they_count_as_usual() -> None:
    prompt = asked(6)
    known = facts(prompt)
    told, sent = after_refusal(known, start(prompt, LADDER, known), Refusal("r"))
    assert told.assuming and sent.prompt > 6 * EACH and plan(prompt, LADDER, told).draft.excess > 0


def test_what_usage_showed_is_known() -> None:
    prompt = asked(4)
    showed = facts(prompt, learned=LearnedLimits(media=lambda digest: 60_000))
    assert unknown_tokens(showed.meter, prompt.messages) == 0
    assert plan(prompt, LADDER, showed).draft.excess > 0
