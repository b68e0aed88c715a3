"""What tests with a real Redis have in common."""

from __future__ import annotations

import pytest

from proxy.cache import redis, remote

PATIENCE_S = 10.0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis is waited for however busy the machine is: a failure is never lateness."""
    for patience in ("READ_BUDGET_S", "PROBE_TIMEOUT_S"):
        monkeypatch.setattr(remote, patience, PATIENCE_S)
    for patience in ("COMMAND_TIMEOUT_S", "CONNECT_TIMEOUT_S"):
        monkeypatch.setattr(redis, patience, PATIENCE_S)
