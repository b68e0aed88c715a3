"""Makes the upstreams of upstreams.toml and everything that serves them, beside the default one; it routes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from proxy.config.rules import Rules
from proxy.config.settings import Settings
from proxy.config.upstreams import ANY, DEFAULT, UpstreamRow
from proxy.model.structs import replace
from proxy.request.answers import AnswerLearning
from proxy.request.backend import Backend
from proxy.request.facts import Knowledge
from proxy.request.heal import Healer
from proxy.request.planning import PlanBuilder
from proxy.request.prepare import Planner
from proxy.request.routes import Routes
from proxy.request.totals import TotalCounter, Totals
from proxy.request.wants import Parts, Provider, want_kinds
from proxy.request.web_pages import web_pages
from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.fair_queue import FairQueue
from proxy.upstreams.internal_client import InternalClient
from proxy.upstreams.key_checks import KeyChecks
from proxy.upstreams.key_probe import KeyProbe
from proxy.upstreams.loaded_models import LoadedModels
from proxy.upstreams.models_listing import ModelsListing
from proxy.upstreams.routing import Route, routing
from proxy.upstreams.upstream import Sender, Upstream

SWEEP_S = 2.0
QUIET_SWEEPS = 30  # a minute: longer than a request waits for what its plan wants


@dataclass(frozen=True, slots=True)
class Builder:
    """Makes the upstreams of the rules beside `default`.

    `senders` send to them, by name. `before` are the upstreams under earlier rules: connections and knowledge of those
    that stay are kept.
    """

    settings: Settings
    rules: Rules
    senders: Mapping[str, Sender]
    default: Backend
    extra_calls: ExtraCalls
    before: Routes | None = None

    def routes(self) -> Routes | None:
        """The upstreams, and what chooses among them; None if there is only the default one."""
        if not self.rules.upstreams:
            self.default.knowledge.peers = None
            return None
        table = routing(self.rules.upstreams)
        backends = {self.default.name: self.default}
        for route in table.routes:
            backends[route.row.name] = self._backend(route)
        probe = KeyProbe(self.default.upstream, self.default.knowledge.keys, self.extra_calls)
        if self.before is not None and self.before.probe is not None:
            probe = self.before.probe
        routes = Routes(table, backends, self.extra_calls, web_pages(self.settings), probe)
        for backend in backends.values():
            backend.knowledge.peers = routes
        return routes

    def _backend(self, route: Route) -> Backend:
        row, before = route.row, self._kept(route.row)
        upstream = self._upstream(row, before)
        knowledge = self._knowledge(row, upstream, before)
        planner = self._planner(row, upstream, knowledge)
        healer = Healer(knowledge, planner.plans, planner.plans.pool, planner.requests, planner.agents)
        accepted = row.callers != ANY and upstream.has_key  # else clients with any key are served
        learning = AnswerLearning(knowledge, knowledge.cache, accepted)
        return Backend(row.name, upstream, knowledge, planner, healer, learning, route)

    def _kept(self, row: UpstreamRow) -> Backend | None:
        """The upstream of this row under earlier rules, if it is reached in the same way."""
        found = None if self.before is None else self.before.backends.get(row.name)
        return found if found is not None and found.row is not None and _reached(found.row) == _reached(row) else None

    def _upstream(self, row: UpstreamRow, before: Backend | None) -> Sender:
        """The sender of a row; the one that is in use, with the key and headers of the row as it is now."""
        sender = self.senders[row.name]
        if before is not None and isinstance(before.upstream, Upstream) and isinstance(sender, Upstream):
            before.upstream.access = sender.access
            return before.upstream
        return sender

    def _knowledge(self, row: UpstreamRow, upstream: Sender, before: Backend | None) -> Knowledge:
        default = self.default.knowledge
        limits = [limit for limit in (self.settings.context_total_token_limit, row.window) if limit is not None]
        if before is None:
            cache, listing = default.cache.beside(f"{row.name} {row.url}"), ModelsListing(upstream)
            loaded = LoadedModels(upstream)
        else:
            known = before.knowledge
            cache, listing, loaded = known.cache, known.listing, known.loaded or LoadedModels(upstream)
        limit = min(limits, default=None)
        host = urlsplit(row.url).hostname or ""
        keys, families = KeyChecks(host, row.provider), default.families.at(host)
        keys.use_rows(self.rules.key_checks)
        return Knowledge(limit, default.windows, families, cache, listing, loaded=loaded, keys=keys)

    def _planner(self, row: UpstreamRow, upstream: Sender, knowledge: Knowledge) -> Planner:
        default = self.default.planner
        totals = TotalCounter(
            knowledge, default.totals.counts, Totals(knowledge), default.totals.prefixes, default.totals.pool
        )
        plans = PlanBuilder(
            knowledge, default.plans.counts, self._providers(row, upstream, knowledge), default.plans.pool
        )
        return replace(default, knowledge=knowledge, totals=totals, plans=plans)

    def _providers(self, row: UpstreamRow, upstream: Sender, knowledge: Knowledge) -> dict[str, Provider]:
        """What fulfils wants for requests to an upstream: that upstream itself, unless the settings name another."""
        providers: dict[str, Provider] = {}
        for kind, want in want_kinds().items():
            if want.upstream(self.settings) != (None, None):
                providers[kind] = self.default.planner.plans.providers[kind]
                continue
            queue = FairQueue(*want.limits)
            client = InternalClient(
                upstream, kind, self.extra_calls, queue, dedicated=upstream.has_key, anyone=row.callers == ANY
            )
            providers[kind] = want.create(Parts(self.settings, self.rules, knowledge, knowledge.cache, client, row.api))
        return providers


def _reached(row: UpstreamRow) -> tuple[str | None, ...]:
    """How an upstream is reached, without its key."""
    return row.url, row.api, row.provider, row.ca, row.cert, row.cert_key


async def close(routes: Routes) -> None:
    """Ends the extra calls for requests to the upstreams of rows, and closes these."""
    if routes.probe is not None:
        await routes.probe.close()
    for backend in routes.backends.values():
        if backend.row is not None:
            await _close(backend, routes.backends[DEFAULT])


async def _close(backend: Backend, default: Backend) -> None:
    """Ends the extra calls for requests to an upstream, and closes it. What is `default`'s stays."""
    for kind, provider in backend.planner.plans.providers.items():
        if provider is not default.planner.plans.providers[kind]:
            await provider.close()
    await backend.knowledge.listing.close()
    await backend.upstream.close()


