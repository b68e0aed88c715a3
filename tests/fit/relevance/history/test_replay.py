"""Two marks, replayed: where a run is cut, and that it is always cut there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.blocks import group
from proxy.fit.relevance.history import replay as module
from proxy.fit.relevance.history.cut import Marks
from proxy.fit.relevance.history.replay import CUT, Claimed, replay
from proxy.fit.relevance.history.rooms import Raised, Size
from proxy.model.conversation import Block
from proxy.model.structs import replace
from tests.makers import WordMeter, assistant, prompt, system, tool_round, user, words

METER = WordMeter()


def counted(*messages: dict[str, Any], pins: Sequence[int] = ()) -> tuple[Block, ...]:
    """The blocks of a conversation with their costs in words."""
    return tuple(
        replace(
            block,
            messages=tuple(
                replace(m, tokens=cost) for m, cost in zip(block.messages, METER.costs(block.messages), strict=True)
            ),
        )
        for block in group(prompt(messages).messages, pins)
    )


def run(rounds: int, size: int = 80, first: str = "Fix the parser", pins: Sequence[int] = ()) -> tuple[Block, ...]:
    """An agent's run: instructions, a task, and so many rounds of a call and a result of `size` words."""
    made = [part for i in range(rounds) for part in tool_round(f"c{i}", words(size, f"r{i}x"))]
    return counted(system("s"), user(first), *made, pins=pins)


def half(blocks: Sequence[Block]) -> Callable[[int], int]:
    """A short form that costs half."""
    return lambda place: blocks[place].tokens // 2


def places(blocks: Sequence[Block], marks: Marks) -> list[int]:
    return list(replay(blocks, marks, half(blocks)).costs)


def test_a_run_that_fits_is_whole() -> None:
    blocks = run(5)
    kept = replay(blocks, Marks(10_000, 3), half(blocks))
    assert list(kept.costs) == list(range(7)) and not kept.brief(blocks) and not kept.worth


def test_a_cut_goes_to_the_low_mark_and_keeps_what_is_pinned() -> None:
    blocks = run(40)
    CUT.clear()
    for count in range(3, len(blocks) + 1):
        part = blocks[:count]
        kept = replay(part, Marks(1_000, 3), half(part))
        assert {0, 1, count - 1} <= set(kept.costs) and 3 + sum(kept.costs.values()) <= 1_000
    pinned = blocks[0].tokens + blocks[1].tokens + blocks[-1].tokens + 3
    fresh = min(
        sum(replay(blocks[:count], Marks(1_000, 3), half(blocks)).costs.values()) for count in range(20, len(blocks))
    )
    assert 0.4 * 1_000 <= fresh <= pinned + 0.65 * (1_000 - pinned)


def test_the_cut_stays_until_the_room_is_passed_again() -> None:
    blocks = run(60)
    marks = Marks(1_000, 3)
    before, cuts = places(blocks[:12], marks), 0
    for count in range(13, len(blocks) + 1):
        now = places(blocks[:count], marks)
        cuts += now[:-1] != before
        before = now
    assert 3 <= cuts <= len(blocks) // 3


def test_it_is_cut_alike_whatever_is_remembered() -> None:
    blocks = run(60)
    marks = Marks(1_000, 3)
    grown = [replay(blocks[:count], marks, half(blocks)) for count in range(1, len(blocks) + 1)]
    for count in (17, 33, len(blocks)):
        CUT.clear()
        assert replay(blocks[:count], marks, half(blocks)) == grown[count - 1]


def test_a_cut_that_was_made_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = run(60)
    first = places(blocks, Marks(1_000, 3))
    monkeypatch.setattr(module, "cut", None)
    assert places(blocks, Marks(1_000, 3)) == first


def test_other_marks_are_other_cuts() -> None:
    blocks = run(60)
    found = {tuple(places(blocks, marks)) for marks in (Marks(1_000, 3), Marks(1_000, 3, low=0.3), Marks(900, 3))}
    assert len(found) == 3


