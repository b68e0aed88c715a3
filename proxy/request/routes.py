"""Chooses the upstream of each request by the rows of upstreams.toml, and that of a request which was moved to a model.

Without rows there is no object of this module, and nothing here runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proxy.apis import apis
from proxy.cache.replicated import Lookup
from proxy.config.upstreams import ANY, DEFAULT, UpstreamRow
from proxy.errors import ClientError, bad_header
from proxy.http.client.answer import UpstreamError
from proxy.model.api import Api
from proxy.model.outcome import Unmoved
from proxy.model.plan import Mode
from proxy.model.structs import replace
from proxy.request.answers import AnswerLearning
from proxy.request.bugs import report_bug
from proxy.request.context import RequestContext
from proxy.request.facts import Knowledge
from proxy.request.heal import Healer
from proxy.request.prepare import SEND, Planner
from proxy.request.stages import Planned, Scanned
from proxy.request.unmoved import after_failure
from proxy.request.web_pages import WebPages, foreign_origin
from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.internal_client import ANONYMOUS, caller_of
from proxy.upstreams.key_probe import KeyProbe
from proxy.upstreams.models_listing import Headers
from proxy.upstreams.routing import Route, Routing, is_plain
from proxy.upstreams.upstream import Sender
from proxy.wire.controls import UPSTREAM
from proxy.wire.headers import value_of
from proxy.wire.paths import one_path
from proxy.wire.scan import NotUnderstood

HEADER = UPSTREAM.decode()
AVOID_S = 15.0  # how long no request is moved to an upstream that could not be connected to


@dataclass(frozen=True, slots=True)
class Backend:
    """One upstream, with what plans for it, what is known of its models and what learns from its answers. `route` is
    None for the default upstream."""

    name: str
    upstream: Sender
    knowledge: Knowledge
    planner: Planner
    healer: Healer
    learning: AnswerLearning
    route: Route | None = None

    @property
    def row(self) -> UpstreamRow | None:
        """The row of upstreams.toml."""
        return None if self.route is None else self.route.row

    def speaks(self, path: str) -> bool:
        """Whether it has the API of a path. The default upstream is asked."""
        return self.route is None or self.route.speaks(path)


@dataclass(slots=True)
class Routes:
    """The upstreams by name, and the rows that choose among them. `extra_calls` knows whose own key the default
    upstream accepted; `probe` asks it. No page of a stranger (`pages`) spends the key of a row."""

    routing: Routing
    backends: Mapping[str, Backend]
    extra_calls: ExtraCalls
    pages: WebPages = field(default_factory=WebPages)
    probe: KeyProbe | None = None
    _avoided_until: dict[str, float] = field(default_factory=dict)

    async def begin(self, context: RequestContext) -> Backend:
        """The upstream of a request that is to be sent. Raises `ClientError` as `choose`, and for a caller who may not
        use it."""
        backend = await self.choose(context)
        if backend.row is not None:
            await self._learn_of_caller(backend, context)
            if self._refuses(backend, context.received.headers):
                await self._ask_for(context.received.headers)
        self._check(backend, context.received.headers)
        return backend

    async def _learn_of_caller(self, backend: Backend, context: RequestContext) -> None:
        """Reads what other replicas know of a request's caller, together with all else that it needs of them."""
        received, scanned, knowledge = context.received, context.scanned, backend.knowledge
        caller = self.caller(received.headers)
        if caller and scanned is not None:
            tenant, api = knowledge.tenant(received.headers, scanned.model), received.api.name
            ladder = backend.planner.ladder_for(scanned.model, received.controls)
            await knowledge.refresh(scanned.model, ladder, tenant, api, received.headers, caller)
        else:
            await knowledge.cache.read(caller)

    async def learn_of_caller(self, headers: Headers) -> None:
        """Reads what other replicas know of the caller of a request that is not fitted."""
        await self.backends[DEFAULT].knowledge.cache.read(self.caller(headers))

    def caller(self, headers: Headers) -> Sequence[Lookup]:
        """`Peers.caller`."""
        cache = self.backends[DEFAULT].knowledge.cache
        if not cache.shared or not any(map(_is_lent, self.backends.values())):
            return ()
        lookup = cache.accepted.lookup(caller_of(headers))
        return () if lookup is None else (lookup,)

    async def choose(self, context: RequestContext) -> Backend:
        """The upstream of a received request: the one that it names, else by its path and its model. Raises
        `ClientError` for a name that does not exist, and for a model that its row does not serve."""
        received = context.received
        path, model = path_of(received.api), None
        if received.controls.upstream is not None:
            backend = self._named(received.controls.upstream, path)
        else:
            model = await self._model(context)
            backend = self.backends[self.routing.upstream(path, model)]
        if backend.route is not None and backend.route.serving is not None:
            if not backend.route.serves(await self._model(context) if model is None else model):
                raise not_served(backend.name)
        context.upstream = backend.name
        return backend

    async def _model(self, context: RequestContext) -> str:
        """The model that a request names; empty if it is not understood."""
        received, scanner = context.received, self.backends[DEFAULT].planner.scanner
        scanned: Scanned | None = None
        try:
            scanned = scanner.scan_now(received) or await scanner.scan(received, context.room)
        except NotUnderstood:
            return ""
        except ClientError:
            raise
        except Exception as error:
            report_bug(context.record, error)
            return ""
        if received.mode is not Mode.OFF:
            context.scanned = scanned
        return scanned.model

    def other(self, headers: Headers, target: bytes, *, reads: bool = False) -> Backend:
        """The upstream of a request that is not fitted: the one that it names, else by its path. `reads`: it can call
        no model. Raises as `begin`."""
        path = one_path(target.partition(b"?")[0]).decode("latin-1")
        named = (value_of(headers, UPSTREAM) or b"").decode("latin-1").strip()
        if named:
            backend = self._named(named, path)
        else:
            backend = self.backends[self.routing.upstream(path)]
        if backend.row is not None and not is_plain(path):
            text = f"A path that can be read in two ways goes to the upstream {DEFAULT} alone."
            raise ClientError(400, text, code="invalid_path")
        if not reads and backend.route is not None and backend.route.serving is not None:
            raise not_served(backend.name)  # what its body names is not read
        self._check(backend, headers)
        return backend

    def _named(self, name: str, path: str) -> Backend:
        backend = self.backends.get(name)
        if backend is None:
            raise bad_header(HEADER, f"must be one of {', '.join(self.backends)}")
        if not backend.speaks(path):
            raise bad_header(HEADER, f"names the upstream {name}, which does not have the API of this path")
        return backend

    def _check(self, backend: Backend, headers: Headers) -> None:
        if self._refuses(backend, headers):
            if self.pages.is_strange(headers):
                raise foreign_origin()
            raise not_permitted(backend.name)

    def _refuses(self, backend: Backend, headers: Headers) -> bool:
        """Whether a caller may not spend the key of an upstream."""
        if backend.row is None or not backend.upstream.has_key:
            return False
        if self.pages.is_strange(headers):
            return True
        if backend.row.callers == ANY:
            return False
        caller = caller_of(headers)
        return bool(self.extra_calls.caller_refusal(caller, caller != ANONYMOUS))

    def of(self, model: str, api: str) -> Knowledge:
        """`Peers.of`."""
        return self.backends[self.routing.upstream(PATHS[api], model)].knowledge

    def serving(self, home: Knowledge, model: str, api: str, headers: Headers) -> Knowledge | None:
        """`Peers.serving`: a request that names its upstream is not moved to another one, and none is moved to a model
        of another API's upstreams."""
        return None if self.denied(home, model, api, headers) else self.of(model, api)

    def denied(self, home: Knowledge, model: str, api: str, headers: Headers) -> tuple[Unmoved, str] | None:
        """`Peers.denied`."""
        if self.routing.is_foreign(PATHS[api], model):
            return Unmoved.NO_API, ""
        backend = self.backends[self.routing.upstream(PATHS[api], model)]
        if backend.knowledge is home:
            return None
        if backend.route is not None and not backend.route.serves(model):
            return Unmoved.NOT_SERVED, backend.name
        if value_of(headers, UPSTREAM):
            return Unmoved.NAMED, backend.name
        if time.monotonic() < self._avoided_until.get(backend.name, 0.0):
            return Unmoved.UNREACHED, backend.name
        if not home.offline and self._refuses(backend, headers):
            return Unmoved.CALLER, backend.name
        return None

    async def introduce(self, home: Knowledge, models: Sequence[str], api: str, headers: Headers) -> None:
        """`Peers.introduce`."""
        if home.offline:
            return
        denials = (self.denied(home, model, api, headers) for model in models)
        if any(denial is not None and denial[0] is Unmoved.CALLER for denial in denials):
            await self._ask_for(headers)

    async def _ask_for(self, headers: Headers) -> None:
        if self.probe is not None and not self.pages.is_strange(headers):
            await self.probe.ask(headers)

    def home(self, context: RequestContext) -> Backend:
        """The upstream that a request was planned for."""
        return self.backends[context.upstream or DEFAULT]

    def target(self, context: RequestContext) -> Backend:
        """The upstream that the payload goes to: another one if the request was moved to another model."""
        planned = context.planned
        if planned is None or planned.prompt is None or planned.plan is None or not context.received.may_change:
            return self.home(context)
        model = planned.plan.draft.model
        if model == planned.prompt.model:
            return self.home(context)
        return self.backends[self.routing.upstream(path_of(context.received.api), model)]

    def asked(self, context: RequestContext) -> Backend:
        """The upstream that the latest attempt went to."""
        return self.backends[context.record.upstream or context.upstream or DEFAULT]

    async def stay(self, context: RequestContext, failure: UpstreamError | None = None) -> bool:
        """After another upstream than the request's own has failed, or answered with an error: plans again without the
        models of that one. False if the request was not moved, or cannot go without. Never raises."""
        home, failed = self.home(context), self.asked(context)
        context.record.stop_waiting()
        if failed is home or context.planned is None or context.scanned is None:
            return False
        if failure is not None and failure.unconnected:  # nothing that a client sends can cause that
            self._avoided_until[failed.name] = time.monotonic() + AVOID_S
            failed.knowledge.mark_unreachable()
        try:
            again = await self._without(home, failed, context, context.planned, context.scanned)
        except Exception as error:
            report_bug(context.record, error)
            return False
        if again is None:
            return False
        context.planned, context.record.unmoved = again, after_failure(failed.name)
        return True

    async def _without(
        self, home: Backend, failed: Backend, context: RequestContext, planned: Planned, scanned: Scanned
    ) -> Planned | None:
        received, plans = context.received, home.planner.plans
        assert planned.prompt is not None and planned.facts is not None and scanned.ladder is not None
        path = path_of(received.api)
        kept = tuple(c for c in planned.facts.candidates if self.routing.upstream(path, c.model) != failed.name)
        facts = replace(planned.facts, candidates=kept)
        again = await plans.rebuild(received, scanned, planned.prompt, facts, scanned.ladder, context.record)
        assert again.plan is not None
        if not again.plan.possible and not (again.plan.changed and scanned.ladder.on_unfit == SEND):
            return None
        if not again.plan.changed:
            payload = scanned.plain if scanned.scan.seen.keyed else received.body
            return await plans.to_send(received.api, scanned, again, payload)
        return await plans.rendered(received.api, scanned, again)


def _is_lent(backend: Backend) -> bool:
    """Whether the operator's key of an upstream is for callers whose own key was accepted."""
    return backend.row is not None and backend.row.callers != ANY and backend.upstream.has_key


def path_of(api: Api) -> str:
    """The path of an API by which its requests are routed, whichever of its paths they have."""
    return api.paths[0]


PATHS = {api.name: path_of(api) for api in apis()}


def no_upstreams() -> ClientError:
    """A request names an upstream, and there is only the default one."""
    return bad_header(HEADER, f"must be {DEFAULT}: there are no others")


def not_served(name: str) -> ClientError:
    """The row of an upstream says which models it serves, and the request is for none of these."""
    return ClientError(404, f"The upstream {name} does not serve this model or path.", code="model_not_found")


def not_permitted(name: str) -> ClientError:
    """A caller may not spend the key of an upstream."""
    return ClientError(
        403,
        f"The upstream {name} is used with a key of this proxy's operator. It takes a caller whose own key the default "
        f"upstream has accepted within the last hour.",
        code="upstream_not_permitted",
    )
