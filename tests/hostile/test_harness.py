"""The harness itself: it starts what a user starts, and sees it."""

from __future__ import annotations

from tests.hostile.harness import HELLO, running, upstream


def test_a_proxy_starts_answers_and_stops(workers: int) -> None:
    with upstream() as there, running(there.url, workers=workers) as proxy:
        assert proxy.ask(HELLO).json["choices"][0]["message"]["content"] == "ok"
        assert len(proxy.workers) == workers
        assert proxy.memory_mb() > 10 and proxy.cpu_seconds() > 0 and proxy.files() > 3
        assert there.requests[-1].body == b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}'
        assert proxy.stop() == 0
