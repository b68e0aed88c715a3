"""One note of a request says that a proxy has left something out."""

from __future__ import annotations

import re
from typing import Any

import pytest

from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.fit.steps import prune_history, trim_tool_results
from proxy.fit.steps.trim_tool_results import Params
from proxy.model.plan import Facts, LadderStep, Plan, Want
from proxy.model.structs import replace
from tests.laws.meters import CharMeter
from tests.makers import facts, ladder, prompt, tool_round, user, words

BY = "left out by a proxy"
STEPS = ladder(
    LadderStep("trim_tool_results", lambda d, f: trim_tool_results.apply(d, f, Params(cap_tokens=300))),
    LadderStep("prune_history", lambda d, f: prune_history.apply(d, f, prune_history.Params(recall=0.5))),
)


def log(name: str, lines: int = 60) -> str:
    return "\n".join(f"{name} line {i} says {words(4, 'w')}" for i in range(lines))


def run(rounds: int) -> list[dict[str, Any]]:
    return [user("go"), *[m for i in range(rounds) for m in tool_round(f"c{i}", log(f"r{i}"))]]


def planned(messages: list[dict[str, Any]], window: int = 3_000) -> Plan:
    known: Facts = facts(window, meter=CharMeter())
    made = plan(prompt(messages, max_tokens=200), STEPS, known)
    assert not isinstance(made.want, Want)
    return made


def texts(made: Plan) -> list[str]:
    return [m.text() for m in made.draft.messages]


def test_the_oldest_shortened_result_says_it_once_and_no_other_does() -> None:
    made = planned(run(6))
    short = [m for m in made.draft.messages if m.why]
    assert len(short) > 1 and made.draft.excess <= 0
    assert [m.text().count(BY) for m in short] == [1] + [0] * (len(short) - 1)
    assert re.search(r"\[… \d+ of 60 lines left out by a proxy …\]", short[0].text())


def test_it_is_in_the_figures_and_costs_no_tokens_where_there_are_none() -> None:
    made = planned(run(6))
    last = made.drafts[-1]
    assert made.notes[-1].tokens_after == made.draft.billed == last.billed
    again = plan(prompt(run(6), max_tokens=200), STEPS, facts(3_000, meter=CharMeter()))
    assert again.draft == made.draft
    plain = [m for m in made.draft.messages if m.again]  # the others could say it as well, in no more
    assert plain and all(
        CharMeter().text(m.again(m, True).text()) <= CharMeter().text(m.text()) for m in plain if m.again
    )


def test_it_stays_word_for_word_from_turn_to_turn_until_a_deeper_cut() -> None:
    before = planned(run(5))
    moved = 0
    for rounds in range(6, 24):
        now = planned(run(rounds))
        then, texts_now = texts(before), texts(now)
        place = next(i for i, text in enumerate(then) if BY in text)
        if texts_now[: place + 1] != then[: place + 1]:
            assert now.draft.prompt < before.draft.prompt  # a deeper cut
            moved += 1
        assert sum(BY in text for text in texts_now) == 1
        before = now
    assert moved <= 2


def test_what_fits_says_nothing() -> None:
    made = planned(run(2))
    assert made.draft is made.before and BY not in "".join(texts(made))


def test_what_another_step_has_written_since_is_not_made_again() -> None:
    short = next(m for m in planned(run(6)).draft.messages if m.again)
    other = replace(short, raw=short.raw.replace(b"line", b"LINE"))
    assert short.again is not None and short.again(other, False) is other


@pytest.mark.parametrize("window", range(1_000, 4_500, 250))
def test_it_never_makes_a_request_too_long(window: int) -> None:
    made = planned(run(8), window)
    assert made.draft.excess <= 0 or BY not in "".join(texts(made))


def test_what_is_claimed_keeps_its_room_and_the_next_shortened_result_says_it() -> None:
    code = "import os\n\n\ndef load(path):\n    text = read(path)\n    return text\n\n\n" + log("value")
    asked = [user("Rework `load` in a.py."), *tool_round("a", code, "Read", '{"path": "a.py"}')]
    steps = replace(STEPS, conventions=load_rules(None).ladders["default"].conventions)
    made = plan(prompt([*asked, *run(6)[1:]], max_tokens=200), steps, facts(3_000, meter=CharMeter()))
    assert not isinstance(made.want, Want)
    short = [m for m in made.draft.messages if m.why]
    assert "kept: " in short[0].why and "return text" in short[0].text() and BY not in short[0].text()
    assert [m.text().count(BY) for m in short[1:]] == [1] + [0] * (len(short) - 2)
