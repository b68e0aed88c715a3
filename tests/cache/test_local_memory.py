from __future__ import annotations

from proxy.cache.local_memory import LocalMemory
from proxy.model.ports import Memory


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


def test_the_costs_of_many_messages_weigh_what_they_take() -> None:
    memory = LocalMemory(1_000, 100_000)
    for number in range(100):
        memory.put(b"%d" % number, (1,) * 500)
    assert len(memory) <= 4 and memory.get(b"99") is not None
    memory.put(b"too many", (1,) * 10_000)
    assert memory.get(b"too many") is None
