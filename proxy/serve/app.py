"""The web surface: routes to the fitted endpoint, admin routes, everything else passed through; it decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.routing import Mount, Route, Router

from proxy.config.rules import Rules, load_rules
from proxy.config.settings import Settings
from proxy.config.windows import Windows, load_windows
from proxy.serve.asking import Asking
from proxy.serve.cache import Cache
from proxy.serve.client import Receive, Scope, Send
from proxy.serve.embeddings import Embeddings
from proxy.serve.gateway import Gateway
from proxy.serve.inspecting import Inspecting
from proxy.serve.knowledge import Knowledge
from proxy.serve.listing import Listing
from proxy.serve.log import make_log
from proxy.serve.looking import Looking
from proxy.serve.measuring import Measuring
from proxy.serve.metrics import CONTENT_TYPE, Metrics, model_label
from proxy.serve.planning import Planner
from proxy.serve.pool import Timeouts
from proxy.serve.summaries import Summaries
from proxy.serve.totals import Totals
from proxy.serve.upstream import Upstream
from proxy.tokens.encodings import encoding
from proxy.types import Outcome
from proxy.wire.endpoints import chat

FIRST_ENCODING = "o200k_base"  # the one of nearly all models
SECOND_ENCODING = "cl100k_base"  # loaded beside the first requests: nobody need wait for it, and it may be needed soon
TEXT = b"text/plain"
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(slots=True)
class House:
    """Everything that one process serves with, joined once at its start."""

    settings: Settings
    rules: Rules
    windows: Windows
    cache: Cache
    upstream: Upstream
    metrics: Metrics
    gateway: Gateway
    inspecting: Inspecting
    ready: bool = False

    async def open(self) -> None:
        """Loads what requests need, so that the first one does not wait for it."""
        await self.cache.start()
        encoding(FIRST_ENCODING)
        asyncio.get_running_loop().run_in_executor(None, encoding, SECOND_ENCODING)
        self.ready = True

    async def close(self) -> None:
        """Ends what it began."""
        self.ready = False
        await self.gateway.close()
        await self.gateway.planner.close()
        await self.gateway.planner.knowledge.close()
        await self.cache.close()
        await self.upstream.close()


def build(settings: Settings, tell: Callable[[Outcome], None] | None = None) -> House:
    """Joins the house from its settings. Raises `ConfigError` for wrong settings and rules."""
    rules = load_rules(settings.rules, default=settings.ladder, given=_given(settings), imposed=_budgets(settings))
    windows = load_windows(rules.windows)
    cache = Cache(settings.redis, settings.secret, settings.upstream)
    timeouts = Timeouts(settings.connect_timeout, settings.read_timeout)
    upstream = Upstream(settings.upstream, timeouts, settings.api_key)
    knowledge = Knowledge(settings.context_total_token_limit, windows, cache, Listing(upstream))
    asked = _asking(settings, upstream, settings.summary_upstream, settings.summary_api_key)
    summaries = Summaries(knowledge, cache.contents, asked, rules.summary, settings.summary_timeout)
    asked = _asking(settings, upstream, settings.embeddings_upstream, settings.embeddings_api_key)
    embeddings = Embeddings(asked, settings.embeddings_timeout)
    measuring = Measuring(knowledge, Totals(knowledge), summaries, embeddings, settings.max_body)
    planner = Planner(rules, knowledge, measuring, settings.ladder)
    metrics = Metrics(partial(model_label, windows), cache)
    gateway = Gateway(settings, planner, upstream, Looking(rules.refusals), metrics, tell or make_log(settings.log))
    return House(settings, rules, windows, cache, upstream, metrics, gateway, Inspecting(settings, planner))


def _given(settings: Settings) -> dict[str, dict[str, Any]]:
    """The parameters of steps that stand in the settings."""
    given: dict[str, dict[str, Any]] = {}
    if settings.fallback_models:
        given["switch_model"] = {"to": settings.fallback_models}
    if settings.summary_model:
        given["summarise_history"] = {"model": settings.summary_model}
    if settings.embeddings_model:
        given["prune_history"] = given["recall"] = {"embeddings": settings.embeddings_model}
    return given


def _budgets(settings: Settings) -> dict[str, dict[str, int]]:
    """The environment's budgets, which stand above those of ladders that have any."""
    recent, recalled = settings.context_recent_history_token_budget, settings.context_rag_token_budget
    total = settings.context_total_token_limit
    return {
        "prune_history": {} if recent is None else {"budget": recent},
        "recall": ({} if recalled is None else {"budget": recalled}) | ({} if total is None else {"total": total}),
    }


