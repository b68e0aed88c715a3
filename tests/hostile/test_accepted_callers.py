"""Whose key counts as accepted: in every worker and replica, until it is refused, and by nobody's word but the
upstream's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.hostile.harness import CHAT, HELLO, Running, eventually, friendly, running, upstream
from tests.keys import checking_keys
from tests.recorder import Peer, Recorder, Request, answer
from tests.redis_server import RedisServer, redis_server

LARGE = {**HELLO, "model": "large-1"}
LONG: Any = {"model": "gpt-4", "messages": [{"role": "user", "content": "A load line shows how far. " * 900}]}
ALICE, SECRET = "sk-alice", "s" * 32


async def checking(request: Request, peer: Peer) -> None:
    """An upstream that knows one key."""
    if request.header(b"authorization") == [b"Bearer sk-alice"]:
        await friendly(request, peer)
    else:
        await peer.send(answer(b'{"error":{"message":"Incorrect API key"}}', b"401 Unauthorized"))


@contextmanager
def replicas(
    folder: Path, count: int, workers: int = 1, redis: RedisServer | None = None, probe: str = "", **environment: str
) -> Iterator[tuple[Recorder, Recorder, list[Running]]]:
    """The default upstream, that of a row with a key for accepted callers, and so many proxies before both."""
    with ExitStack() as stack:
        here, there = (stack.enter_context(upstream(script)) for script in (checking, friendly))
        fields = (f'url = "{there.url}"', 'models = ["large-*"]', 'key = "LARGE_KEY"')
        (folder / "upstreams.toml").write_text("\n".join(("[[upstream]]", 'name = "other"', *fields)))
        sizes = {"gpt-4": 4_096, "large-*": 100_000}
        rows = (f'[[window]]\nmodel = "{name}"\ntokens = {size}\n' for name, size in sizes.items())
        (folder / "windows.toml").write_text("".join(rows))
        settings: dict[str, Any] = {
            **{
                "PLIMSOLL_RULES": checking_keys(folder, probe=probe),
                "LARGE_KEY": "sk-operator",
                "PLIMSOLL_SECRET": SECRET,
            },
            **{"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": "large-1"},
            **({} if redis is None else {"PLIMSOLL_REDIS": redis.url}),
            **environment,
        }
        started = [stack.enter_context(running(here.url, workers=workers, **settings)) for _ in range(count)]
        yield here, there, started


def in_time(proxy: Running) -> bool:
    """Whether Redis answered each read of a proxy within its budget, as it may not on a machine that is busy. What
    comes late is for the next request."""
    return (
        proxy.metric("plimsoll_cache_troubles_total", kind="late")
        + proxy.metric("plimsoll_cache_troubles_total", kind="skipped")
        == 0.0
    )


def test_W13_a_caller_that_one_replica_saw_accepted_is_accepted_by_all(tmp_path: Path, workers: int) -> None:
    with redis_server() as redis, replicas(tmp_path, 3, workers, redis) as (_, there, proxies):
        assert proxies[0].ask(HELLO, key=ALICE).status == 200
        eventually(lambda: any("accepted" in name for name in redis.names()))
        for proxy in proxies:
            first = proxy.ask(LARGE, key=ALICE).status
            if first != 200:
                eventually(lambda proxy=proxy: not in_time(proxy))  # type: ignore[misc]  # a worker tells another later
            eventually(lambda proxy=proxy: proxy.ask(LARGE, key=ALICE).status == 200)  # type: ignore[misc]
        assert [proxies[turn % 3].ask(LARGE, key="sk-mallory").status for turn in range(3)] == [403] * 3
        assert all(request.header(b"authorization") == [b"Bearer sk-operator"] for request in there.requests)
        stored = redis.cli("--scan") + b"".join(redis.cli("GET", name) for name in redis.names())
        assert b"alice" not in stored and b"sk-" not in stored


def test_W13_an_accepted_callers_first_request_moves_at_each_replica(tmp_path: Path) -> None:
    with redis_server() as redis, replicas(tmp_path, 3, 1, redis) as (_, _, proxies):
        assert proxies[0].ask(HELLO, key=ALICE).status == 200
        eventually(lambda: any("accepted" in name for name in redis.names()))
        for proxy in proxies:
            got = proxy.ask(LONG, key=ALICE)
            assert (got.status, got.headers.get("x-plimsoll-model")) == (200, "large-1") or not in_time(proxy)
            assert proxy.ask(LONG, key="sk-mallory").headers.get("x-plimsoll-model") is None


def test_W13_a_caller_that_one_worker_saw_accepted_is_accepted_by_all_of_them(tmp_path: Path) -> None:
    with replicas(tmp_path, 1, 2) as (_, _, (proxy,)):
        assert proxy.ask(HELLO, key=ALICE).status == 200
        assert [proxy.ask(LARGE, key=ALICE).status for _ in range(20)] == [200] * 20


def test_W13_a_refused_key_ends_it_at_once_in_all_workers_and_soon_in_all_replicas(
    tmp_path: Path, workers: int
) -> None:
    with redis_server() as redis, replicas(tmp_path, 2, workers, redis) as (here, _, (one, other)):
        assert one.ask(HELLO, key=ALICE).status == 200
        eventually(lambda: any("accepted" in name for name in redis.names()))
        eventually(lambda: other.ask(LARGE, key=ALICE).status == 200)

        async def revoked(request: Request, peer: Peer) -> None:
            await peer.send(answer(b'{"error":{"message":"Incorrect API key"}}', b"401 Unauthorized"))

        here.script = revoked
        assert one.ask(HELLO, key=ALICE).status == 401
        assert [one.ask(LARGE, key=ALICE).status for _ in range(6)] == [403] * 6
        eventually(lambda: other.ask(LARGE, key=ALICE).status == 403)


def test_W13_without_redis_and_with_a_dead_one_requests_go_on(tmp_path: Path) -> None:
    with redis_server() as redis, replicas(tmp_path, 1, 1, redis) as (_, _, (proxy,)):
        assert proxy.ask(HELLO, key=ALICE).status == 200
        redis.kill()
        assert [proxy.ask(LARGE, key=ALICE).status for _ in range(3)] == [200] * 3
        assert proxy.ask(LONG, key=ALICE).headers["x-plimsoll-model"] == "large-1"


def test_W12_a_move_that_was_allowed_and_not_made_is_told_with_its_reason(tmp_path: Path, workers: int) -> None:
    turns = [{"role": "user" if i % 2 == 0 else "assistant", "content": "A load line. " * 150} for i in range(13)]
    long = {"model": "gpt-4", "messages": turns}
    with replicas(tmp_path, 1, workers) as (here, there, (proxy,)):
        here.script = there.script = friendly
        first = proxy.ask(long, key=ALICE)
        assert "x-plimsoll-model" not in first.headers and "not moved to large-1" in first.headers["x-plimsoll-notice"]
        assert "own key was accepted" in first.headers["x-plimsoll-notice"]
        assert "own key was accepted" in json.loads(proxy.log('"unmoved"')[-1])["unmoved"]
        assert proxy.ask(long, key=ALICE).headers["x-plimsoll-model"] == "large-1"

        async def fails(request: Request, peer: Peer) -> None:
            await peer.send(answer(b"{}", b"500 Oops"))

        there.script = fails
        failed = proxy.ask(long, key=ALICE)
        assert failed.status == 200 and "the upstream other failed" in failed.headers["x-plimsoll-notice"]
        assert "x-plimsoll-notice" not in proxy.ask(HELLO, key=ALICE).headers
        eventually(lambda: proxy.metric("plimsoll_unmoved_total", reason="failed") == 1.0)
        eventually(lambda: proxy.metric("plimsoll_unmoved_total", reason="caller") == 1.0)


def reads(recorder: Recorder) -> list[bytes]:
    """The keys with which an upstream's list of models was read."""
    return [request.header(b"authorization")[0] for request in recorder.requests if request.method == b"GET"]


