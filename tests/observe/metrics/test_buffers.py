"""What is added up without a library."""

from __future__ import annotations

from proxy.observe.metrics.buffers import CounterBuffer, Gauge, HistogramBuffer, NewestBuffer


def test_totals_are_kept_by_label() -> None:
    sums = CounterBuffer()
    for labels, value in ((("a",), 1), (("b",), 2.5), (("a",), 3)):
        sums.add(labels, (value,))
    sums.add(("c",), ())
    assert sums.cells == {("a",): [4.0], ("b",): [2.5]}


def test_a_value_counts_under_the_first_bound_that_it_does_not_pass() -> None:
    """As Prometheus has it: a bucket's bound belongs to it (`le`)."""
    spreads = HistogramBuffer((1.0, 2.0))
    spreads.add(("x",), (0.5, 1.0, 1.5))
    spreads.add(("x",), (2.0, 7.0))
    spreads.add(("y",), (2.5,))
    spreads.add(("z",), ())
    assert spreads.cells == {("x",): [2, 2, 1, 12.0], ("y",): [0, 0, 1, 2.5]}


def test_many_values_at_once_fall_where_each_alone_falls() -> None:
    values = [-1.0, 0.0, 0.5, 1.0, 1.0, 1.5, 2.0, 3.0, 9.0, 9.0, 1.0000001]
    together, alone = HistogramBuffer((0.0, 1.0, 2.0, 5.0)), HistogramBuffer((0.0, 1.0, 2.0, 5.0))
    together.add((), values)
    for value in values:
        alone.add((), (value,))
    assert together.cells == {(): [2, 3, 3, 1, 2, sum(values)]} == alone.cells


def test_a_level_tells_of_each_change() -> None:
    told: list[int] = []
    gauge = Gauge(lambda: told.append(gauge.value))
    gauge.inc()
    gauge.inc()
    gauge.dec()
    assert told == [1, 2, 1]


def test_the_last_value_under_each_set_of_labels_counts() -> None:
    buffer = NewestBuffer()
    buffer.add(("a",), (1, 2))
    buffer.add(("a",), ())
    buffer.add(("b",), (3,))
    assert buffer.cells == {("a",): [2.0], ("b",): [3.0]}


def test_a_bucket_keeps_the_last_exemplar() -> None:
    buffer = HistogramBuffer((1.0, 2.0))
    buffer.mark(("a",), 0.5, "first")
    buffer.mark(("a",), 1.0, "second")
    buffer.mark(("a",), 9.0, "third")
    assert buffer.exemplars == {("a",): {0: ("second", 1.0), 2: ("third", 9.0)}}
