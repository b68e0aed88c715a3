"""How many random cases the laws try: a few by default; with HYPOTHESIS_PROFILE=laws 2,000 for each law. With
HYPOTHESIS_PROFILE=fuzz tests/fuzz runs for hours, and not always the same. Slow files run first."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Generator
from pathlib import Path

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


# Folders whose files take longest run first: while the last of them runs, other processes have short ones to do.
SLOW_FIRST = ("hostile", "laws", "e2e", "fuzz", "cache", "admin", "http", "cli", "observe", "deploy")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Orders files by how long such files take; `make test` keeps this order."""
    items.sort(key=lambda item: _rank(item.path))


@functools.cache
def _rank(path: Path) -> int:
    folder = path.relative_to(HERE).parts[0] if path.is_relative_to(HERE) else ""
    return SLOW_FIRST.index(folder) if folder in SLOW_FIRST else len(SLOW_FIRST)


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
