"""Errors of estimates."""

from __future__ import annotations

import pytest

from proxy.replay.agreement import Errors


def test_errors_have_quantiles() -> None:
    errors = Errors()
    assert errors.mean is None and errors.quantile(0.5) is None
    for estimated in (100, 100, 100, 150, 900):
        errors.add(estimated, 100, 100)
    assert (errors.quantile(0.5), errors.quantile(0.8), errors.quantile(0.95)) == (0.0, 0.5, 1.0)
    assert errors.mean == pytest.approx(0.3) and errors.within == 3
    errors.add(5, 0, 0)
    assert errors.within == 4
