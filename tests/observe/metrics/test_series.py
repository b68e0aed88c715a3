"""The values of one row: what an alert reads starts at 0, once."""

from __future__ import annotations

from proxy.observe.metrics.buffers import CounterBuffer, HistogramBuffer, NewestBuffer
from proxy.observe.metrics.outcome_metrics import Metric
from proxy.observe.metrics.series import Series

ROW = Metric("rows_total", "Rows.", ("kind",), zeros=(("a",), ("b",)))


def test_zeros_of_a_base_begin_once_and_what_was_counted_stays() -> None:
    series = Series.of(ROW)
    series.begin(("chat", "gpt-4"))
    series.buffer.add(("chat", "gpt-4", "a"), (3.0,))
    series.begin(("chat", "gpt-4"))
    assert series.buffer.cells == {("chat", "gpt-4", "a"): [3.0], ("chat", "gpt-4", "b"): [0.0]}


def test_a_row_has_the_buffer_of_its_kind() -> None:
    assert isinstance(Series.of(ROW).buffer, CounterBuffer)
    assert isinstance(Series.of(Metric("h", "H.", buckets=(1.0,))).buffer, HistogramBuffer)
    gauge = Series.of(Metric("g", "G.", newest=True))
    assert isinstance(gauge.buffer, NewestBuffer)
    gauge.begin(("chat", "gpt-4"))
    assert gauge.buffer.cells == {}, "a gauge that was not set has no value"
