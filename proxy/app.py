"""The ASGI applications: routes of the fitted paths and of the proxy's own, and the services behind them."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.routing import Router

from proxy import __version__
from proxy.admin.guard import Guard
from proxy.admin.local import Local
from proxy.admin.page import Page
from proxy.admin.peers import Peers
from proxy.apis import apis, by_path, error_body
from proxy.apis.deployed import PATHS as DEPLOYED
from proxy.apis.deployed import deployed
from proxy.cache.cache import Cache
from proxy.config.model_table import litellm_version
from proxy.config.reload import Reloader
from proxy.config.rules import Rules, load_rules
from proxy.config.settings import SETTINGS, Settings
from proxy.config.upstreams import DEFAULT
from proxy.config.windows import Windows, load_windows
from proxy.errors import not_found, wrong_method
from proxy.fit.alternation import NAME as ALTERNATION
from proxy.fit.pieces import NAME as SPLIT
from proxy.http.client.egress import Egress
from proxy.http.client.pool import Timeouts
from proxy.http.memory_budget import Budget, derived, memory_limit, read_text
from proxy.http.relay import Receive, Scope, Send, send_error
from proxy.model.api import Api
from proxy.model.outcome import Outcome
from proxy.observe.aggregation import Known
from proxy.observe.gen_ai import GenAi
from proxy.observe.log import event, make_access_log
from proxy.observe.metrics import Metrics, model_label
from proxy.observe.read_metrics import BuildFacts
from proxy.observe.recent import Recent
from proxy.observe.recording import Recorder
from proxy.observe.spans import upstream_server
from proxy.request.answers import AnswerLearning
from proxy.request.backends import Builder, Dropped
from proxy.request.backends import close as close_routes
from proxy.request.facts import Knowledge
from proxy.request.gateway import Gateway
from proxy.request.heal import Healer
from proxy.request.inspect import Inspecting
from proxy.request.model_records import Learning, is_loopback
from proxy.request.models import ModelsList
from proxy.request.passthrough import ALLOWED
from proxy.request.planning import PlanBuilder
from proxy.request.prefix_cache import PrefixCache
from proxy.request.prepare import Planner
from proxy.request.recorders import make_recorder
from proxy.request.refusal_detection import RefusalDetector
from proxy.request.routes import Backend, Routes
from proxy.request.scanning import BodyScanner
from proxy.request.shown import Keeping
from proxy.request.totals import SharedCounts, TotalCounter, Totals
from proxy.request.traces import Traces, make_traces
from proxy.request.wants import Parts, Provider, WantKind, want_kinds
from proxy.request.work import Background, Pool, request_pool
from proxy.tokens.encodings import encoding
from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.fair_queue import FairQueue
from proxy.upstreams.internal_client import InternalClient
from proxy.upstreams.litellm import LiteLLM
from proxy.upstreams.loaded_models import LoadedModels
from proxy.upstreams.models_listing import ModelsListing
from proxy.upstreams.routing import routing
from proxy.upstreams.senders import make_senders
from proxy.upstreams.upstream import Sender, Upstream
from proxy.wire.paths import deployment_of, one_path

FIRST_ENCODING = "o200k_base"  # the one of nearly all models
SECOND_ENCODING = "cl100k_base"  # loaded in the background after the start
TEXT = b"text/plain"
INSPECT = "/inspect"
LEARNED, FORGET = "/learned", "/forget"
OWN = frozenset(("/metrics", "/healthz", "/readyz", LEARNED, FORGET))
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


class Loaded(NamedTuple):
    """What is read from files: it follows them while the process serves."""

    settings: Settings
    rules: Rules
    windows: Windows
    senders: Mapping[str, Sender] = MappingProxyType({})


@dataclass(slots=True)
class Services:
    """Everything that one process serves with, created once at its start. `adopt` replaces what follows from files."""

    settings: Settings
    rules: Rules
    windows: Windows
    cache: Cache
    upstream: Upstream
    metrics: Metrics
    budget: Budget
    knowledge: Knowledge
    clients: Mapping[str, InternalClient]
    providers: Mapping[str, Provider]
    pool: Pool
    background: Background
    extra_calls: ExtraCalls
    gateway: Gateway
    inspecting: Inspecting
    reloader: Reloader[Loaded]
    traces: Traces | None = None
    routes: Routes | None = None
    recorder: Recorder | None = None
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
        if self.routes is not None:
            await close_routes(self.routes)
        await self.dropped.close()
        await self.knowledge.close()
        await self.cache.close()
        await self.upstream.close()

    def adopt(self, loaded: Loaded) -> None:
        """Serves further requests with these rules and keys. A request in progress keeps the rules that it began with:
        it belongs to the gateway of that time. If anything raises, the old rules stay."""
        settings, rules, windows, senders = loaded
        fixed = self.gateway.settings
        knowledge = self.knowledge.with_rules(windows, rules.families)
        providers = {kind: provider.with_rules(rules, knowledge) for kind, provider in self.providers.items()}
        planner = _planner(fixed, rules, knowledge, self.cache, providers, self.pool, self.background)
        healer, learning = Healer(knowledge, planner.plans, self.pool), AnswerLearning(knowledge, self.cache)
        default = Backend(DEFAULT, self.upstream, knowledge, planner, healer, learning)
        routes = Builder(fixed, rules, senders, default, self.extra_calls, self.routes).routes()
        models = ModelsList(default, rules.ladders[fixed.ladder], routes, fixed.models_windows)
        refusals, labels = RefusalDetector(rules.refusals), _known_labels(rules)
        providers_named = _provider_names(fixed, rules)
        self.dropped.add(self.routes, routes)
        self._adopt_keys(settings)
        self.settings, self.rules, self.windows = settings, rules, windows
        self.knowledge, self.providers, self.routes = knowledge, providers, routes
        billed = _billed(self.extra_calls, self.upstream, self.clients, routes)
        self.gateway = self.gateway.with_rules(planner, healer, learning, refusals, billed, routes, models)
        self.inspecting = Inspecting(fixed, planner, knowledge, self.cache, self.budget, routes)
        self.metrics.use_rules(partial(model_label, windows), labels, windows.prices, providers_named)
        if self.traces is not None:
            self.traces.use_upstreams(rules.upstreams)

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
    reloader = Reloader(followed, lambda: _load(reread(), variables), lambda loaded: services.adopt(loaded), event)
    _, rules, windows, senders = _load(settings, variables)
    cache = Cache(settings.redis, settings.secret, settings.upstream, settings.probe_after, event)
    timeouts = Timeouts(settings.connect_timeout, settings.read_timeout)
    upstream = Upstream(
        settings.upstream,
        timeouts,
        settings.api_key,
        egress=_egress(settings),
        connections=settings.max_connections,
        event=event,
    )
    listing, loaded = ModelsListing(upstream), LoadedModels(upstream)
    limit = settings.context_total_token_limit
    knowledge = Knowledge(limit, windows, rules.families, cache, listing, loaded=loaded)
    extra_calls = ExtraCalls(settings.extra_calls_budget // settings.workers, settings.extra_calls_keyless, event)
    clients = {kind: _internal_client(settings, want, upstream, extra_calls) for kind, want in want_kinds().items()}
    providers = {
        kind: want.create(Parts(settings, rules, knowledge, cache, clients[kind]))
        for kind, want in want_kinds().items()
    }
    pool, background = request_pool(), Background()
    planner = _planner(settings, rules, knowledge, cache, providers, pool, background)
    traces = make_traces(settings, rules.upstreams, event)
    budget = Budget(settings.max_memory or derived(memory_limit(read_text), settings.workers), settings.workers)
    exporter = None if traces is None else traces.exporter
    recorder = make_recorder(settings, rules.families, event)
    recent = None if settings.admin_port is None else Recent()
    metrics = Metrics(
        partial(model_label, windows),
        cache,
        extra_calls,
        budget,
        folder,
        reloader,
        [api.name for api in apis()],
        _known_labels(rules),
        exporter,
        windows.prices,
        BuildFacts(__version__, platform.python_version(), litellm_version(), windows.newest_at),
        settings.caller_header is not None,
        GenAi(_provider_names(settings, rules)) if settings.gen_ai_metrics else None,
        recorder,
    )
    tell = tell or make_access_log(settings.log)
    healer, learning = Healer(knowledge, planner.plans, pool), AnswerLearning(knowledge, cache)
    default = Backend(DEFAULT, upstream, knowledge, planner, healer, learning)
    routes = Builder(settings, rules, senders, default, extra_calls).routes()
    gateway = Gateway(
        settings,
        planner,
        healer,
        learning,
        knowledge,
        upstream,
        RefusalDetector(rules.refusals),
        metrics,
        budget,
        tell if exporter is None else _both(tell, exporter),
        _billed(extra_calls, upstream, clients, routes),
        None if traces is None else traces.tracer,
        routes,
        ModelsList(default, rules.ladders[settings.ladder], routes, settings.models_windows),
        recorder,
        recent,
        None if recent is None else Keeping(settings.page_content),
    )
    services = Services(
        settings,
        rules,
        windows,
        cache,
        upstream,
        metrics,
        budget,
        knowledge,
        clients,
        providers,
        pool,
        background,
        extra_calls,
        gateway,
        Inspecting(settings, planner, knowledge, cache, budget, routes),
        reloader,
        traces,
        routes,
        recorder,
    )
    if recent is not None:
        services.page = Page(services, recent, Peers(Local(services, recent), folder), settings.workers)
    return services


def _load(settings: Settings, variables: Callable[[], Mapping[str, str]] | None) -> Loaded:
    """The rules that settings name, with the keys that they name. Raises `ConfigError`."""
    rules = load_rules(
        settings.rules, default=settings.ladder, defaults=_defaults(settings), overrides=_budgets(settings)
    )
    keys = None if variables is None else variables()
    senders = make_senders(settings, routing(rules.upstreams).routes, keys, event)
    return Loaded(settings, rules, load_windows(rules.windows), senders)


def _billed(
    extra_calls: ExtraCalls, upstream: Upstream, clients: Mapping[str, InternalClient], routes: Routes | None
) -> ExtraCalls | None:
    """The extra calls, if the operator may be billed for what callers cause."""
    billed = upstream.has_key or any(client.dedicated for client in clients.values()) or routes is not None
    return extra_calls if billed else None


def _planner(
    settings: Settings,
    rules: Rules,
    knowledge: Knowledge,
    cache: Cache,
    providers: Mapping[str, Provider],
    pool: Pool,
    background: Background,
) -> Planner:
    prefixes, counts = PrefixCache(), SharedCounts(cache)
    scanner = BodyScanner(settings.max_body, prefixes, pool)
    totals = TotalCounter(knowledge, counts, Totals(knowledge), prefixes, pool)
    plans = PlanBuilder(knowledge, counts, providers, pool)
    return Planner(rules, knowledge, scanner, totals, plans, background, settings.ladder)


def _provider_names(settings: Settings, rules: Rules) -> dict[str, str]:
    """OpenTelemetry's names of the providers behind the upstreams."""
    default = upstream_server(settings.upstream).provider
    named = {row.name: upstream_server(row.url).provider if row.url else row.provider for row in rules.upstreams}
    return {"": default, DEFAULT: default, **named}


