"""When an upstream's own count says that it did not read all."""

from __future__ import annotations

import pytest

from proxy.tokens.usage import FEWER, READ, truncated
from proxy.types import Quality, Usage


@pytest.mark.parametrize("quality", [Quality.EXACT, Quality.CALIBRATED])
def test_far_fewer_tokens_than_were_sent_were_not_all_read(quality: Quality) -> None:
    assert truncated(10_000, quality, 1.0, Usage(2048))
    assert truncated(10_000, quality, 1.0, Usage(int(READ * 10_000) - 1))
    assert not truncated(10_000, quality, 1.0, Usage(int(READ * 10_000)))


@pytest.mark.parametrize(
    ("counted", "quality", "unit", "usage"),
    [
        (10_000, Quality.ESTIMATED, 1.0, Usage(2048)),  # an estimate may be wrong
        (10_000, Quality.EXACT, None, Usage(2048)),  # images: their cost is assumed
        (10_000, Quality.EXACT, 1.0, Usage(2048, cached=7_000)),  # what is missing may be told beside
        (10_000, Quality.EXACT, 1.0, Usage(0)),  # it does not count
        (10_000, Quality.EXACT, 1.0, Usage(1)),
        (FEWER + 100, Quality.EXACT, 1.0, Usage(100)),  # a short prompt
        (10_000, Quality.EXACT, 1.0, Usage(20_000)),
    ],
)
def test_nothing_else_says_so(counted: int, quality: Quality, unit: float | None, usage: Usage) -> None:
    assert not truncated(counted, quality, unit, usage)
