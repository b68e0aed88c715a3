"""Laws of what a cut of a chat keeps: orders within their share, and of what changed never the old value alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.config.rules import load_rules
from proxy.fit.claims.reasons import counted
from proxy.fit.plan import plan
from proxy.model.claims import Reason
from proxy.model.plan import Plan
from proxy.model.structs import replace
from tests.makers import assistant, facts, prompt, user

LADDERS = {n: replace(load_rules(None).ladders[n], default_reserve=50, floor=50) for n in ("default", "chat")}
TOPICS = ("boats", "bread", "gardens", "trains", "pottery", "birds", "clocks", "bridges")
ORDERS = (
    "From now on, answer in two short sentences.",
    "Never use emojis in your answers.",
    "Bitte antworte mir ab jetzt immer auf Deutsch.",
    "Ne propose plus jamais de viande.",
    "Recuerda que soy alérgico a las nueces.",
)
CHANGES = (
    ("The meeting about {s} is on June 4.", "It moved to June 18 instead.", "When is the meeting about {s}?"),
    ("The fee for {s} is 400 euros.", "It was changed to 650 euros.", "What is the fee for {s}?"),
    ("The code for {s} is 7731.", "Correction: it is 2490 now.", "What is the code for {s}?"),
)
SEEDS = st.integers(0, 2**32)


def talk(seed: int, turns: int = 70) -> list[dict[str, Any]]:
    """A chat of random turns that order and change nothing."""
    rng = random.Random(seed)
    said = [f"People who like {rng.choice(TOPICS)} and {rng.choice(TOPICS)} came by on walk {i}." for i in range(turns)]
    return [(assistant if i % 2 else user)(text) for i, text in enumerate(said)]


def planned(messages: list[dict[str, Any]], ladder: str, window: int = 700) -> Plan:
    made = plan(prompt(messages), LADDERS[ladder], facts(window))
    assert made.fits
    return made


def sent(made: Plan) -> str:
    return "\n".join(m.text() for m in made.draft.messages)


def reasons(made: Plan) -> str:
    """Why messages stayed or were quoted, as reports have it."""
    whys = [m.why for m in made.draft.messages] + [drop.why for drop in made.draft.drops]
    return "\n".join([*whys, *dict(counted(made.draft.messages))])


@pytest.mark.parametrize("ladder", LADDERS)
@given(seed=SEEDS, order=st.sampled_from(ORDERS), at=st.integers(1, 20))
@settings(max_examples=15)
def test_an_order_that_has_its_share_is_kept_wherever_it_was_given(ladder: str, seed: int, order: str, at: int) -> None:
    messages = [*talk(seed), user("What do you think of boats?")]
    messages[2 * at] = user(order)
    made = planned(messages, ladder)
    assert order in sent(made) and Reason.ORDER in reasons(made)


@pytest.mark.parametrize("ladder", LADDERS)
@given(
    seed=SEEDS,
    order=st.sampled_from(ORDERS),
    at=st.integers(1, 20),
    mark=st.sampled_from(('"{}"', "> {}", "```\n{}\n```")),
)
@settings(max_examples=15)
def test_what_is_quoted_orders_nothing(ladder: str, seed: int, order: str, at: int, mark: str) -> None:
    messages = [*talk(seed), user("What do you think of boats?")]
    messages[2 * at] = user(f"He wrote this:\n{mark.format(order)}")
    assert Reason.ORDER not in reasons(planned(messages, ladder))


@pytest.mark.parametrize("ladder", LADDERS)
@given(seed=SEEDS, change=st.sampled_from(CHANGES), topic=st.sampled_from(("kites", "lanterns")), at=st.integers(2, 12))
@settings(max_examples=15)
def test_the_newest_value_stays_wherever_the_old_one_does_and_says_why(
    ladder: str, seed: int, change: tuple[str, str, str], topic: str, at: int
) -> None:
    old, new, ask = (text.format(s=topic) for text in change)
    messages = [*talk(seed), user(ask)]
    messages[2 * at], messages[2 * at + 16] = user(old), user(new)
    made = planned(messages, ladder)
    assert old in sent(made) and new in sent(made) and Reason.CHANGED in reasons(made)