def _known_labels(rules: Rules) -> Known:
    """Values of the labels of metrics that the rules decide: steps, and rules of refusals."""
    steps = {ladder_step.step for ladder in rules.ladders.values() for ladder_step in ladder.steps}
    refusals = [(rule.name, healed) for rule in rules.refusals.refusals for healed in ("true", "false")]
    return {("step",): [(step,) for step in sorted({*steps, ALTERNATION, SPLIT})], ("rule", "healed"): refusals}


def _defaults(settings: Settings) -> dict[str, dict[str, Any]]:
    """The parameters of steps that come from the settings."""
    given: dict[str, dict[str, Any]] = {}
    if settings.fallback_models:
        given["switch_model"] = {"to": settings.fallback_models}
    if settings.summary_model:
        given["summarise_history"] = {"model": settings.summary_model}
    if settings.embeddings_model:
        given["prune_history"] = given["recall"] = {"embeddings": settings.embeddings_model}
    return given


def _budgets(settings: Settings) -> dict[str, dict[str, int]]:
    """The budgets of the environment, which override those of ladders."""
    recent, recalled = settings.context_recent_history_token_budget, settings.context_rag_token_budget
    total = settings.context_total_token_limit
    return {
        "prune_history": {} if recent is None else {"budget": recent},
        "recall": ({} if recalled is None else {"budget": recalled}) | ({} if total is None else {"total": total}),
    }


