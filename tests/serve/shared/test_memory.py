from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.serve.shared.memory import LocalMemory, Recent
from proxy.types import Memory


def test_what_was_put_is_remembered_and_counted() -> None:
    memory = LocalMemory()
    memory.put(b"a", (1, 2))
    assert (memory.get(b"a"), memory.get(b"b")) == ((1, 2), None)
    assert (memory.hits, memory.misses, len(memory)) == (1, 1, 1)


def test_it_is_a_memory_for_meters() -> None:
    def use(memory: Memory) -> None:
        memory.put(b"a", (0,))

    use(LocalMemory())


def test_it_never_holds_more_than_it_may() -> None:
    memory = LocalMemory(100)
    for number in range(1000):
        memory.put(b"%d" % number, (number,))
        assert len(memory) <= 100
    assert memory.get(b"999") == (999,)
    assert memory.get(b"0") is None


def test_what_is_used_outlives_what_is_not() -> None:
    memory = LocalMemory(10)
    memory.put(b"used", (1,))
    for number in range(100):
        memory.put(b"%d" % number, (number,))
        assert memory.get(b"used") == (1,)


def test_putting_what_is_there_forgets_nothing() -> None:
    memory = LocalMemory(4)
    memory.put(b"a", (1,))
    memory.put(b"b", (2,))
    for _ in range(10):
        memory.put(b"b", (3,))
    assert (memory.get(b"a"), memory.get(b"b")) == ((1,), (3,))


def test_the_least_recent_goes_first() -> None:
    recent: Recent[int] = Recent(2)
    recent.put(b"a", 1)
    recent.put(b"b", 2)
    assert recent.get(b"a") == 1
    recent.put(b"c", 3)
    assert (recent.get(b"b"), recent.get(b"a"), recent.get(b"c")) == (None, 1, 3)
    assert dict(recent) == {b"a": 1, b"c": 3}


def test_what_alone_is_over_the_limit_is_not_kept_and_drives_nothing_out() -> None:
    recent: Recent[int] = Recent(10, 100)
    recent.put(b"a", 1, 60)
    recent.put(b"b", 2, 101)
    assert (recent.get(b"a"), recent.get(b"b")) == (1, None)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=60))
def test_entries_never_weigh_more_than_the_limit(puts: list[tuple[int, int]]) -> None:
    recent: Recent[int] = Recent(5, 100)
    for key, weight in puts:
        recent.put(b"%d" % key, weight, weight)
        assert len(recent) <= 5
        assert sum(weight for _, weight in recent) <= 100
        assert recent.get(b"%d" % key) == weight
