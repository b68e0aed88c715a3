"""With the upstream's own count no more requests exceed their window than without it, whatever its tokens are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from proxy.config.rules import load_rules
from proxy.fit.plan import plan, start
from proxy.fit.provider_count import with_count
from proxy.model.conversation import Message, Prompt
from proxy.model.limits import Margin, Quality, Window
from proxy.model.plan import Draft, Facts, Ladder, Plan
from proxy.model.structs import replace
from tests.laws.cases import Case, cases
from tests.laws.meters import CharMeter
from tests.makers import WordMeter, assistant, ladder, prompt, tool_round, user, words

DEFAULT = load_rules(None).ladders["default"]
SEEDS = 60


def planned(sent: Prompt, found: Ladder, facts: Facts, true: int) -> Plan:
    """The plan where the upstream counts so many tokens, if it is asked."""
    made = plan(sent, found, facts)
    return made if made.want is None else plan(sent, found, with_count(facts, made.want.payload, true))


def near(case: Case, place: float) -> tuple[Ladder, Facts]:
    """The default ladder, and facts with a window within the margin of our count; -1 to 1 is where."""
    found = replace(DEFAULT, default_reserve=case.default_reserve, floor=case.floor)
    meter: WordMeter | CharMeter = case.facts.meter  # type: ignore[assignment]
    margin = Margin(meter.margin.base, max(0.05, meter.margin.share))
    facts = replace(case.facts, candidates=(), meter=replace(meter, quality=Quality.ESTIMATED, margin=margin))
    draft = start(case.prompt, found, facts)
    tokens = draft.prompt + draft.least_reply + round(place * margin.of(draft.prompt))
    return found, replace(facts, window=Window(max(100, tokens)))


@given(case=cases(), ratio=st.floats(0.7, 1.3), place=st.floats(-0.95, 0.95))
def test_what_fits_with_the_upstreams_count_fits_by_its_count(case: Case, ratio: float, place: float) -> None:
    found, facts = near(case, place)
    true = replace(facts, meter=facts.meter.scaled(ratio))
    told = start(case.prompt, found, true).prompt
    made = planned(case.prompt, found, replace(facts, counter=True), told)
    assert made.want is None
    if made.fits and made.draft.meter.quality is Quality.CALIBRATED:
        draft = made.draft
        assert tokens(draft, true) + draft.window.counted(draft.least_reply) <= draft.window.tokens


def tokens(draft: Draft, true: Facts) -> int:
    """The true tokens of what is sent."""
    meter = true.meter
    return sum(meter.fixed.values()) + sum(sum(meter.costs(block.messages)) for block in draft.blocks)


@dataclass(frozen=True)
class Uneven(WordMeter):
    """Tokens of results are `results` times as many as those of other messages."""

    results: float = 1.0

    def costs(self, messages: Sequence[Message]) -> tuple[int, ...]:
        plain = WordMeter.costs(self, messages)
        return tuple(round(c * self.results) if m.answers else c for c, m in zip(plain, messages, strict=True))


def agent(random: Random) -> Prompt:
    """A run of tools with results of all lengths."""
    said = [user(words(200))]
    for number in range(random.randrange(5, 25)):
        said += tool_round(f"c{number}", words(random.choice((40, 300, 900, 2_500)), f"r{number}x"))
        said += [assistant(words(random.randrange(10, 300), f"a{number}x"))]
    return prompt([*said, user("What now?")], max_tokens=500)


def outcome(seed: int) -> tuple[bool, bool, bool, bool]:
    """Of one random request near its window: whether it is changed, and whether it truly exceeds the window; with the
    upstream's count, then without."""
    random = Random(seed)
    sent, results = agent(random), random.uniform(0.8, 1.25)
    ours = WordMeter(Quality.ESTIMATED, Margin(100, 0.1))
    total = start(sent, ladder(), Facts(Window(1), ours)).prompt
    window = Window(round((total + 500) * random.uniform(0.95, 1.15)))
    true = Facts(window, Uneven(Quality.ESTIMATED, ratio=random.uniform(0.85, 1.15), results=results))
    told = start(sent, ladder(), true).prompt
    found: list[bool] = []
    for counter in (True, False):
        made = planned(sent, DEFAULT, Facts(window, ours, counter=counter), told)
        over = tokens(made.draft, true) + made.draft.least_reply > window.tokens
        found += [made.changed, over]
    return found[0], found[1], found[2], found[3]


def test_of_uneven_texts_no_more_exceed_the_window_and_fewer_are_changed() -> None:
    found = [outcome(seed) for seed in range(SEEDS)]
    changed, over, changed_without, over_without = (sum(column) for column in zip(*found, strict=True))
    assert over <= over_without and changed < changed_without
