"""The ASGI applications of the data port and of the admin port: which path goes to which handler."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

from starlette.routing import Router

from proxy.admin.guard import Guard
from proxy.apis import apis, by_path, error_body, named
from proxy.apis.deployed import deployed
from proxy.config.settings import Settings
from proxy.errors import not_found, wrong_method
from proxy.http.receiving import Receive, Scope
from proxy.http.relay import Send, send_error
from proxy.model.api import Api
from proxy.model.structs import replace
from proxy.request.learned_endpoint import Learning, is_loopback
from proxy.request.passthrough import ALLOWED
from proxy.services import Services
from proxy.wire.paths import one_path

TEXT = b"text/plain"
INSPECT = "/inspect"
INSPECT_HINT = "POST a request's body to /inspect and its own path, such as /inspect/v1/chat/completions."
LEARNED, FORGET = "/learned", "/forget"
OWN = frozenset(("/metrics", "/healthz", "/readyz", LEARNED, FORGET))
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


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


async def _not_found(hint: str, scope: Scope, receive: Receive, send: Send) -> None:
    """404, for an unknown path of the proxy's own."""
    error = not_found(hint)
    await send_error(send, error, error_body(scope["path"], error))


not_found_here, nothing_to_inspect = partial(_not_found, ""), partial(_not_found, INSPECT_HINT)


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
        kind, body = await services.metrics.scrape(accept)
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
        **{INSPECT + api.path: Own(partial(inspecting, api), ("POST",)) for api in apis()},
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
    the handlers of the proxy's own paths on this port, `deployed` serves paths that name the model. `through` gets all
    other requests. Doubled and trailing slashes do not change a path.
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
            inspects = bool(self.own) and path.startswith(INSPECT)  # with an admin port it is there, not here
            return self.own.get(path) or (nothing_to_inspect if inspects else not_found_here)
        raw = one_path(scope.get("raw_path", b"").partition(b"?")[0])
        if scope["method"] != "POST":
            return self.through
        return self.fitted.get(raw) or self._deployment(raw) or self.through

    def _deployment(self, path: bytes) -> Asgi | None:
        """The handler of a path that names the model; None for any other path."""
        if self.deployed is None or (found := named(path.decode("latin-1"))) is None:
            return None
        return partial(self.deployed, *found)


def create_app(services: Services) -> Front:
    """The application of the data port: fitted paths, everything else passed through, and the proxy's own paths unless
    there is an admin port."""

    def fit(api: Api, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return services.gateway.fit(api, scope, receive, send)  # the gateway of the rules that hold now

    def fit_deployed(api: Api, name: str, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        gateway = services.gateway
        model = gateway.default.knowledge.windows.deployed(unquote(name))
        return gateway.fit(deployed(api, model), scope, receive, send)

    def other(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return services.unfitted(scope, receive, send)

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
    guard = guard_of(settings, settings.admin_host or settings.host)
    return replace(guard, shut=is_shut(settings)).protected(front)


def is_shut(settings: Settings) -> bool:
    """Whether the admin port has metrics and health only: others than this machine reach it, and no token is set."""
    return settings.admin_token is None and not is_loopback(settings.admin_host or settings.host)


def guard_of(settings: Settings, host: str) -> Guard:
    """Who may use the proxy's own paths on a port of this host."""
    return Guard(frozenset(settings.admin_names), not is_loopback(host), frozenset(settings.hosts))


def _lifespan(services: Services) -> Callable[[Router], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(app: Router) -> AsyncIterator[None]:
        await services.open()
        try:
            yield
        finally:
            await services.close()

    return lifespan
