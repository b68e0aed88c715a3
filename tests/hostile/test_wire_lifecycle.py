"""The list of the wire's dangers, 55 to 62: stops, crashes, helpers that fail, and what stays behind."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import math
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from proxy.cache.breaker import INITIAL_PAUSE_S, JITTER
from tests.e2e.services import talk
from tests.hostile.conftest import Place
from tests.hostile.harness import HELLO, Running, eventually, friendly, ok, running, upstream
from tests.hostile.raw import Wire, chunked, get, post, tried
from tests.recorder import EVENTS, Peer, Request, answer, chunk

BODY = json.dumps(HELLO).encode()
STREAM = json.dumps({**HELLO, "stream": True}).encode()
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
ROOT = Path(__file__).parents[2]


async def streaming(request: Request, peer: Peer) -> None:
    """An upstream whose streams take two seconds."""
    if request.method == b"GET":
        await friendly(request, peer)
        return
    await peer.send(EVENTS)
    for _ in range(20):
        await peer.send(chunk(DELTA))
        await asyncio.sleep(0.1)
    await peer.send(chunk(DONE), chunk(b""))


def test_D55_a_stop_lets_streams_end(workers: int) -> None:
    with upstream(streaming) as there:
        with (
            running(there.url, workers=workers, admin=True, PLIMSOLL_DRAIN="30") as proxy,
            contextlib.ExitStack() as stack,
        ):
            wires = [stack.enter_context(Wire(proxy.port)) for _ in range(60)]
            for wire in wires:
                wire.send(post(STREAM))
            streams = [wire.chunks() for wire in wires if wire.head().status == 200]
            assert all(DELTA in next(stream) for stream in streams)
            assert proxy.ask(path="/readyz", admin=True).status == 200
            proxy.process.send_signal(signal.SIGTERM)
            eventually(lambda: not ready(proxy), 30)
            assert [b"".join(stream)[-len(DONE) :] for stream in streams] == [DONE] * 60
            assert not any(wire.rest() for wire in wires), "nothing follows the last chunk"
            assert proxy.process.wait(60) == 0
        eventually(lambda: there.open == 0, 30)


def test_D55_what_does_not_end_in_time_is_cut_visibly(workers: int) -> None:
    async def endless(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS, chunk(DELTA))
        await peer.gone()

    with upstream(endless) as there, running(there.url, workers=workers, PLIMSOLL_DRAIN="1") as proxy:
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(Wire(proxy.port)) for _ in range(10)]
            for wire in wires:
                wire.send(post(STREAM))
            for wire in wires:
                wire.until(DELTA)
            proxy.process.send_signal(signal.SIGTERM)
            assert not any(wire.rest().endswith(chunk(b"")) for wire in wires)
        assert proxy.process.wait(60) == 0
        eventually(lambda: there.open == 0, 30)


def ready(proxy: Running) -> bool:
    """Whether it says that it takes requests."""
    try:
        return proxy.ask(path="/readyz", admin=True, timeout=5).status == 200
    except OSError:
        return False


def test_D56_a_worker_that_is_killed_leaves_the_metrics_right(workers: int) -> None:
    over = threading.Event()

    async def waiting(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            return await friendly(request, peer)
        await peer.send(EVENTS, chunk(DELTA))
        while not over.is_set():  # so that none ends before a worker is killed
            await asyncio.sleep(0.01)
        await peer.send(chunk(DONE), chunk(b""))

    with upstream(friendly) as there, running(there.url, workers=workers) as proxy:
        if workers == 1:
            os.kill(proxy.process.pid, signal.SIGKILL)
            assert proxy.process.wait(20) == -signal.SIGKILL
            with pytest.raises(OSError):
                proxy.ask(HELLO)
            return
        eventually(lambda: len(proxy.workers) == workers)
        for _ in range(20):
            assert proxy.ask(HELLO).status == 200
        eventually(lambda: proxy.metric("plimsoll_requests_total", endpoint="chat") == 20, 30)
        there.script = waiting
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(Wire(proxy.port)) for _ in range(10)]
            for wire in wires:
                wire.send(post(STREAM, b"connection: close"))
            for wire in wires:
                wire.until(DELTA)
            victim = proxy.workers[0]
            os.kill(victim, signal.SIGKILL)
            over.set()
            broken = sum(not wire.rest().endswith(chunk(b"")) for wire in wires)
        eventually(lambda: victim not in proxy.workers and len(proxy.workers) == workers, 30)
        there.script = friendly
        assert proxy.ask(HELLO).status == 200
        done = 20 + 10 - broken + 1
        eventually(lambda: proxy.metric("plimsoll_requests_total", endpoint="chat") == done, 30)
        eventually(lambda: proxy.metric("plimsoll_requests_in_flight") == 0, 30)


def test_D57_a_breaker_keeps_the_herd_away(workers: int) -> None:
    """Once a worker knows that Redis fails, no request dials: only its probes and its batches of writes do."""
    dials, seconds = 0, 0.0

    async def dialled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dials
        dials += 1
        writer.close()

    async def check() -> int:
        server = await asyncio.start_server(dialled, "127.0.0.1", 0)
        with upstream() as there:
            url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
            settings = {"PLIMSOLL_REDIS": url, "PLIMSOLL_SECRET": "s" * 32}

            def work() -> int:
                nonlocal seconds
                with running(there.url, workers=workers, admin=False, **settings) as proxy:
                    with contextlib.ExitStack() as stack:
                        wires = [stack.enter_context(Wire(proxy.port)) for _ in range(30)]
                        for number in range(8):
                            for caller, wire in enumerate(wires):  # each reads what is known of its model and caller
                                wire.send(post(BODY, b"authorization: Bearer %d-%d" % (number, caller)))
                            assert all(wire.reply().status == 200 for wire in wires)
                            if not number:  # each worker that has one of these connections knows now
                                before, began = dials, time.monotonic()
                        after, seconds = dials - before, time.monotonic() - began
                    eventually(lambda: proxy.metric("plimsoll_cache_breaker_open") >= 1)
                return after

            after = await asyncio.to_thread(work)
        server.close()
        return after

    after = asyncio.run(check())
    tries = 2 + int(math.log2(1 + seconds / (INITIAL_PAUSE_S * (1 - JITTER))))  # each pause is twice the one before
    # Reading and writing; redis-py dials twice if what it dialled is closed. Of the first round 30 may dial yet.
    assert 0 < dials and after <= 30 + 2 * 2 * tries * workers < 210, "210 requests do not dial 210 times"


SUMMARIES: dict[str, bytes | None] = {
    "never": None,
    "an error": answer(b'{"error":{"message":"no","type":"x","param":null,"code":null}}', b"500 No"),
    "nothing": answer(b""),
    "no json": answer(b"garbage"),
    "another shape": answer(b'{"choices":"none"}'),
    "empty": ok(text=""),
    "longer": ok(text="We said much. " * 50_000),
}


def test_D58_a_summary_that_fails_is_not_waited_for(workers: int) -> None:
    said = {"now": "never"}

    async def script(request: Request, peer: Peer) -> None:
        if b'"summariser"' not in request.body:
            await friendly(request, peer)
        elif (told := SUMMARIES[said["now"]]) is None:
            await peer.gone()
        else:
            await peer.send(told)

    settings = {"PLIMSOLL_SUMMARY_MODEL": "summariser", "PLIMSOLL_SUMMARY_TIMEOUT": "1"}
    with upstream(script) as there, running(there.url, workers=workers, admin=False, **settings) as proxy:
        proxy.ask(HELLO)
        for number, said["now"] in enumerate(SUMMARIES):
            there.requests.clear()
            body = {"model": "gpt-4", "messages": [*talk(230), {"role": "user", "content": f"And {number}?"}]}
            got = proxy.ask(body, headers={"authorization": f"Bearer sk-{number}"})
            assert got.status == 200, said
            (sent,) = [
                json.loads(r.body) for r in there.requests if b'"gpt-4"' in r.body and b"summariser" not in r.body
            ]
            assert len(sent["messages"]) < 200 and sent["messages"][-1] == body["messages"][-1], "pruned instead"


def test_D59_a_model_that_is_switched_to_and_fails_says_so_itself(workers: int) -> None:
    error = b'{"error":{"message":"the larger model says no","type":"x","param":null,"code":"y"}}'
    now = {"status": b""}

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await friendly(request, peer)
        else:
            await peer.send(answer(error, now["status"]) if b'"gpt-4o"' in request.body[:200] else ok())

    settings = {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": "gpt-4o"}
    with upstream(script) as there, running(there.url, workers=workers, admin=False, **settings) as proxy:
        for now["status"] in (b"404 Not Found", b"429 Too Many Requests", b"500 Oops"):
            there.requests.clear()
            got = proxy.ask({"model": "gpt-4", "messages": talk(230)})
            asked = [json.loads(r.body)["model"] for r in there.requests if r.method == b"POST"]
            assert asked[0] == "gpt-4o" and len(asked) <= 2, "it is not asked again and again"
            if len(asked) == 1:
                assert (got.status, got.body) == (int(now["status"][:3]), error), "its own error"
            else:
                assert got.status == 200, "the first model's answer"


async def mixed(request: Request, peer: Peer) -> None:
    """An upstream that answers each kind of request as it should be."""
    if b'"stream": true' in request.body:
        await peer.send(EVENTS, *[chunk(DELTA)] * 5, chunk(DONE), chunk(b""))
    else:
        await friendly(request, peer)


KINDS = (
    post(BODY),
    post(STREAM),
    get(b"/v1/models"),
    chunked(BODY),
    post(b'{"model":'),
    post(b"x" * 50_000, target=b"/v1/files"),
    post(json.dumps({"model": "gpt-4", "messages": talk(250)}).encode()),
    b"GET nonsense\r\n\r\n",
)


def attack(place: Place, count: int, chance: random.Random) -> None:
    """So many requests of all kinds, a third of which nobody waits for."""
    for _ in range(count // 20):
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(Wire(place.proxy.port)) for _ in range(20)]
            patient = []
            for wire in wires:
                raw, ending = chance.choice(KINDS), chance.random()
                wire.send(raw[: chance.randrange(len(raw))] if ending < 0.1 else raw)
                if ending < 0.3:
                    (wire.reset if chance.random() < 0.5 else wire.close)()
                else:
                    patient.append(wire)
            for wire in patient:
                if chance.random() < 0.1:
                    wire.half_close()
                with contextlib.suppress(EOFError):
                    wire.head()


def test_D60_a_soak_with_clients_that_leave_keeps_nothing(place: Place) -> None:
    chance = random.Random(60)
    place.scripted(mixed)
    attack(place, 1_000, chance)
    eventually(lambda: place.proxy.metric("plimsoll_requests_in_flight") == 0, 60)
    memory, files = place.proxy.settled_mb(), place.proxy.files()
    for _ in range(3):
        place.there.requests.clear()
        attack(place, 1_000, chance)
    eventually(lambda: place.proxy.metric("plimsoll_requests_in_flight") == 0, 60)
    eventually(lambda: place.proxy.files() <= files + 30, 30)
    assert place.proxy.settled_mb() - memory < 25
    place.scripted()
    assert place.ask(HELLO).status == 200


def test_D61_nothing_that_lasts_is_measured_by_a_clock_that_may_jump() -> None:
    """The time of day is only told: in log lines, in what replicas tell each other (when a proof ends), in spans and
    metrics, on the page, in recordings (whose age a restart must not reset), and in the field `created` of an answer of
    our own; and where all replicas must mean the same day: labels that nobody uses any more, and the period of a budget
    while the clock of Redis is not heard."""
    telling = {"proxy/observe/log.py", "proxy/cache/model_records.py", "proxy/cache/accepted_callers.py"}
    telling |= {"proxy/request/tracing.py"}
    telling |= {"proxy/request/endings.py", "proxy/cache/agreed_labels.py", "proxy/cache/accounts.py"}
    telling |= {"proxy/request/gateway.py", "proxy/config/reload.py", "proxy/bootstrap.py"}
    telling |= {"proxy/observe/recent.py", "proxy/admin/page.py"}
    telling |= {"proxy/observe/recording/recorder.py", "proxy/observe/recording/recording_files.py"}
    using = set()
    for path in (ROOT / "proxy").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if (node.value.id, node.attr) in (("time", "time"), ("time", "time_ns"), ("datetime", "now")):
                    using.add(str(path.relative_to(ROOT)))
    assert using <= telling


def test_D61_no_duration_is_negative(place: Place) -> None:
    for _ in range(20):
        place.ask(HELLO)
    lines = [json.loads(line) for line in place.proxy.log('"endpoint"') if line.startswith("{")]
    assert all(line["own_ms"] >= 0 and line.get("upstream_ms", 0) >= 0 for line in lines if "own_ms" in line)


def test_D62_ten_kilobytes_cost_little(place: Place) -> None:
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "word " * 2_000}]}).encode()
    tried(place.proxy.port, post(body))
    with Wire(place.proxy.port) as wire:
        with place.proxy.working(300 * 0.005):  # 5 ms for one request; make bench has the strict figures
            for _ in range(300):
                wire.send(post(body))
                assert wire.reply().status == 200
