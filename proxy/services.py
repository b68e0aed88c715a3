"""What one process serves with: made from the settings at its start, and from the rules whenever they change."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from proxy import __version__
from proxy.admin.local import Local
from proxy.admin.page import Page
from proxy.admin.peers import Peers
from proxy.apis import apis
from proxy.cache.cache import Cache
from proxy.config import step_settings
from proxy.config.reload import Reloader
from proxy.config.rules import Rules, load_rules
from proxy.config.settings import SETTINGS, Settings
from proxy.config.upstream_prices import upstream_prices
from proxy.config.upstreams import DEFAULT
from proxy.config.windows import Windows, load_windows
from proxy.fit.money import PricesOf
from proxy.http.memory_budget import Budget
from proxy.http.memory_limit import derived, memory_limit, read_text
from proxy.model.outcome import Outcome
from proxy.model.structs import replace
from proxy.observe.log import event, make_access_log
from proxy.observe.metrics.exposition import Metrics, model_label, table_name
from proxy.observe.metrics.gen_ai import GenAi
from proxy.observe.metrics.read_metrics import BuildFacts
from proxy.observe.recent import Recent
from proxy.observe.recording.recorder import Recorder
from proxy.observe.tracing.spans import provider_names
from proxy.request.answered_keys import AnsweredKeys
from proxy.request.answers import AnswerLearning
from proxy.request.attempts import Attempts
from proxy.request.backend import Backend
from proxy.request.backends import Builder, Dropped
from proxy.request.backends import close as close_routes
from proxy.request.body_callers import BodyCallers
from proxy.request.budgets import Budgets
from proxy.request.callers import Callers, make_callers
from proxy.request.facts import Knowledge
from proxy.request.gateway import Gateway
from proxy.request.heal import Healer
from proxy.request.inspect import Inspecting
from proxy.request.left_to_agents import Agents
from proxy.request.models import ModelsList
from proxy.request.observers import Observer, OnPage, Outcomes, Recording, Settling
from proxy.request.planning import PlanBuilder
from proxy.request.prefix_cache import PrefixCache
from proxy.request.prepare import Planner
from proxy.request.recorders import make_recorder
from proxy.request.refusal_detection import RefusalDetector
from proxy.request.reporting import Reporter
from proxy.request.routes import OneUpstream, Router, Routes
from proxy.request.scanning import BodyScanner
from proxy.request.shown import Keeping
from proxy.request.totals import SharedCounts, TotalCounter, Totals
from proxy.request.traces import Traces, make_traces
from proxy.request.tracing import untraced
from proxy.request.unfitted import Unfitted
from proxy.request.wants import Parts, Provider, WantKind, want_kinds
from proxy.request.web_pages import web_pages
from proxy.request.work import Background, Pool, Turns, request_pool
from proxy.tokens.encodings import encoding
from proxy.tokens.litellm_data import version_of_data
from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.fair_queue import FairQueue
from proxy.upstreams.internal_client import InternalClient
from proxy.upstreams.key_checks import KeyChecks
from proxy.upstreams.litellm import LiteLLM
from proxy.upstreams.loaded_models import LoadedModels
from proxy.upstreams.models_listing import ModelsListing
from proxy.upstreams.routing import routing
from proxy.upstreams.senders import make_senders, make_upstream
from proxy.upstreams.upstream import Sender, Upstream

FIRST_ENCODING = "o200k_base"  # the one of nearly all models
SECOND_ENCODING = "cl100k_base"  # loaded in the background after the start


class Loaded(NamedTuple):
    """What is read from files: it follows them while the process serves."""

    settings: Settings
    rules: Rules
    windows: Windows
    senders: Mapping[str, Sender] = MappingProxyType({})
    callers: Callers | None = None


@dataclass(frozen=True, slots=True)
class Serving:
    """What serves requests under some rules. A request keeps that of its beginning to its end."""

    knowledge: Knowledge
    providers: Mapping[str, Provider]
    planner: Planner
    refusals: RefusalDetector
    routes: Routes | None
    router: Router
    models: ModelsList


@dataclass(slots=True)
class Services:
    """Everything that one process serves with. `adopt` replaces what follows from files.

    `settings` are those that were read last, `first` those of the start: of most only these count.
    """

    first: Settings
    settings: Settings
    rules: Rules
    windows: Windows
    cache: Cache
    upstream: Upstream
    extra_calls: ExtraCalls
    clients: Mapping[str, InternalClient]
    knowledge: Knowledge
    providers: Mapping[str, Provider]
    budget: Budget
    reloader: Reloader[Loaded]
    traces: Traces | None
    recorder: Recorder | None
    pool: Pool = field(default_factory=request_pool)
    background: Background = field(default_factory=Background)
    turns: Turns = field(default_factory=Turns)
    agents: Agents = field(default_factory=Agents)
    budgets: Budgets = field(init=False)
    metrics: Metrics = field(init=False)
    gateway: Gateway = field(init=False)
    unfitted: Unfitted = field(init=False)
    inspecting: Inspecting = field(init=False)
    routes: Routes | None = None
    page: Page | None = None
    ready: bool = False
    dropped: Dropped = field(default_factory=Dropped)
    _watches: tuple[asyncio.Task[None], ...] = ()

    async def open(self) -> None:
        """Loads what requests need, so that the first request does not wait for it."""
        await self.cache.start()
        encoding(FIRST_ENCODING)
        asyncio.get_running_loop().run_in_executor(None, encoding, SECOND_ENCODING)
        self._watches = tuple(map(asyncio.create_task, (self.reloader.watch(), self.dropped.watch())))
        for backend in () if self.routes is None else self.routes.backends.values():
            if isinstance(backend.upstream, LiteLLM):
                await backend.upstream.ready()
        if self.page is not None:
            await self.page.open()
        self.ready = True

    def go_offline(self) -> None:
        """Calls no upstream from now on, not even for lists of models."""
        backends = () if self.routes is None else self.routes.backends.values()
        for knowledge in (self.knowledge, *(backend.knowledge for backend in backends)):
            knowledge.offline = True

    async def close(self) -> None:
        """Ends requests and background work, and closes connections and threads."""
        self.ready = False
        if self.page is not None:
            await self.page.close()
        for watch in self._watches:
            watch.cancel()
        await self.gateway.close()
        await asyncio.gather(*(one.close() for one in (self.traces, self.recorder) if one is not None))
        await self.background.close()
        for provider in self.providers.values():
            await provider.close()
        self.pool.close()
        self.turns.close()
        if self.routes is not None:
            await close_routes(self.routes)
        await self.dropped.close()
        await self.knowledge.close()
        await self.cache.close()
        await self.upstream.close()

    def _serving(
        self, rules: Rules, senders: Mapping[str, Sender], knowledge: Knowledge, providers: Mapping[str, Provider]
    ) -> Serving:
        """What serves requests under these rules, with this knowledge and these providers, which follow from them."""
        planner = self._planner(rules, knowledge, providers)
        healer = Healer(knowledge, planner.plans, self.pool, planner.requests, self.agents)
        default = Backend(DEFAULT, self.upstream, knowledge, planner, healer, AnswerLearning(knowledge, self.cache))
        routes = Builder(self.first, rules, senders, default, self.extra_calls, self.routes).routes()
        models = ModelsList(default, rules.ladders[self.first.ladder], routes, self.first.models_windows)
        router, refusals = routes or OneUpstream(replace(default, name="")), RefusalDetector(rules.refusals)
        return Serving(knowledge, providers, planner, refusals, routes, router, models)

    def _planner(self, rules: Rules, knowledge: Knowledge, providers: Mapping[str, Provider]) -> Planner:
        prefixes, counts = PrefixCache(), SharedCounts(self.cache)
        scanner = BodyScanner(self.first.max_body, prefixes, self.pool)
        totals = TotalCounter(knowledge, counts, Totals(knowledge), prefixes, self.pool)
        plans = PlanBuilder(knowledge, counts, providers, self.pool)
        return Planner(rules, knowledge, scanner, totals, plans, self.background, self.first.ladder, self.agents)

    def begin(self, loaded: Loaded, folder: Path | None, tell: Callable[[Outcome], None]) -> None:
        """Makes what serves the first requests. `folder`: where the workers share their metrics."""
        serving = self._serving(self.rules, loaded.senders, self.knowledge, self.providers)
        recent = None if self.first.admin_port is None else Recent()
        identify = BodyCallers(self.knowledge.keys, self.extra_calls)
        self.budgets = Budgets(self.cache.accounts, self._prices(), identify.caller_at)
        self.cache.accounts.link.workers = self.first.workers
        self.metrics = self._metrics(folder)
        observers: list[Observer] = [Outcomes(self.metrics.observe), Outcomes(tell), Settling(self.budgets)]
        observers += [] if self.traces is None else [Outcomes(self.traces.exporter)]
        observers += [] if self.recorder is None else [Recording(self.recorder)]
        observers += [] if recent is None else [OnPage(recent)]
        callers, header = self.rules.callers.listed, self.first.caller_header
        reporter = Reporter(serving.refusals, self.metrics, observers, callers, header)
        pages, begin = web_pages(self.first), untraced if self.traces is None else self.traces.tracer.begin
        self.gateway = Gateway(
            self.first,
            serving.router,
            self._attempts(serving),
            self.metrics,
            self.budget,
            reporter,
            pages=pages,
            begin_trace=begin,
            keeping=None if recent is None else Keeping(self.first.page_content),
            callers=loaded.callers,
            budgets=self.budgets,
        )
        parts = (self.first, serving.router, serving.models, self.metrics, reporter)
        self.unfitted = Unfitted(*parts, pages=pages, begin_trace=begin, callers=loaded.callers)
        self.budget.identify = identify.caller
        self._use(serving, self.gateway.callers)
        if recent is not None:
            self.page = Page(self, recent, Peers(Local(self, recent), folder), self.first.workers)

    def adopt(self, loaded: Loaded) -> None:
        """Serves further requests with these rules and keys. A request in progress keeps the rules that it began with:
        it belongs to the gateway of that time. If anything raises, the old rules stay."""
        settings, rules, windows, senders, callers = loaded
        knowledge = self.knowledge.with_rules(windows, rules.families.at(self.upstream.server))
        knowledge.keys.use_rows(rules.key_checks)
        providers = {kind: provider.with_rules(rules, knowledge) for kind, provider in self.providers.items()}
        serving = self._serving(rules, senders, knowledge, providers)
        names = provider_names(self.first.upstream, rules.upstreams)
        self.dropped.add(self.routes, serving.routes)
        self._adopt_keys(settings)
        self.settings, self.rules, self.windows = settings, rules, windows
        reporter = self.gateway.reporter.with_rules(serving.refusals, rules.callers.listed)
        self.gateway = self.gateway.with_rules(serving.router, self._attempts(serving), reporter, callers)
        self.unfitted = self.unfitted.with_rules(serving.router, serving.models, reporter, callers)
        self._use(serving, self.gateway.callers)
        self.budgets.prices = prices = self._prices()
        self.metrics.use_rules(partial(model_label, windows), prices, names)
        if self.traces is not None:
            self.traces.use_upstreams(rules.upstreams)

    def _use(self, serving: Serving, callers: Callers | None) -> None:
        self.knowledge, self.providers, self.routes = serving.knowledge, serving.providers, serving.routes
        self.budgets.current = self.rules.callers.budgets.values()
        self.inspecting = Inspecting(self.first, serving.router, self.budget, self.turns, callers)

    def _attempts(self, serving: Serving) -> Attempts:
        """What sends requests, and learns whose keys were accepted."""
        keys = AnsweredKeys(serving.knowledge.keys, self._asked_for(serving.routes), self.extra_calls)
        return Attempts(serving.refusals, keys, self.pool, self.budget)

    def _asked_for(self, routes: Routes | None) -> ExtraCalls | None:
        """The extra calls, if the operator may be billed for what callers cause, or budgets tell them apart."""
        needed = any(client.dedicated for client in self.clients.values()) or self.rules.callers.tells_strangers_apart
        return self.extra_calls if self.upstream.has_key or needed or routes is not None else None

    def _metrics(self, folder: Path | None) -> Metrics:
        return Metrics(
            label=partial(model_label, self.windows),
            cache=self.cache,
            extra_calls=self.extra_calls,
            budget=self.budget,
            folder=folder,
            reloads=self.reloader,
            endpoints=[api.name for api in apis()],
            traces=None if self.traces is None else self.traces.exporter,
            prices=self.budgets.prices,
            build=BuildFacts(__version__, platform.python_version(), version_of_data(), self.windows.newest_at),
            by_caller=self.first.caller_header is not None or bool(self.rules.callers.rows),
            gen_ai=GenAi(provider_names(self.first.upstream, self.rules.upstreams))
            if self.first.gen_ai_metrics
            else None,
            recording=self.recorder,
            agreed=self.cache.labels,
            budgets=self.budgets,
            folded=lambda label: event("there are too many of a label of metrics: further ones are other", label=label),
        )

    def _prices(self) -> PricesOf:
        return upstream_prices(self.windows, self.first.upstream, self.rules.upstreams)

    def _adopt_keys(self, settings: Settings) -> None:
        """Uses the keys of these settings. What else has changed takes effect at the next start."""
        before, followed = self.settings, {"api_key"}
        self.upstream.use_key(settings.api_key)
        for kind, client in self.clients.items():
            if client.dedicated and isinstance(client.upstream, Upstream):
                client.upstream.use_key(want_kinds()[kind].upstream(settings)[1])
                followed.add(f"{kind}_api_key")
        if settings.secret is not None and before.secret is not None:
            followed.add("secret")
            if settings.secret != before.secret:
                self.cache.use_secret(settings.secret)
        for row in SETTINGS:
            if row.field not in followed and getattr(settings, row.field) != getattr(before, row.field):
                event("a changed setting takes effect at the next start", setting=row.name)
        if settings.traces != before.traces:
            event("a changed setting takes effect at the next start", setting="OTEL_*")


def build(
    settings: Settings,
    tell: Callable[[Outcome], None] | None = None,
    folder: Path | None = None,
    reread: Callable[[], Settings] | None = None,
    variables: Callable[[], Mapping[str, str]] | None = dict,
) -> Services:
    """The services for these settings. `reread` reads the settings again, with their files. `variables` reads the
    environment, for the keys that rules name; None: nothing will be sent, and no key is read. Raises `ConfigError` for
    wrong settings and rules."""
    reread = reread or (lambda: settings)
    followed = [one for one in (settings.rules, settings.keys) if one is not None]
    reloader = Reloader(followed, lambda: _reload(reread(), variables), lambda loaded: services.adopt(loaded), event)
    loaded = _load(settings, variables)
    rules, windows = loaded.rules, loaded.windows
    cache = Cache(settings.redis, settings.secret, settings.upstream, settings.probe_after, event)
    upstream = make_upstream(settings, None, settings.api_key, event)
    listing, models = ModelsListing(upstream), LoadedModels(upstream)
    limit = settings.context_total_token_limit
    keys = KeyChecks(upstream.server)
    keys.use_rows(rules.key_checks)
    knowledge = Knowledge(limit, windows, rules.families.at(upstream.server), cache, listing, loaded=models, keys=keys)
    extra_calls = ExtraCalls(
        settings.extra_calls_budget // settings.workers,
        settings.extra_calls_keyless,
        event,
        cache.accepted,
        settings.extra_calls_budget,
        cache.spending,
    )
    clients = {kind: _internal_client(settings, want, upstream, extra_calls) for kind, want in want_kinds().items()}
    providers = {
        kind: want.create(Parts(settings, rules, knowledge, cache, clients[kind]))
        for kind, want in want_kinds().items()
    }
    services = Services(
        first=settings,
        settings=settings,
        rules=rules,
        windows=windows,
        cache=cache,
        upstream=upstream,
        extra_calls=extra_calls,
        clients=clients,
        knowledge=knowledge,
        providers=providers,
        budget=Budget(settings.max_memory or derived(memory_limit(read_text), settings.workers), settings.workers),
        reloader=reloader,
        traces=make_traces(settings, rules.upstreams, event),
        recorder=make_recorder(settings, rules.families, event, lambda model: table_name(services.windows, model)),
    )
    services.begin(loaded, folder, tell or make_access_log(settings.log))
    return services


def _load(settings: Settings, variables: Callable[[], Mapping[str, str]] | None) -> Loaded:
    """The rules that settings name, with the keys that they name. Raises `ConfigError`."""
    defaults, overrides = step_settings.defaults(settings), step_settings.overrides(settings)
    rules = load_rules(settings.rules, default=settings.ladder, defaults=defaults, overrides=overrides)
    keys = None if variables is None else variables()
    senders = make_senders(settings, routing(rules.upstreams).routes, keys, event)
    callers = make_callers(rules.callers, settings, variables is not None)
    return Loaded(settings, rules, load_windows(rules.windows), senders, callers)


def _reload(settings: Settings, variables: Callable[[], Mapping[str, str]] | None) -> Loaded:
    """As `_load`, with what takes seconds to import: no request waits for it."""
    loaded = _load(settings, variables)
    for sender in loaded.senders.values():
        if isinstance(sender, LiteLLM):
            sender.load()
    return loaded


def _internal_client(settings: Settings, want: WantKind, upstream: Upstream, extra_calls: ExtraCalls) -> InternalClient:
    """The client for calls of our own: to the clients' upstream, or where the settings give a URL or a key, to that."""
    url, key = want.upstream(settings)
    queue, dedicated = FairQueue(*want.limits), (url, key) != (None, None)
    called = make_upstream(settings, url, key, event) if dedicated else upstream
    return InternalClient(called, want.kind, extra_calls, queue, dedicated)
