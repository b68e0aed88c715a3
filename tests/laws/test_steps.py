"""What holds for every step on every request, whether or not it would be its turn."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.plan import plan
from proxy.model.conversation import Kind, Prompt
from proxy.model.plan import Draft, Facts, Plan, Want
from proxy.model.structs import replace
from tests.laws import laws
from tests.laws.cases import VALID, Case, cases, drawn, orderly
from tests.laws.dialects import DIALECTS, INVENTED
from tests.laws.steps import NAMES, VARIATIONS, ladder_step, step
from tests.makers import ladder

variations = st.integers(0, 13)
every_step = pytest.mark.parametrize("name", NAMES)


def applied(name: str, variation: int, draft: Draft, facts: Facts) -> Draft:
    """The draft after the step; one that lacks knowledge changes nothing."""
    after = step(name, variation)(draft, facts)
    return draft if isinstance(after, Want) else after


def known(case: Case) -> tuple[Prompt, Draft, Facts]:
    """A case parsed and counted, and what a step is told of it."""
    prompt = case.prompt
    before = case.counted(prompt)
    return prompt, before, replace(case.facts, original=before)


def looks(draft: Draft) -> tuple[object, ...]:
    """All of a draft that can be seen outside."""
    return draft.model, draft.reply, draft.prompt, draft.drops, [m.raw for m in draft.messages]


def test_the_steps_are_found() -> None:
    assert set(VARIATIONS) <= set(NAMES) and len(NAMES) >= 5


@dataclass(frozen=True, slots=True)
class Applied:
    """A step and what it made of a case: each law of steps looks at one."""

    name: str
    variation: int
    at: float | None
    case: Case
    prompt: Prompt
    before: Draft
    facts: Facts
    after: Draft

    def planned(self, at: float | None) -> Plan:
        """What a ladder of this step alone makes of the case, from this share of the window on."""
        reserve, floor = self.case.default_reserve, self.case.floor
        one = ladder(ladder_step(self.name, self.variation, at), default_reserve=reserve, floor=floor)
        return plan(self.prompt, one, self.case.facts)


def calls_and_results_stay_together_and_what_is_pinned_stays(done: Applied) -> None:
    parsed = done.case.dialect.parsed
    laws.assert_paired(parsed(done.before), parsed(done.after))
    laws.assert_pins(done.name, done.before, done.after)
    laws.assert_accounts(done.prompt, done.after)
    laws.assert_untouched(done.case.dialect, done.prompt, done.after)
    if done.case.valid:
        laws.assert_valid(parsed(done.after), done.case.opened(done.before))


def it_never_gets_worse_and_is_the_same_every_time(done: Applied) -> None:
    assert done.after.excess <= max(0, done.before.excess)
    assert (done.after is done.before) == (looks(done.after) == looks(done.before))
    assert looks(applied(done.name, done.variation, *known(done.case)[1:])) == looks(done.after)


def a_step_that_did_its_work_does_no_more(done: Applied) -> None:
    if done.name != "trim_tool_results" and done.after.excess <= 0:  # that one nears its cap where texts are escaped
        assert looks(applied(done.name, done.variation, done.after, done.facts)) == looks(done.after)


def under_the_line_nothing_is_done(done: Applied) -> None:
    found = done.planned(done.at)
    if found.before.excess <= 0 and (done.at is None or found.before.load < done.at):
        assert found.draft is found.before and not found.changed


def what_nobody_knows_is_kept_as_it_came(done: Applied) -> None:
    dialect, prompt = done.case.dialect, done.prompt
    laws.assert_fields_kept(dialect, done.case.body, dialect.render(prompt, done.planned(0.0)))


@every_step
@given(case=cases(), variation=variations, at=st.sampled_from([None, 0.3, 0.7, 0.9, 1.0]))
def test_the_laws_of_steps_hold(name: str, case: Case, variation: int, at: float | None) -> None:
    prompt, before, facts = known(case)
    done = Applied(name, variation, at, case, prompt, before, facts, applied(name, variation, before, facts))
    calls_and_results_stay_together_and_what_is_pinned_stays(done)
    it_never_gets_worse_and_is_the_same_every_time(done)
    a_step_that_did_its_work_does_no_more(done)
    under_the_line_nothing_is_done(done)
    what_nobody_knows_is_kept_as_it_came(done)


@every_step
@given(case=orderly(), variation=variations)
def test_no_user_comes_straight_after_a_result(name: str, case: Case, variation: int) -> None:
    _, before, facts = known(case)
    after = applied(name, variation, before, facts)
    assert laws.users_after_results(case.dialect.parsed(after)) == 0
    laws.assert_valid(case.dialect.parsed(after), case.opened(before))


def digest(count: int) -> str:
    """What every step makes of a number of cases of each API, as one text."""
    looked = []
    for seed, dialect in itertools.product(range(count), DIALECTS):
        _, before, facts = known(drawn(seed, dialect=dialect))
        looked += [looks(applied(name, seed, before, facts)) for name in NAMES]
    return repr(looked)


def test_every_process_makes_the_same_of_a_request() -> None:
    script = "import hashlib; from tests.laws.test_steps import digest; "
    script += "print(hashlib.sha256(digest(24).encode()).hexdigest())"
    told = [
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "4242")
    ]
    assert len(told[0]) == 65 and told == told[:1] * 2


def test_the_invented_api_has_what_chat_has_not() -> None:
    messages = [m for seed in range(200) for m in drawn(seed, dialect=INVENTED).prompt.messages]
    assert {m.kind for m in messages} == {*Kind} - {Kind.OTHER}
    assert any(len(m.answers) > 1 for m in messages)
    assert any(m.answers and m.kind is Kind.USER for m in messages)


def test_the_cases_hold_what_they_are_for() -> None:
    made = [drawn(seed) for seed in range(400)]
    drafts = [case.counted(case.prompt) for case in made]
    roles = {m.role for draft in drafts for m in draft.messages}
    assert roles == {"system", "developer", "user", "assistant", "tool", "function"}
    assert sum(d.excess > 0 for d in drafts) > 100 and sum(d.excess <= 0 for d in drafts) > 100
    assert any(case.valid for case in made) and not all(case.valid for case in made)
    assert sum(drawn(seed, kinds=VALID).valid for seed in range(50)) == 50