def test_what_the_client_pinned_stays_and_is_another_cut() -> None:
    blocks = run(60)
    gone = next(i for i in range(len(blocks)) if i not in places(blocks, Marks(1_000, 3)))
    assert gone in places(run(60, pins=(blocks[gone].messages[0].index,)), Marks(1_000, 3))


def test_the_last_user_message_stays_as_long_as_it_is_the_last() -> None:
    made = [part for i in range(30) for part in tool_round(f"c{i}", words(60, f"r{i}x"))]
    blocks = counted(system("s"), user("one"), *made[:20], user(words(9, "two")), *made[20:], user("three"))
    assert 12 in places(blocks[:-1], Marks(500, 3)) and len(blocks) - 1 in places(blocks, Marks(500, 3))


def test_where_what_is_pinned_alone_is_too_much_nothing_else_stays() -> None:
    blocks = counted(system(words(300)), user("q"), *tool_round("a", words(90)), assistant("x"), user("more"))
    assert places(blocks, Marks(100, 3)) == [0, 1, 4]


def test_a_run_without_a_user_is_cut_too() -> None:
    blocks = counted(*[assistant(words(50, f"a{i}x")) for i in range(40)])
    kept = replay(blocks, Marks(500, 3), half(blocks))
    assert 3 + sum(kept.costs.values()) <= 500 and len(blocks) - 1 in kept.costs
    assert replay((), Marks(500, 3), half(())).costs == {}


@given(st.lists(st.integers(0, 120), max_size=40), st.integers(50, 900), st.floats(0.1, 1), st.floats(0, 1))
def test_it_fits_whenever_what_is_pinned_does(sizes: list[int], room: int, low: float, recalled: float) -> None:
    made = [part for i, size in enumerate(sizes) for part in tool_round(f"c{i}", words(size, f"r{i}x"))]
    blocks = counted(system("s"), user("q"), *made)
    kept = replay(blocks, Marks(room, 3, low, recalled), half(blocks))
    pinned = 3 + blocks[0].tokens + blocks[1].tokens + (blocks[-1].tokens if sizes else 0)
    assert 3 + sum(kept.costs.values()) <= max(room, pinned)
    assert list(kept.costs) == sorted(kept.costs)


def test_the_cut_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from tests.fit.relevance.history.test_replay import Marks, half, replay, run\n"
        "blocks = run(50, first='Fix the parser of r5x1 and r9x3')\n"
        "kept = replay(blocks, Marks(1_000, 3), half(blocks)); print(kept.costs, kept.worth)"
    )
    printed = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, text=True)
        for seed in ("0", "1", "77")
    }
    assert len(printed) == 1


def test_a_claim_holds_at_the_cut_after_it_and_is_let_go_at_the_next_one() -> None:
    blocks, marks = run(60), Marks(1500, 0, recalled=0.0)
    asked: list[tuple[int, int]] = []

    def held(place: int, before: int) -> set[int]:
        asked.append((place, before))
        return {3} if before < 20 else set()

    CUT.clear()
    claimed = Claimed(Raised({20: {3: Size(blocks[3].tokens, blocks[3].tokens)}}, held))
    with_claim = [3 in replay(blocks[:upto], marks, half(blocks), claimed).costs for upto in range(21, len(blocks))]
    cuts = [place for place, before in sorted(set(asked)) if place > 20]
    assert with_claim[0] and len(cuts) > 2
    first, second = cuts[0] - 20, cuts[1] - 20  # a request with so many blocks more makes that cut
    assert all(with_claim[:second]) and first < second and not any(with_claim[second:])


def test_a_later_claim_changes_no_earlier_cut() -> None:
    blocks, marks = run(60), Marks(1500, 0, recalled=0.0)
    later = Claimed(Raised({50: {3: Size(blocks[3].tokens, blocks[3].tokens)}}, lambda place, before: {3}))
    CUT.clear()
    before = replay(blocks[:50], marks, half(blocks))
    CUT.clear()
    assert replay(blocks[:50], marks, half(blocks), later) == before
    after = replay(blocks[:51], marks, half(blocks), later)
    assert {**after.costs, 50: 0, 3: 0} == {**before.costs, 50: 0, 3: 0} and 3 in after.costs
