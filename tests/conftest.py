"""How many random cases the laws try: a few by default; with HYPOTHESIS_PROFILE=laws 10,000 conversations for each step
and more for ladders: five laws for every step, 2,000 each. With HYPOTHESIS_PROFILE=fuzz tests/fuzz runs for hours, and
not always the same."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.tls import certificate as certificate
from tests.tls import certified as certified
from tests.tls import trusted as trusted

SLOW_START = (HealthCheck.too_slow, HealthCheck.data_too_large)  # conversations are large on purpose

settings.register_profile(
    "default", max_examples=120, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW_START
)
settings.register_profile("laws", max_examples=2_000, deadline=None, database=None, suppress_health_check=SLOW_START)
settings.register_profile("fuzz", max_examples=50_000, deadline=None, suppress_health_check=SLOW_START)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Hypothesis also draws numbers and texts that stand in modules of ours that are loaded: what a law tries would depend
# on the tests that run beside it.
assert callable(vars(providers)["is_local_module_file"])
vars(providers)["is_local_module_file"] = lambda path: False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests are made of which none is let go: the garbage collector only finds that out, again and
    again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
