"""Seed 002: 200,000 tokens in all, some 150,000 for the recent history, some 50,000 for what is recalled."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from proxy.apis.openai_chat import request
from proxy.config.rules import load_rules
from proxy.fit.lore import LOREBOOKS, Entry
from proxy.fit.plan import plan
from proxy.fit.steps.recall import WHY, rag_budget
from proxy.model.conversation import Message
from proxy.model.plan import Ladder, Note, Plan
from proxy.model.structs import replace
from tests.makers import assistant, body, system, user
from tests.seeds.sizes import assert_fits, known, shipped, text

TOTAL, RECENT, RAG = 200_000, 150_000, 50_000
MODEL = "gpt-4.1"  # its window holds a million: only the budgets of the seed bind
TURN = 1_000  # tokens, about
SECRET = "The lighthouse keeper hid the brass key under the third stair."
QUESTION = "Where did the lighthouse keeper hide the brass key?"


@cache
def filler(place: int) -> str:
    return f"Turn {place}, at the lighthouse. {text(TURN - 16, MODEL)}"


def session(turns: int, secret: int | None = 7) -> list[dict[str, Any]]:
    """A conversation of so many turns of a thousand tokens, in one of which stands what is asked at its end."""
    said = [(user if i % 2 == 0 else assistant)(filler(i)) for i in range(turns)]
    if secret is not None:
        said[secret] = assistant(SECRET)
    return [system("You are a storyteller."), *said, user(QUESTION)]


def assembled(
    messages: list[dict[str, Any]], lore: tuple[Entry, ...] = (), ladder: Ladder | None = None, model: str = MODEL
) -> Plan:
    """The plan of the shipped ladder, with what a lorebook says."""
    sent = request.parse(body(messages, model=model))
    return plan(sent, ladder or shipped("rag"), replace(known(sent), knowledge={LOREBOOKS: lore} if lore else {}))


def step(found: Plan, name: str) -> Note:
    (note,) = [note for note in found.notes if note.step == name]
    return note


def recalled(found: Plan) -> Message:
    (ours,) = [m for m in found.draft.messages if m.why == WHY]
    return ours


def test_the_shipped_ladder_has_the_seeds_budgets() -> None:
    params = {ladder_step.step: ladder_step.apply.keywords["params"] for ladder_step in shipped("rag").steps}  # type: ignore[attr-defined]
    assert params["prune_history"].budget == RECENT
    assert (params["recall"].budget, params["recall"].total) == (RAG, TOTAL)


@pytest.mark.parametrize(("recent", "left"), [(RECENT, RAG), (120_000, RAG), (180_000, 20_000), (TOTAL + 1, 0)])
def test_what_is_left_for_recalling_is_the_seeds_formula(recent: int, left: int) -> None:
    assert rag_budget(RAG, TOTAL, recent) == left == max(0, min(RAG, TOTAL - recent))


def test_a_short_session_goes_as_it_came() -> None:
    found = assembled(session(100))
    assert not found.changed and found.draft is found.before


def test_a_long_session_keeps_the_newest_150k_and_recalls_50k_of_what_is_older() -> None:
    found = assembled(session(300))
    assert found.before.prompt > 290_000 and found.before.excess <= 0  # the model itself would have held it
    recent = step(found, "prune_history").tokens_after
    assert RECENT - 2 * TURN < recent <= RECENT + 100
    spent = step(found, "recall").tokens_after - recent
    assert RAG - 2 * TURN < spent <= RAG
    assert found.draft.prompt <= TOTAL
    assert_fits(found)


def test_what_the_question_is_about_is_found_again_however_old_it_is() -> None:
    found = assembled(session(300))
    assert SECRET in recalled(found).text() and recalled(found).tokens <= RAG
    texts = [m.text() for m in found.draft.messages]
    assert texts[-1] == QUESTION and texts[-2] == recalled(found).text() and texts[0] == "You are a storyteller."
    assert {drop.index: drop.why for drop in found.draft.drops}[8] == "recalled: relevance 1.00"


def test_nothing_that_is_recalled_stands_in_the_recent_window_too_nor_twice() -> None:
    found = assembled(session(260))
    quoted = [line for line in recalled(found).text().splitlines() if line.startswith(("user: ", "assistant: "))]
    recent = {m.text() for m in found.draft.messages if m.index >= 0}
    assert len(quoted) == len(set(quoted)) > 10
    assert not any(line.partition(": ")[2] in recent for line in quoted)


def test_entries_of_lorebooks_and_older_turns_share_the_budget_the_most_relevant_first() -> None:
    lore = (
        Entry("The brass key opens the cellar.", keys=("brass key",)),
        Entry("Dragons are extinct.", keys=("dragon",)),
        *(Entry(f"Law {i}. {text(900, MODEL)}", constant=True) for i in range(40)),
    )
    found = assembled(session(300), lore)
    told = recalled(found).text()
    assert "opens the cellar" in told and "extinct" not in told
    assert told.count("Law ") == 40 and SECRET in told
    assert RAG - 2 * TURN < recalled(found).tokens <= RAG


def test_the_recent_history_gives_way_to_the_total() -> None:
    """System prompt and last message are no history: they take what the total has left before anything is recalled."""
    messages = [system(text(25_000, MODEL)), *session(300)[1:-1], user(f"{text(1000, MODEL)} {QUESTION}")]
    found = assembled(messages)
    recent = step(found, "prune_history").tokens_after
    assert 173_000 < recent < 177_000
    assert TOTAL - 2 * TURN < found.draft.prompt <= TOTAL


def test_a_window_that_is_smaller_than_the_total_is_shared_the_same_way() -> None:
    found = assembled(session(300), model="gpt-4o")
    assert 0.70 < step(found, "prune_history").tokens_after / found.draft.room < 0.77
    assert SECRET in recalled(found).text()
    assert_fits(found)


def test_the_environments_budgets_bind_instead() -> None:
    overrides = {"prune_history": {"budget": 20_000}, "recall": {"budget": 5_000, "total": 24_000}}
    found = assembled(session(60), ladder=load_rules(None, overrides=overrides).ladders["rag"])
    recent = step(found, "prune_history").tokens_after
    assert 18_000 < recent <= 20_100
    assert 22_000 < found.draft.prompt <= 24_000 and SECRET in recalled(found).text()
