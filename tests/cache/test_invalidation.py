from __future__ import annotations

import os

from proxy.cache.invalidation import InvalidationTimes


def test_what_one_worker_invalidates_is_invalid_in_all() -> None:
    shared = InvalidationTimes()
    assert shared.get("gpt-4") == shared.latest == 0.0
    if not (pid := os.fork()):
        shared.set("gpt-4", 7.5)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert (shared.get("gpt-4"), shared.get("gpt-4o"), shared.latest) == (7.5, 0.0, 7.5)


def test_any_name_may_be_invalidated() -> None:
    shared = InvalidationTimes()
    for name in ("", "\ud800", "x" * 10_000):
        shared.set(name, 1.0)
        assert shared.get(name) == 1.0
