from __future__ import annotations

import os

from proxy.cache.forgotten import Forgotten


def test_what_one_worker_forgets_all_forget() -> None:
    shared = Forgotten()
    assert shared.at("gpt-4") == 0.0
    if not (pid := os.fork()):
        shared.forget("gpt-4", 7.5)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert (shared.at("gpt-4"), shared.at("gpt-4o")) == (7.5, 0.0)


def test_any_name_may_be_forgotten() -> None:
    shared = Forgotten()
    for name in ("", "\ud800", "x" * 10_000):
        shared.forget(name, 1.0)
        assert shared.at(name) == 1.0
