"""The upstreams under changed rules: what is kept, and what is made anew."""

from __future__ import annotations

import asyncio
from pathlib import Path

from proxy.config.rules import load_rules
from proxy.config.settings import read_settings
from proxy.model.limits import LearnedLimits, Proof
from proxy.request.backends import QUIET_SWEEPS, close
from proxy.request.routes import OneUpstream
from proxy.services import Loaded, Services, build
from proxy.upstreams.routing import routing
from proxy.upstreams.senders import make_senders
from proxy.upstreams.upstream import Upstream
from tests.recorder import Peer, Request, answer, recording
from tests.serving import eventually, run

ROW = '[[upstream]]\nname = "{name}"\nurl = "{url}"\nmodels = ["{name}-*"]\n{more}\n'


def row(name: str, url: str = "http://127.0.0.1:9/v1", more: str = "") -> str:
    return ROW.format(name=name, url=url, more=more)


def made(folder: Path, *rows: str) -> Services:
    (folder / "upstreams.toml").write_text("".join(rows), "utf-8")
    return build(read_settings({"PLIMSOLL_RULES": str(folder)}))


def reload(services: Services, folder: Path, *rows: str, **keys: str) -> None:
    (folder / "upstreams.toml").write_text("".join(rows), "utf-8")
    rules = load_rules(folder)
    senders = make_senders(services.settings, routing(rules.upstreams).routes, keys)
    services.adopt(Loaded(services.settings, rules, services.windows, senders))


def test_a_row_that_stays_keeps_its_connections_and_what_was_learned(tmp_path: Path) -> None:
    services = made(tmp_path, row("a"), row("b"))
    assert services.routes is not None
    a, b = (services.routes.backends[name] for name in "ab")
    a.knowledge.cache.record_proof("m", b"t", LearnedLimits(window=9_000), Proof(0, 0))
    reload(services, tmp_path, row("a", more='key = "K"'), row("b", "http://127.0.0.1:10/v1"), K="op")
    kept, anew = (services.routes.backends[name] for name in "ab")
    assert kept.upstream is a.upstream and anew.upstream is not b.upstream
    assert kept.knowledge.learned("m", b"t").window == 9_000 and anew.knowledge.learned("m", b"t").window is None
    assert isinstance(kept.upstream, Upstream) and kept.upstream.has_key
    assert services.gateway.routes is services.routes and services.knowledge.peers is services.routes


def test_rows_may_go_and_come(tmp_path: Path) -> None:
    services = made(tmp_path)
    assert services.routes is None
    reload(services, tmp_path, row("a"))
    assert services.routes is not None and set(services.routes.backends) == {"default", "a"}
    reload(services, tmp_path)
    assert services.routes is None and isinstance(services.gateway.routes, OneUpstream)
    assert services.knowledge.peers is None


def test_each_upstream_has_its_own_pool_list_and_records(tmp_path: Path) -> None:
    services = made(tmp_path, row("a"), row("b"))
    assert services.routes is not None
    backends = services.routes.backends.values()
    for parts in zip(
        *((b.upstream, b.knowledge, b.knowledge.cache, b.knowledge.listing) for b in backends), strict=True
    ):
        assert len({id(part) for part in parts}) == 3
    assert len({id(b.knowledge.cache.memory) for b in backends}) == 1  # counts are the same everywhere


def test_W21_each_upstream_counts_by_the_rows_of_its_own_host_also_after_a_reload(tmp_path: Path) -> None:
    services = made(tmp_path, row("a", "https://openrouter.ai/api/v1"), row("b"))

    def rows() -> list[str]:
        assert services.routes is not None
        backends = services.routes.backends
        return [backends[name].knowledge.families.find("gpt-5-mini").name for name in ("default", "a", "b")]

    assert rows() == ["gpt-5-mini", "gpt-5-mini-routed", "gpt-5-mini"]
    reload(services, tmp_path, row("a"), row("b", "https://openrouter.ai/api/v1"))
    assert rows() == ["gpt-5-mini", "gpt-5-mini", "gpt-5-mini-routed"]


def test_an_upstream_for_summaries_serves_requests_to_every_upstream(tmp_path: Path) -> None:
    (tmp_path / "upstreams.toml").write_text(row("a"), "utf-8")
    summaries = {"PLIMSOLL_SUMMARY_MODEL": "m", "PLIMSOLL_SUMMARY_UPSTREAM": "http://127.0.0.1:9/v1"}
    services = build(read_settings({"PLIMSOLL_RULES": str(tmp_path), **summaries}))
    assert services.routes is not None
    default, a = (services.routes.backends[name].planner.plans.providers for name in ("default", "a"))
    assert a["summary"] is default["summary"] and a["embeddings"] is not default["embeddings"]

    async def ends() -> None:
        assert services.routes is not None
        await close(services.routes)  # closes no provider of the default upstream's
        await services.close()

    asyncio.run(ends())


def test_an_upstream_that_is_dropped_is_closed_when_its_requests_have_ended(tmp_path: Path) -> None:
    held = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        await held.wait()
        await peer.send(answer(b"{}"))

    async def check() -> None:
        async with recording(script) as up:
            services = made(tmp_path, row("a", up.url), row("b"))
            assert services.routes is not None
            a = services.routes.backends["a"]
            assert isinstance(a.upstream, Upstream)
            sending = asyncio.create_task(a.upstream.send("POST", b"/v1/x", [], b"{}"))
            await eventually(lambda: up.requests, 30)
            reload(services, tmp_path, row("b"))
            for _ in range(2 * QUIET_SWEEPS):
                await services.dropped.sweep()
            assert a.upstream.in_use == 1 and a.upstream.connections == 1
            held.set()
            got = await sending
            assert await got.read(100) == b"{}"
            await got.close()
            for _ in range(QUIET_SWEEPS):
                assert a.upstream.connections == 1
                await services.dropped.sweep()
            assert (a.upstream.in_use, a.upstream.connections) == (0, 0)
            await services.close()

    run(check(), 60)


def test_what_is_dropped_is_closed_with_the_process_at_the_latest(tmp_path: Path) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(answer(b"{}"))

    async def check() -> None:
        async with recording(script) as up:
            services = made(tmp_path, row("a", up.url))
            assert services.routes is not None
            a = services.routes.backends["a"]
            assert isinstance(a.upstream, Upstream)
            got = await a.upstream.send("POST", b"/v1/x", [], b"{}")
            await got.read(100)
            await got.close()
            for _ in range(2):
                reload(services, tmp_path)
            assert a.upstream.connections == 1
            await services.close()
            assert a.upstream.connections == 0

    run(check(), 60)