def _asking(settings: Settings, upstream: Upstream, url: str | None, key: str | None) -> Asking:
    """Who is asked for summaries or embeddings: the clients' own upstream; or where there is a URL or a key, those."""
    if url is None and key is None:
        return Asking(upstream)
    timeouts = Timeouts(settings.connect_timeout, settings.read_timeout)
    return Asking(Upstream(url or settings.upstream, timeouts, key), foreign=True)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted path: POST to its handler; other methods (stored completions) and odd spellings pass through."""

    path: bytes
    handler: Asgi
    other: Asgi

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exact = scope["method"] == "POST" and scope.get("raw_path", b"").partition(b"?")[0] == self.path
        await (self.handler if exact else self.other)(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Plain:
    """An admin route: answers with what a function of the server's state says: a status, a type and a body."""

    answer: Callable[[Mapping[str, Any]], tuple[int, bytes, bytes]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, kind, body = self.answer(scope.get("state", {}))
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


@dataclass(frozen=True, slots=True)
class Asked:
    """A handler as Starlette knows an ASGI application from a function of a request: an object that is called."""

    handler: Asgi

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.handler(scope, receive, send)


def admin_routes(house: House) -> list[Route]:
    """What operators and people ask of the proxy itself."""

    def ready(state: Mapping[str, Any]) -> tuple[int, bytes, bytes]:
        """Encodings are loaded, and nobody told us to stop; never a question to Redis or the upstream."""
        serves = house.ready and not state.get("draining")
        return (200, TEXT, b"ready\n") if serves else (503, TEXT, b"not ready\n")

    return [
        Route("/metrics", Plain(lambda state: (200, CONTENT_TYPE, house.metrics.exposition()))),
        Route("/healthz", Plain(lambda state: (200, TEXT, b"alive\n"))),
        Route("/readyz", Plain(ready)),
        Route("/inspect" + chat.PATH, house.inspecting, methods=["POST"]),
    ]


@dataclass(frozen=True, slots=True)
class Front:
    """The routes, and before them the one that nearly every request takes: to be matched costs more than to be passed
    through (measured: 12 us)."""

    path: bytes
    handler: Asgi
    router: Router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("plimsoll.target") == self.path and scope["method"] == "POST":
            await self.handler(scope, receive, send)
        else:
            await self.router(scope, receive, send)


def create_app(house: House) -> Front:
    """The data port: the fitted endpoint, everything else passed through; the admin routes unless they have their own
    port. Routes alone: what an application of Starlette's puts before them costs more than they do."""
    through = house.gateway.other
    routes: list[Route | Mount] = [
        Route(path, Fitted(path.encode(), house.gateway.chat, through)) for path in (chat.PATH, chat.BARE_PATH)
    ]
    if house.settings.admin_port is None:
        routes += admin_routes(house)
    routes.append(Mount("/", Asked(through)))
    router = Router(routes, redirect_slashes=False, default=through, lifespan=_lifespan(house))
    return Front(chat.PATH.encode(), house.gateway.chat, router)


def create_admin(house: House) -> Router:
    """The admin port, where it has one of its own."""
    return Router(admin_routes(house), redirect_slashes=False)


def _lifespan(house: House) -> Callable[[Router], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(app: Router) -> AsyncIterator[None]:
        await house.open()
        try:
            yield
        finally:
            await house.close()

    return lifespan