@dataclass(slots=True)
class Dropped:
    """Upstreams that the rules do not name any more. Each is closed when its requests have ended: those that began
    under earlier rules go to it still, and one that is being planned has no connection yet."""

    _waiting: list[tuple[Backend, Backend]] = field(default_factory=list)  # with the default one of its time
    _quiet: dict[int, int] = field(default_factory=dict)  # sweeps without a request, by `id` of a backend

    def add(self, before: Routes | None, now: Routes | None) -> None:
        """Takes those of `before` that are not in use `now`."""
        if before is None:
            return
        used = [] if now is None else [backend.upstream for backend in now.backends.values()]
        for backend in before.backends.values():
            if backend.row is not None and all(backend.upstream is not one for one in used):
                self._waiting.append((backend, before.backends[DEFAULT]))
                backend.knowledge.cache.leave()

    async def watch(self) -> None:
        """Closes what may be closed, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.sweep()

    async def sweep(self) -> None:
        """Closes each that had no request for the last `QUIET_SWEEPS` sweeps."""
        for backend, default in tuple(self._waiting):
            busy = isinstance(backend.upstream, Upstream) and backend.upstream.in_use
            quiet = 0 if busy else self._quiet.get(id(backend), 0) + 1
            self._quiet[id(backend)] = quiet
            if quiet >= QUIET_SWEEPS:
                self._waiting.remove((backend, default))
                del self._quiet[id(backend)]
                await _close(backend, default)

    async def close(self) -> None:
        """Closes all."""
        while self._waiting:
            await _close(*self._waiting.pop())
