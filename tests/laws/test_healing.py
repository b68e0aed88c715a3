"""A refusal heals: what it teaches makes the next request one that the upstream takes."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from proxy.config.rules import load_rules
from proxy.fit.learn import learn
from proxy.fit.plan import plan, start
from proxy.model.limits import Margin, Window
from proxy.model.outcome import Refusal
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace
from tests.laws.cases import VALID, Case, cases
from tests.laws.dialects import Dialect
from tests.makers import WordMeter, ladder

DEFAULT = load_rules(None).ladders["default"]
HEALS = 2  # as often as the gateway sends again


def truth(dialect: Dialect, body: bytes, ratio: float) -> tuple[int, int]:
    """What an upstream counts: prompt and reply."""
    sent = dialect.parse(body)
    counted = start(sent, ladder(), Facts(Window(10**6), WordMeter())).prompt
    return math.ceil(ratio * counted), sent.reply.limit or 0


def refusal(case: Case, body: bytes, ratio: float, window: int, told: int) -> Refusal | None:
    """An upstream's answer, in one of the ways in which they word it; None where it takes the request."""
    prompt, reply = truth(case.dialect, body, ratio)
    if prompt + reply <= window:
        return None
    return (
        Refusal("all", limit=window, prompt=prompt, completion=reply, total=prompt + reply),
        Refusal("sum", limit=window, total=prompt + reply, completion=reply),
        Refusal("input", limit=window, prompt=prompt),
    )[told]


@given(
    case=cases(VALID),
    ratio=st.sampled_from([1.0, 1.0, 1.1, 1.6, 2.5]),
    share=st.floats(0.3, 1.2),
    told=st.integers(0, 2),
    guessed=st.booleans(),
)
def test_two_refusals_with_figures_are_enough(case: Case, ratio: float, share: float, told: int, guessed: bool) -> None:
    prompt = case.prompt
    found = replace(DEFAULT, floor=case.floor, default_reserve=case.default_reserve)
    believed = Window(case.facts.window.tokens + 500, guessed=guessed)
    facts = Facts(believed, WordMeter(margin=Margin(100)))
    true_window = int(share * believed.tokens)
    made = plan(prompt, found, facts)
    for _ in range(HEALS):
        answer = refusal(case, case.dialect.render(prompt, made), ratio, true_window, told) if made.fits else None
        if answer is None:
            break
        taught = learn(facts, made.draft, answer)
        assert taught is not None
        facts, made = taught, plan(prompt, found, taught)
    assert not made.fits or refusal(case, case.dialect.render(prompt, made), ratio, true_window, told) is None


@given(
    case=cases(VALID),
    limit=st.none() | st.integers(1, 5000),
    count=st.none() | st.integers(1, 9000),
    excess=st.none() | st.integers(1, 3000),
    bounds=st.sampled_from(["window", "input", "body"]),
    cut_short=st.booleans(),
    guessed=st.booleans(),
)
def test_whatever_a_refusal_says_the_next_request_is_another(
    case: Case,
    limit: int | None,
    count: int | None,
    excess: int | None,
    bounds: str,
    cut_short: bool,
    guessed: bool,
) -> None:
    prompt = case.prompt
    facts = Facts(Window(case.facts.window.tokens, guessed=guessed), WordMeter(margin=Margin(100)))
    made = plan(prompt, DEFAULT, facts)
    said = Refusal("r", limit=limit, prompt=count, excess=excess, bounds=bounds, at_least=cut_short)
    taught = learn(facts, made.draft, said)
    if taught is None:
        return
    assert taught.learned != facts.learned and taught.window.tokens >= 1
    again: Draft = plan(prompt, DEFAULT, taught).draft
    assert again.window.tokens >= 1 and again.load >= 0
