"""The rooms of results: the oldest are shortened first, to the lower mark, and stay so until the room is passed."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.history.rooms import Bounds, Raised, Size, arrival, lower, lower_mark, plan_rooms, raised
from proxy.model.conversation import Block
from tests.fit.relevance.history.test_replay import run

BOUNDS = Bounds(1_000, 0, 0.65)


def sizes(blocks: Sequence[Block], least: int = 20) -> list[Size]:
    return [Size(b.tokens, least if b.has_results else b.tokens) for b in blocks]


def test_while_a_run_fits_every_block_is_whole() -> None:
    blocks = run(5)
    assert plan_rooms(blocks, sizes(blocks), {0, 1}, BOUNDS) == [block.tokens for block in blocks]


def test_the_oldest_results_are_shortened_first_and_the_newest_not() -> None:
    blocks = run(14)
    rooms = plan_rooms(blocks, sizes(blocks), {0, 1}, BOUNDS)
    assert rooms is not None and sum(rooms) <= BOUNDS.room
    shortened = [place for place, block in enumerate(blocks) if rooms[place] < block.tokens]
    assert shortened == list(range(2, 2 + len(shortened))) and shortened
    assert rooms[-1] == blocks[-1].tokens
    assert all(rooms[place] >= 20 for place in shortened)


def test_what_was_shortened_stays_so_in_the_next_requests() -> None:
    blocks = run(40, size=30)
    before: list[int] = []
    changes = 0
    for count in range(20, len(blocks)):
        part = blocks[:count]
        rooms = plan_rooms(part, sizes(part, 5), {0, 1}, BOUNDS)
        assert rooms is not None
        changes += bool(before) and rooms[: len(before)] != before
        before = rooms
    assert 0 < changes <= 6


def test_where_the_least_of_all_is_too_much_blocks_must_go() -> None:
    blocks = run(60)
    assert plan_rooms(blocks, sizes(blocks, 40), {0, 1}, BOUNDS) is None


def test_a_claimed_result_gets_what_is_claimed_of_it() -> None:
    blocks = run(14)
    claimed = Raised({13: {2: Size(blocks[2].tokens, 60)}}, lambda place, before: {2})
    plain, with_claim = (plan_rooms(blocks, sizes(blocks), {0, 1}, BOUNDS, one) for one in (Raised(), claimed))
    assert plain is not None and with_claim is not None and plain[2] == 20 and with_claim[2] >= 60


def test_a_result_that_comes_takes_what_is_free_and_a_small_one_is_whole() -> None:
    assert arrival(Size(500, 20), 600, BOUNDS) == 120  # an eighth of the room, whatever is free
    assert arrival(Size(500, 20), 300, BOUNDS) == 350
    assert arrival(Size(100, 20), 990, BOUNDS) == 100
    assert arrival(Size(500, 500), 990, BOUNDS) == 500


@given(st.lists(st.integers(10, 90), min_size=1, max_size=12), st.integers(-5, 900))
def test_lowering_frees_no_more_than_asked_and_nothing_below_the_least(tokens: list[int], excess: int) -> None:
    rooms = dict(enumerate(tokens))
    left = lower(rooms, range(len(tokens)), [Size(t, 10) for t in tokens], excess)
    freed = sum(tokens) - sum(rooms.values())
    assert freed == min(max(0, excess), sum(t - 10 for t in tokens)) and left == excess - freed
    assert min(rooms.values()) >= 10


def test_raising_takes_only_what_is_missing() -> None:
    rooms, known = {0: 50, 1: 10}, [Size(100, 20), Size(100, 20)]
    assert raised(rooms, known, {0: Size(100, 40), 1: Size(100, 70)}) == 60
    assert rooms == {0: 50, 1: 70} and known[1].least == 70


def test_the_lower_mark_is_over_what_always_stays() -> None:
    assert lower_mark(1_000, 200, 0.5) == 200 + int(0.85 * 0.5 * 800) and lower_mark(100, 200, 0.5) == 200