def _internal_client(settings: Settings, want: WantKind, upstream: Upstream, extra_calls: ExtraCalls) -> InternalClient:
    """The client for calls of our own: to the clients' upstream, or where the settings give a URL or a key, to that."""
    url, key = want.upstream(settings)
    if url is None and key is None:
        return InternalClient(upstream, want.kind, extra_calls, FairQueue(*want.limits))
    timeouts = Timeouts(settings.connect_timeout, settings.read_timeout)
    other = Upstream(
        url or settings.upstream,
        timeouts,
        key,
        egress=_egress(settings, url),
        connections=settings.max_connections,
        event=event,
    )
    return InternalClient(other, want.kind, extra_calls, FairQueue(*want.limits), dedicated=True)


def _egress(settings: Settings, url: str | None = None) -> Egress:
    """Proxies and certificates for the upstream, or for another one at `url`, which gets no client certificate."""
    s, foreign = settings, url not in (None, settings.upstream)
    ours = (None, None) if foreign else (s.upstream_cert, s.upstream_key)
    return Egress(s.https_proxy, s.http_proxy, s.no_proxy, s.upstream_ca, *ours)


def _both(*observers: Callable[[Outcome], None]) -> Callable[[Outcome], None]:
    def tell(outcome: Outcome) -> None:
        for observer in observers:
            observer(outcome)

    return tell


