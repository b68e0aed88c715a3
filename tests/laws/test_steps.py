"""What holds for every step on every request, whether or not it would be its turn."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.plan import plan
from proxy.model.conversation import Kind, Prompt
from proxy.model.plan import Draft, Facts, Want
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


@every_step
@given(case=cases(), variation=variations)
def test_calls_and_results_stay_together_and_what_is_pinned_stays(name: str, case: Case, variation: int) -> None:
    prompt, before, facts = known(case)
    after = applied(name, variation, before, facts)
    laws.assert_paired(case.dialect.parsed(before), case.dialect.parsed(after))
    laws.assert_pins(name, before, after)
    laws.assert_accounts(prompt, after)
    laws.assert_untouched(case.dialect, prompt, after)
    if case.valid:
        laws.assert_valid(case.dialect.parsed(after), case.opened(before))


@every_step
@given(case=orderly(), variation=variations)
def test_no_user_comes_straight_after_a_result(name: str, case: Case, variation: int) -> None:
    _, before, facts = known(case)
    after = applied(name, variation, before, facts)
    assert laws.users_after_results(case.dialect.parsed(after)) == 0
    laws.assert_valid(case.dialect.parsed(after), case.opened(before))


@every_step
@given(case=cases(), variation=variations)
def test_it_never_gets_worse_and_is_the_same_every_time(name: str, case: Case, variation: int) -> None:
    _, before, facts = known(case)
    after = applied(name, variation, before, facts)
    assert after.excess <= max(0, before.excess)
    assert (after is before) == (looks(after) == looks(before))
    assert looks(applied(name, variation, *known(case)[1:])) == looks(after)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"trim_tool_results"}))  # it nears its cap where texts are escaped
@given(case=cases(), variation=variations)
def test_a_step_that_did_its_work_does_no_more(name: str, case: Case, variation: int) -> None:
    _, before, facts = known(case)
    after = applied(name, variation, before, facts)
    if after.excess <= 0:
        assert looks(applied(name, variation, after, facts)) == looks(after)


@every_step
@given(case=cases(), variation=variations, at=st.sampled_from([None, 0.3, 0.7, 0.9, 1.0]))
def test_under_the_line_nothing_is_done(name: str, case: Case, variation: int, at: float | None) -> None:
    steps = ladder(ladder_step(name, variation, at), default_reserve=case.default_reserve, floor=case.floor)
    found = plan(case.prompt, steps, case.facts)
    if found.before.excess <= 0 and (at is None or found.before.load < at):
        assert found.draft is found.before and not found.changed


@every_step
@given(case=cases(), variation=variations)
def test_what_nobody_knows_is_kept_as_it_came(name: str, case: Case, variation: int) -> None:
    steps = ladder(ladder_step(name, variation, 0.0), default_reserve=case.default_reserve, floor=case.floor)
    prompt = case.prompt
    laws.assert_fields_kept(case.dialect, case.body, case.dialect.render(prompt, plan(prompt, steps, case.facts)))


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
