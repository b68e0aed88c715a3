"""Every attack is made on one worker and on two."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[1, 2], ids=["one_worker", "two_workers"])
def workers(request: pytest.FixtureRequest) -> int:
    """How many processes serve."""
    count: int = request.param
    return count
