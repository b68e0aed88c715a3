"""What tests with a real Redis have in common."""

from __future__ import annotations

import pytest

from tests.redis_server import be_patient


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis is waited for however busy the machine is: a failure is never lateness."""
    be_patient(monkeypatch)
