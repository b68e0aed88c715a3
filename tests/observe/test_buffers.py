"""What is added up without a library."""

from __future__ import annotations

from proxy.observe.buffers import CounterBuffer, Gauge, HistogramBuffer


def test_sums_are_kept_by_label_and_given_once() -> None:
    sums = CounterBuffer()
    for labels, value in ((("a",), 1), (("b",), 2.5), (("a",), 3)):
        sums.add(labels, (value,))
    assert dict(sums.taken()) == {("a",): 4, ("b",): 2.5}
    assert dict(sums.taken()) == {}
    sums.add(("a",), (1,))
    sums.add(("b",), ())
    assert dict(sums.taken()) == {("a",): 1}


def test_a_value_counts_under_the_first_bound_that_it_does_not_pass() -> None:
    """As Prometheus has it: a bucket's bound belongs to it (`le`)."""
    spreads = HistogramBuffer((1.0, 2.0))
    spreads.add(("x",), (0.5, 1.0, 1.5))
    spreads.add(("x",), (2.0, 7.0))
    spreads.add(("y",), (2.5,))
    spreads.add(("z",), ())
    assert list(spreads.taken()) == [(("x",), [2, 2, 1], 12.0), (("y",), [0, 0, 1], 2.5)]
    assert list(spreads.taken()) == []


def test_a_level_tells_of_each_change() -> None:
    told: list[int] = []
    level = Gauge(lambda: told.append(level.now))
    level.inc()
    level.inc()
    level.dec()
    assert told == [1, 2, 1]