@dataclass(frozen=True, slots=True)
class Own:
    """A path of the proxy's own: its handler and its methods. Any other method gets a 405."""

    handler: Asgi
    methods: tuple[str, ...] = ("GET", "HEAD")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in self.methods:
            await self.handler(scope, receive, send)
        else:
            allowed = ", ".join(self.methods)
            error = wrong_method(allowed)
            await send_error(send, error, error_body(scope["path"], error), [(b"allow", allowed.encode())])


@dataclass(frozen=True, slots=True)
class Plain:
    """Answers with the status, content type and body that a function returns for the server's state."""

    answer: Callable[[Mapping[str, Any]], tuple[int, bytes, bytes]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, kind, body = self.answer(scope.get("state", {}))
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def not_found_here(scope: Scope, receive: Receive, send: Send) -> None:
    """404, for an unknown path of the proxy's own."""
    await send_error(send, not_found(), error_body(scope["path"], not_found()))


async def server_options(scope: Scope, receive: Receive, send: Send) -> None:
    """The answer to `OPTIONS *`, which addresses the server as a whole (RFC 9110, 9.3.7)."""
    headers = [*ALLOWED, (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def own_paths(services: Services) -> dict[str, Asgi]:
    """The handlers of the proxy's own paths."""

    def ready(state: Mapping[str, Any]) -> tuple[int, bytes, bytes]:
        """200 if encodings are loaded and the server is not draining; it never calls Redis or the upstream."""
        serves = services.ready and not state.get("draining")
        return (200, TEXT, b"ready\n") if serves else (503, TEXT, b"not ready\n")

    async def scrape(scope: Scope, receive: Receive, send: Send) -> None:
        accept = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
        kind, body = services.metrics.scrape(accept)
        await Plain(lambda state: (200, kind, body))(scope, receive, send)

    def inspecting(api: Api, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return services.inspecting(api, scope, receive, send)

    def learned(forgets: bool, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        settings, families = services.gateway.settings, services.rules.families
        backends = () if services.routes is None else services.routes.backends.values()
        others = {backend.name: backend.knowledge.cache for backend in backends if backend.row is not None}
        return Learning(settings, families, services.cache, services.budget, forgets, others)(scope, receive, send)

    return {
        "/metrics": Own(scrape),
        "/healthz": Own(Plain(lambda state: (200, TEXT, b"alive\n"))),
        "/readyz": Own(Plain(ready)),
        **{INSPECT + api.paths[0]: Own(partial(inspecting, api), ("POST",)) for api in apis()},
        LEARNED: Own(partial(learned, False)),
        FORGET: Own(partial(learned, True), ("POST",)),
    }


def is_own(path: str) -> bool:
    """Whether a path is the proxy's own: it is never passed to the upstream, even if it does not exist."""
    return path in OWN or path == INSPECT or path.startswith(INSPECT + "/")


@dataclass(frozen=True, slots=True)
class Front:
    """Routes each request to its handler; the fitted paths are looked up first.

    `fitted` has the handler of each fitted path, for POST only: other methods are about stored completions. `own` has
    the handlers of the proxy's own paths on this port, `deployed` serves paths of deployments. `through` gets all other
    requests. Doubled and trailing slashes do not change a path.
    """

    fitted: Mapping[bytes, Asgi]
    own: Mapping[str, Asgi]
    through: Asgi
    lifespan: Asgi
    deployed: Callable[[Api, str, Scope, Receive, Send], Awaitable[None]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.lifespan(scope, receive, send)
        elif (handler := self.fitted.get(scope.get("plimsoll.target", b""))) is not None and scope["method"] == "POST":
            await handler(scope, receive, send)
        else:
            await self.handler(scope)(scope, receive, send)

    def handler(self, scope: Scope) -> Asgi:
        """The handler of a request. Any spelling of one of the proxy's own paths is recognised; a fitted path must be
        spelled as the upstream reads it."""
        if scope["path"] == "*" and scope["method"] == "OPTIONS":
            return server_options
        path = posixpath.normpath("/" + scope["path"].lstrip("/"))
        if is_own(path):
            return self.own.get(path, not_found_here)
        raw = one_path(scope.get("raw_path", b"").partition(b"?")[0])
        if scope["method"] != "POST":
            return self.through
        return self.fitted.get(raw) or self._deployment(raw) or self.through

    def _deployment(self, path: bytes) -> Asgi | None:
        """The handler of the path of a deployment; None for any other path."""
        found = deployment_of(path)
        if found is None or self.deployed is None or (rest := found[1].decode("latin-1")) not in DEPLOYED:
            return None
        return partial(self.deployed, by_path()[rest], found[0])


def create_app(services: Services) -> Front:
    """The application of the data port: fitted paths, everything else passed through, and the proxy's own paths unless
    there is an admin port."""

    def fit(api: Api, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return services.gateway.fit(api, scope, receive, send)  # the gateway of the rules that hold now

    def fit_deployed(api: Api, name: str, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        gateway = services.gateway
        model = gateway.knowledge.windows.deployed(unquote(name))
        return gateway.fit(deployed(api, model), scope, receive, send)

    def other(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return services.gateway.other(scope, receive, send)

    async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
        if services.page is not None:
            services.page.state = scope.get("state", {})
        await router(scope, receive, send)

    router = Router(lifespan=_lifespan(services))
    own: dict[str, Asgi] = {}
    if services.settings.admin_port is None:
        guard = guard_of(services.settings, services.settings.host)
        own = {path: guard.protected(handler) for path, handler in own_paths(services).items()}
    fitted: dict[bytes, Asgi] = {path.encode(): partial(fit, api) for path, api in by_path().items()}
    return Front(fitted, own, other, lifespan, fit_deployed)


def create_admin(services: Services) -> Asgi:
    """The application of the admin port: the proxy's own paths and the page, and nothing else."""
    settings, page = services.settings, services.page
    front = Front({}, own_paths(services), not_found_here if page is None else page, Router())
    return guard_of(settings, settings.admin_host or settings.host).protected(front)


def guard_of(settings: Settings, host: str) -> Guard:
    """Who may use the proxy's own paths on a port of this host."""
    return Guard(frozenset(settings.admin_names), private=not is_loopback(host))


def _lifespan(services: Services) -> Callable[[Router], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(app: Router) -> AsyncIterator[None]:
        await services.open()
        try:
            yield
        finally:
            await services.close()

    return lifespan
