"""How a lookup is counted: a hit, a miss, or a value that is not ours."""

from __future__ import annotations

from proxy.cache.stats import LookupStats


def test_a_value_that_is_not_ours_is_a_miss_too() -> None:
    stats = LookupStats()
    assert stats.record(b"value", 5) == 5
    assert stats.record(None, None) is None and stats.record(b"garbage", None) is None
    assert (stats.hits, stats.misses, stats.foreign) == (1, 2, 1)


def test_what_decodes_to_nothing_much_is_still_a_hit() -> None:
    stats = LookupStats()
    assert stats.record(b"", 0) == 0
    assert (stats.hits, stats.misses, stats.foreign) == (1, 0, 0)