def test_W13_the_very_first_request_of_a_caller_moves_where_its_key_can_be_tried(tmp_path: Path, workers: int) -> None:
    with replicas(tmp_path, 1, workers, probe="/v1/models") as (here, there, (proxy,)):
        assert proxy.ask(LONG, key=ALICE).headers["x-plimsoll-model"] == "large-1"
        assert proxy.ask(LARGE, key=ALICE).status == 200
        assert not [request for request in here.requests if request.method == b"POST"]
        assert all(request.header(b"authorization") == [b"Bearer sk-operator"] for request in there.requests)
        assert reads(here).count(b"Bearer sk-alice") == 1 and len(reads(here)) == 2  # and an invented key's
        eventually(lambda: proxy.metric("plimsoll_extra_calls_total", kind="key", result="ok") == 1.0)
        assert [proxy.ask(LARGE, key="sk-mallory").status for _ in range(4)] == [403] * 4
        assert reads(here).count(b"Bearer sk-mallory") <= workers


def test_W13_a_direct_request_to_a_rows_model_is_the_first_one_too(tmp_path: Path) -> None:
    with replicas(tmp_path, 1, 1, probe="/v1/models") as (_, there, (proxy,)):
        assert proxy.ask(LARGE, key=ALICE).status == 200
        assert [request.header(b"authorization") for request in there.requests] == [[b"Bearer sk-operator"]]


def test_W13_a_list_that_is_open_to_everybody_accepts_nobody(tmp_path: Path, workers: int) -> None:
    with replicas(tmp_path, 1, workers, probe="/v1/models") as (here, there, (proxy,)):

        async def open_list(request: Request, peer: Peer) -> None:
            await (friendly if request.method == b"GET" else checking)(request, peer)

        here.script = open_list
        assert [proxy.ask(LARGE, key=f"sk-mallory-{number}").status for number in range(6)] == [403] * 6
        assert not there.requests
        invented = [key for key in reads(here) if b"mallory" not in key]
        assert 1 <= len(invented) <= workers  # the path is known to be open


def test_W13_who_brings_no_key_or_is_refused_is_not_asked_for(tmp_path: Path) -> None:
    with replicas(tmp_path, 1, 1, probe="/v1/models") as (here, _, (proxy,)):
        assert proxy.ask(LARGE, key=None).status == 403
        assert proxy.ask(LARGE, f"{CHAT}?key=sk-alice", key=None).status == 403
        assert proxy.ask(HELLO, key="sk-mallory").status == 401
        assert proxy.ask(LARGE, key="sk-mallory").status == 403
        assert not reads(here)
        assert proxy.ask(LARGE, key=ALICE, headers={"origin": "https://evil.example"}).status == 403
        assert not reads(here)


def test_W13_a_key_that_cannot_be_tried_in_time_holds_no_request_up(tmp_path: Path) -> None:
    with replicas(tmp_path, 1, 1, probe="/v1/models") as (here, _, (proxy,)):

        async def silent(request: Request, peer: Peer) -> None:
            if request.method == b"POST":
                await friendly(request, peer)

        here.script = silent
        assert proxy.ask(LARGE, key=ALICE, timeout=30).status == 403
        turns = [{"role": "user" if i % 2 == 0 else "assistant", "content": "A load line. " * 150} for i in range(13)]
        got = proxy.ask({"model": "gpt-4", "messages": turns}, key=ALICE, timeout=30)
        assert (got.status, "x-plimsoll-model" in got.headers) == (200, False)
        assert "own key was accepted" in got.headers["x-plimsoll-notice"]
