"""What was read of a run is remembered by its beginnings."""

from __future__ import annotations

import pytest

from proxy.config.rules import load_rules
from proxy.fit.claims import calls, remembered
from proxy.fit.claims import claims as made
from proxy.fit.claims.claims import ConversationClaims
from proxy.fit.claims.remembered import beginnings
from proxy.fit.plan import start
from proxy.model.conversation import Block
from tests.makers import WordMeter, facts, ladder, prompt, tool_round, user, words

CONVENTIONS = load_rules(None).ladders["default"].conventions


def blocks(count: int, first: str = "Mend load_cargo in src/crane.py.") -> tuple[Block, ...]:
    """A run of so many calls."""
    rounds = [
        m for i in range(count) for m in tool_round(f"c{i}", words(90, f"r{i}x"), "read", f'{{"path": "f{i}.py"}}')
    ]
    return start(prompt([user(first), *rounds]), ladder(), facts(9_999)).blocks


def test_a_beginning_has_the_same_number_in_a_longer_run_and_another_in_another_run() -> None:
    whole = beginnings(blocks(5), "x")
    assert beginnings(blocks(3), "x") == whole[:4] and len(set(whole)) == 6
    for others in (beginnings(blocks(5), "y"), beginnings(blocks(5, "Mend it."), "x")):
        assert not set(others) & set(whole)


def test_a_further_turn_reads_the_new_results_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counting(block: Block, place: int, conventions: object) -> object:
        read.append(place)
        return calls.results_of(block, place, CONVENTIONS)

    remembered.READS.clear()
    remembered.TURNS.clear()
    monkeypatch.setattr(made, "results_of", counting)
    for count in (6, 7, 9):
        ConversationClaims(blocks(count), CONVENTIONS, WordMeter()).standing(1_000)
    assert read == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_what_is_remembered_has_no_text_of_a_result() -> None:
    remembered.READS.clear()
    remembered.TURNS.clear()
    ConversationClaims(blocks(4), CONVENTIONS, WordMeter()).standing(1_000)
    held = repr([*remembered.READS, *remembered.TURNS])
    assert "f3.py" in held and "r3x" not in held


def test_a_read_weighs_what_its_call_has_and_turns_what_they_claim() -> None:
    remembered.READS.clear()
    remembered.TURNS.clear()
    ConversationClaims(blocks(4), CONVENTIONS, WordMeter()).standing(1_000)
    assert remembered.READS.weight >= 4 * (remembered.ENTRY + remembered.RESULT)
    assert remembered.TURNS.weight >= remembered.LAST_BLOCKS * remembered.ENTRY
