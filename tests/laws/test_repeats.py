"""Runs that read the same again and again: no stub refers to what is not sent, and no old line stands for a new one."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.model.conversation import PartKind
from proxy.model.plan import Facts, Plan
from proxy.model.structs import replace
from tests.laws import laws
from tests.laws.dialects import DIALECTS, Dialect
from tests.laws.test_stability import numbered
from tests.makers import assistant, facts, tool_round, user

RULES = load_rules(None)
LADDERS = ("default", "agent", "chat", "economy", "lossless")
FILES = 3
# What happens next: (0 to 2: a file is read, 3: one is changed, 4: a test is run, 5: talk), of which file, from where.
event = st.tuples(st.integers(0, 5), st.integers(0, FILES - 1), st.sampled_from([0, 0, 0, 40, 80]))
events = st.lists(event, min_size=3, max_size=14)


def told(what: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
    """A run in which files are read, changed and read again."""
    files = [[f"file_{k}_{i} = the value of number {i} in {k}" for i in range(90)] for k in range(FILES)]
    run: list[dict[str, Any]] = [user("Mend the module.")]
    for number, (kind, k, first) in enumerate(what):
        path = {"path": f"src/f{k}.py"}
        if kind < 3:
            lines = "\n".join(f"{i + 1:5}\t{line}" for i, line in enumerate(files[k]) if i >= first)
            more = {"offset": first + 1} if first else {}
            run += tool_round(f"c{number}", lines, "Read", json.dumps(path | more))
        elif kind == 3:
            files[k][number * 6 % 90] = f"changed_{number} = by a command"
            run += tool_round(f"c{number}", "done", "bash", json.dumps({"command": "make generate"}))
        elif kind == 4:
            run += tool_round(
                f"c{number}", "\n".join(f"test_{i} of the suite passed" for i in range(90)), "pytest", "{}"
            )
        else:
            run += [assistant(f"I see {number}."), user(f"Go on {number}.")]
    return numbered([*run, assistant("I have an idea."), user("Go on.")])


def planned(dialect: Dialect, run: list[dict[str, Any]], window: int, name: str) -> Plan:
    chosen = replace(RULES.ladders[name], default_reserve=100, floor=50)
    steps = tuple(
        replace(each, apply=replace_least(each.apply)) if each.step == "drop_repeated" else each
        for each in chosen.steps
    )
    known: Facts = facts(window)
    return plan(dialect.parse(dialect.body(run, {}, {"model": "m"}, {})), chosen.with_steps(steps), known)


def replace_least(apply: Any) -> Any:
    """The step, from fewer tokens on."""
    return partial(apply.func, params=replace(apply.keywords["params"], least=100))


@pytest.mark.parametrize("name", LADDERS)
@given(dialect=st.sampled_from(DIALECTS), what=events, window=st.integers(400, 4_000))
@settings(max_examples=60)
def test_no_stub_refers_to_what_is_not_sent(
    name: str, dialect: Dialect, what: list[tuple[int, int, int]], window: int
) -> None:
    made = planned(dialect, told(what), window, name)
    laws.assert_stubs_hold(made)
    assert made.draft.prompt <= made.before.prompt


def test_the_runs_have_what_they_are_for() -> None:
    run = told([(0, 0, 0), (0, 1, 0), (3, 0, 0), (0, 0, 0), (0, 2, 0), (4, 0, 0), (4, 0, 0)])
    made = [planned(DIALECTS[0], run, window, "default") for window in range(1_500, 6_000, 250)]
    texts = [
        part.text for each in made for m in each.draft.messages for part in m.parts() if part.kind is PartKind.RESULT
    ]
    assert any("the same text stands in" in text for text in texts)
    assert any("an older version of" in text for text in texts)
    assert any("are left in" in text or text == "[A proxy left out this text.]" for text in texts)
