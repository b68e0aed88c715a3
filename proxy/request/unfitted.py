"""Every path that is not fitted: lists of models of several upstreams, and everything that is passed through."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from proxy.apis import by_path, error_body
from proxy.apis.paths import only_counts, shown
from proxy.config.settings import Settings
from proxy.errors import ClientError, websocket_refused
from proxy.http.receiving import Receive, Scope, cycle_of, target_of
from proxy.http.relay import Send, send_error
from proxy.http.server.cycle import CLOSE
from proxy.model.caller_rule import CallerRule
from proxy.model.outcome import PASSTHROUGH, Outcome
from proxy.model.plan import Mode
from proxy.model.structs import replace
from proxy.observe import log
from proxy.observe.metrics.exposition import Metrics
from proxy.request.allowed_models import allowed, check_entry, is_list, send_allowed
from proxy.request.backend import Backend
from proxy.request.callers import Callers, is_disguised, not_allowed, with_upstream
from proxy.request.holds import not_counted
from proxy.request.models import ModelsList
from proxy.request.passthrough import passthrough
from proxy.request.reporting import Reporter
from proxy.request.routes import Router
from proxy.request.tracing import Begin, untraced
from proxy.request.web_pages import WebPages
from proxy.upstreams.routing import is_plain
from proxy.wire.controls import controls
from proxy.wire.paths import one_path

UPGRADE_REQUIRED = 426
MAX_NAMED = 100  # paths that are logged as not fitted, each once; clients choose them


def is_free(target: bytes) -> bool:
    """Whether what a path calls only counts a prompt, however an upstream reads that path."""
    return only_counts(target) and is_plain(target.partition(b"?")[0].decode("latin-1"))


@dataclass(slots=True)
class Unfitted:
    """Serves requests that are not fitted."""

    settings: Settings
    routes: Router
    models: ModelsList
    metrics: Metrics
    reporter: Reporter
    pages: WebPages = field(default_factory=WebPages)
    begin_trace: Begin = untraced
    callers: Callers | None = None
    _named: set[str] = field(default_factory=set)

    def with_rules(self, routes: Router, models: ModelsList, reporter: Reporter, callers: Callers | None) -> Unfitted:
        """The same for further requests under other rules."""
        return replace(self, routes=routes, models=models, reporter=reporter, callers=callers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        self.metrics.in_flight.inc()
        trace, scope["headers"] = self.begin_trace(scope["method"], scope["headers"])
        headers, named = scope["headers"], ""

        def passed(outcome: Outcome) -> None:
            self.reporter.passed(headers, replace(outcome, caller=named) if named else outcome)

        seconds, rate = self.settings.body_timeout, self.settings.min_rate
        try:
            self.pages.check(scope, self.routes.default.upstream.has_key)
            rule = None if self.callers is None else self.callers.of(scope)
            named = "" if rule is None else rule.name
            if await self._listed(scope, send, rule, passed):
                return
            self._check_handshake(scope, rule)
            self.log_unfitted(scope["method"], target_of(scope))
            cycle = cycle_of(scope)
            reads = scope["method"] in ("GET", "HEAD") and not (cycle is not None and cycle.is_handshake)
            backend = await self._backend(scope, rule, reads)

            def done(outcome: Outcome) -> None:
                passed(replace(outcome, upstream=backend.name))

            await passthrough(scope, receive, send, backend.upstream, done, seconds, rate, trace)
        except ClientError as error:
            passed(Outcome(PASSTHROUGH, "rejected", error.status, path=shown(target_of(scope))))
            extra = (CLOSE, (b"upgrade", b"HTTP/1.1")) if error.status == UPGRADE_REQUIRED else ()
            await send_error(send, error, error_body(scope["path"], error), extra)
        finally:
            self.metrics.in_flight.dec()

    async def _listed(
        self, scope: Scope, send: Send, rule: CallerRule | None, passed: Callable[[Outcome], None]
    ) -> bool:
        """Answers a request for a list of models that is made here: one of several upstreams, or one of which the
        caller may see a part. Raises `ClientError`."""
        merged = self.models.serves(scope) and (rule is None or rule.upstream is None)
        if rule is None or rule.models is None:
            if merged:
                passed(await self.models(scope, send))
            return merged
        check_entry(scope, rule)
        if merged:
            passed(await self.models(scope, send, partial(allowed, rule=rule)))
        elif is_list(scope):
            backend = await self._backend(scope, rule, reads=True)
            outcome = await send_allowed(scope, send, backend.upstream, scope["headers"], rule)
            passed(replace(outcome, upstream=backend.name))
        return merged or is_list(scope)

    async def _backend(self, scope: Scope, rule: CallerRule | None, reads: bool) -> Backend:
        """The upstream of a request under the rule of its caller. Raises `ClientError`."""
        target, headers = target_of(scope), scope["headers"]
        if rule is None:
            return await self.routes.other(headers, target, reads=reads)
        if not reads and rule.budget is not None and rule.budget.enforced and not is_free(target):
            raise not_counted(rule)
        if not reads and (not rule.allows("") or is_disguised(target)):  # what its body names is not read
            raise not_allowed(rule)
        by = rule.name if rule.upstream else ""
        return await self.routes.other(with_upstream(headers, rule), target, reads=reads, caller=by)

    def _check_handshake(self, scope: Scope, rule: CallerRule | None) -> None:
        """Raises `ClientError` for a WebSocket past the fitted requests of a path. Codex then speaks HTTP."""
        cycle = cycle_of(scope)
        path = one_path(target_of(scope).partition(b"?")[0])
        if cycle is None or not cycle.is_handshake or path.decode("latin-1") not in by_path():
            return
        asked = controls(scope["headers"]).mode or self.settings.mode
        if ((None if rule is None else rule.mode) or asked) is not Mode.OFF:
            raise websocket_refused()

    def log_unfitted(self, method: str, target: bytes) -> None:
        """Logs an endpoint that is passed through, once."""
        name = f"{method} {shown(target)}"
        if name not in self._named and len(self._named) < MAX_NAMED:
            self._named.add(name)
            log.event("not fitted: requests pass through as they are, unmeasured", endpoint=name)

    @property
    def unfitted(self) -> Iterable[str]:
        """The endpoints that were logged as not fitted."""
        return tuple(self._named)
