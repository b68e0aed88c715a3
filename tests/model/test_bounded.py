from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from proxy.model.bounded import SMALL, Bounded


def test_what_was_put_is_there() -> None:
    known: Bounded[str, int] = Bounded(10)
    assert known.put("a", 1) == 1
    assert (known.get("a"), known.get("b"), len(known), "a" in known, "b" in known) == (1, None, 1, True, False)


def test_what_is_used_outlives_what_is_not() -> None:
    known: Bounded[str, int] = Bounded(10)
    known.put("used", 1)
    for number in range(100):
        known.put(str(number), number)
        assert known.get("used") == 1 and len(known) <= 10
    assert known.get("0") is None


def test_a_few_heavy_ones_are_as_much_as_many_small_ones() -> None:
    known: Bounded[int, str] = Bounded(1_000, 100_000)
    for number in range(100):
        known.put(number, "", 10_000)
    assert known.get(99) is not None and len(known) <= 10


def test_what_alone_is_over_half_of_the_limit_is_returned_but_not_kept_and_drives_nothing_out() -> None:
    known: Bounded[str, str] = Bounded(10, 100)
    known.put("a", "a", 40)
    assert known.put("b", "b", 51) == "b"
    assert (known.get("b"), known.get("a")) == (None, "a")


def test_what_is_put_again_counts_once() -> None:
    known: Bounded[str, int] = Bounded(10, 100)
    for number in range(9):
        known.put("a", number, 30)
    known.put("b", 0, 20)
    assert dict(known) == {"a": 8, "b": 0} and known.weight == 50


def test_what_is_put_again_too_heavy_is_gone() -> None:
    known: Bounded[str, int] = Bounded(10, 100)
    known.put("a", 1, 10)
    known.put("a", 2, 60)
    assert known.get("a") is None and known.weight == 0


def test_what_is_taken_is_gone() -> None:
    known: Bounded[str, list[int]] = Bounded(10, 100)
    known.put("a", [1], 10)
    assert known.take("a") == [1] and known.take("a") is None
    known.put("b", [2], 10)
    known.clear()
    assert known.get("b") is None and len(known) == known.weight == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=60))
def test_it_never_holds_more_than_it_may(puts: list[tuple[int, int]]) -> None:
    known: Bounded[int, int] = Bounded(6, 100)
    for key, weight in puts:
        known.put(key, weight, weight)
        assert len(known) <= 6 and known.weight <= 100
        assert sum(weight for _, weight in known) == known.weight
        assert (known.get(key) == weight) == (weight <= 50)


def test_without_a_weight_an_entry_is_small() -> None:
    known: Bounded[int, int] = Bounded(1_000, 20 * SMALL)
    for number in range(100):
        known.put(number, number)
    assert 10 <= len(known) <= 20


def test_many_threads_may_use_it_at_once() -> None:
    known: Bounded[int, int] = Bounded(50, 300)

    def work(start: int) -> None:
        for number in range(2_000):
            known.put(number % 97, start, 3)
            known.get((number * 7) % 97)
            known.take((number * 5) % 97)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(known) <= 50 and known.weight <= 300
