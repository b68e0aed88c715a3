"""One cut: which blocks stay, which of them whole, and what of the choice before stays."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from proxy.fit.relevance.history import cut as module
from proxy.fit.relevance.history.cut import NOTHING, WHOLE, Marks, Replayed, cut
from proxy.fit.relevance.history.replay import CUT, replay
from tests.fit.relevance.history.test_replay import counted, half, places, run
from tests.makers import assistant, system, tool_round, user, words


def choices(marks: Marks) -> list[dict[int, float]]:
    """The older blocks that each cut of a run chose; the assistant uses each file more often than the one before."""
    CUT.clear()
    files = [f'{{"path": "src/module_{math.isqrt(i)}.py"}}' for i in range(150)]
    made = [part for i in range(150) for part in tool_round(f"c{i}", words(30, f"r{i}x"), arguments=files[i])]
    blocks = counted(system("s"), user("q"), *made)
    found = [dict(replay(blocks[:n], marks, half(blocks)).worth) for n in range(20, len(blocks))]
    CUT.clear()
    return [worth for i, worth in enumerate(found) if i and worth != found[i - 1]]


def begun(chosen: list[dict[int, float]]) -> int:
    """How often a choice begins as the one before it."""
    return sum(min(after) == min(before) for before, after in pairwise(chosen))


def test_a_new_choice_of_older_blocks_begins_as_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STAYS", 1.0)
    chosen = choices(Marks(1_000, 3))
    assert begun(chosen) == len(chosen) - 1
    monkeypatch.setattr(module, "FIRST", 0.0)
    chosen = choices(Marks(1_000, 3))
    assert begun(chosen) < len(chosen) - 1


def test_older_blocks_that_stayed_before_are_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST", 0.0)
    same = []
    for stays in (1.0, 1_000.0):
        monkeypatch.setattr(module, "STAYS", stays)
        chosen = choices(Marks(1_000, 3))
        same.append(sum(len(before.keys() & after.keys()) / len(before) for before, after in pairwise(chosen)))
        same[-1] /= len(chosen) - 1
        assert all(0 < worth <= 6 for choice in chosen for worth in choice.values())
    assert same[1] > same[0]


def test_the_newest_few_stay_whole_and_older_ones_in_short() -> None:
    blocks = run(60, size=20)
    kept = replay(blocks, Marks(1_500, 3), half(blocks))
    short = kept.brief(blocks)
    assert short and max(short) < len(blocks) - WHOLE and min(kept.costs) not in short


def test_older_blocks_stay_that_bear_on_what_the_run_is_at() -> None:
    made = [part for i in range(40) for part in tool_round(f"c{i}", words(60, f"r{i}x"))]
    made[9] = {**made[9], "content": "the budget of the committee " + words(56, "b")}
    blocks = counted(system("s"), user("What about the budget of the committee?"), *made)
    kept = replay(blocks, Marks(1_000, 3), half(blocks))
    assert 6 in kept.costs and kept.worth[6] == max(kept.worth.values())
    newest = replay(blocks, Marks(1_000, 3, recalled=0.0), half(blocks))
    assert 6 not in newest.costs and not newest.worth
    rest = [place for place in newest.costs if place > 1]
    assert rest == list(range(rest[0], len(blocks)))


def test_blocks_whose_names_are_used_again_stay() -> None:
    made = [part for i in range(40) for part in tool_round(f"c{i}", words(60, f"r{i}x"))]
    made[9] = {**made[9], "content": "src/alpha_beta.py " + words(56, "b")}
    for place in (20, 30, 50, 60, 70):
        call = tool_round(f"c{place // 2}", "", arguments='{"path": "src/alpha_beta.py"}')[0]
        made[place] = call
    assert 6 in places(counted(system("s"), user("Go on"), *made), Marks(1_000, 3))


def test_the_next_cut_keeps_the_older_blocks_of_the_one_before_while_there_is_room_and_then_chooses_anew() -> None:
    blocks = run(120)
    marks = Marks(1_000, 3)
    older = [tuple(replay(blocks[:count], marks, half(blocks)).worth) for count in range(1, len(blocks) + 1)]
    cuts = [now for before, now in pairwise(older) if now != before]
    kept = [before == now[: len(before)] for before, now in pairwise(cuts)]
    assert True in kept and False in kept


def test_of_blocks_that_name_the_same_one_is_enough() -> None:
    def calls(path: str, number: int) -> list[dict[str, Any]]:
        first, result = tool_round(f"c{number}", words(30, f"r{number}x"))
        return [{**first, "content": f"I open {path}"}, result]

    paths = ["src/alpha.py"] * 6 + ["src/beta.py"] + [""] * 40
    made = [part for number, path in enumerate(paths) for part in calls(path, number)]
    kept = replay(counted(system("s"), user("Go on"), *made), Marks(800, 3), lambda _: 40).costs
    assert 8 in kept and len(kept.keys() & set(range(2, 8))) == 1


def test_an_older_round_stays_only_with_its_answer() -> None:
    made: list[dict[str, Any]] = []
    for i in range(20):
        made += [user(f"q{i}"), *tool_round(f"c{i}", words(30, f"r{i}x")), assistant(words(90, f"a{i}x"))]
    blocks = counted(system("s"), *made, user("What about it?"))
    kept = [places(blocks, Marks(room, 3)) for room in range(1_000, 2_000, 50)]
    assert all(place + 1 in found for found in kept for place in found if blocks[place].has_results)
    assert any(place < 45 and blocks[place].has_results for found in kept for place in found)


def test_a_claimed_round_stays_with_the_answer_that_closes_it_and_in_a_form_only_where_that_is_enough() -> None:
    made = [
        part for i in range(12) for part in (*tool_round(f"c{i}", words(30, f"r{i}x")), assistant(words(9, f"a{i}")))
    ]
    blocks = counted(system("s"), user("q"), *made)
    live = {place: block.tokens for place, block in enumerate(blocks)}
    marks = Marks(200, 3, recalled=0.0)
    none = cut(Replayed(blocks), live, {0, 1}, marks, half(blocks), NOTHING, {})
    assert not {4, 5, 8} & none.costs.keys()
    kept = cut(Replayed(blocks), live, {0, 1}, marks, half(blocks), NOTHING, {4: 0, 8: 7})
    assert kept.costs[4] == live[4] and kept.costs[5] == half(blocks)(5) and kept.costs[8] == 7
    assert sum(kept.costs.values()) + 3 <= 200


def test_a_claim_that_does_not_fit_is_left_out_and_a_smaller_one_after_it_stays() -> None:
    blocks = counted(
        system("s"), user("q"), assistant(words(400)), assistant(words(20)), assistant(words(300)), user("x")
    )
    live = {place: block.tokens for place, block in enumerate(blocks)}
    kept = cut(Replayed(blocks), live, {0, 1}, Marks(200, 3), half(blocks), NOTHING, {2: 0, 3: 0})
    assert set(kept.costs) == {0, 1, 3, 5}
