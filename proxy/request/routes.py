"""Chooses the upstream of each request by the rows of upstreams.toml, and that of a request which was moved to a model.

Without rows there is `OneUpstream`, which chooses nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from proxy.apis import apis
from proxy.cache.replicated import Lookup
from proxy.config.upstreams import ANY, DEFAULT
from proxy.errors import ClientError, bad_header
from proxy.http.client.answer import UpstreamError
from proxy.model.api import Api
from proxy.model.outcome import Unmoved
from proxy.model.plan import Ladder, Mode
from proxy.request.backend import Backend
from proxy.request.bugs import report_bug
from proxy.request.compaction_requests import SEND
from proxy.request.facts import Knowledge
from proxy.request.stages import Descent, Planned, Received, Record, Scanned
from proxy.request.unmoved import after_failure
from proxy.request.web_pages import WebPages, foreign_origin
from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.internal_client import ANONYMOUS, caller_of
from proxy.upstreams.key_probe import KeyProbe
from proxy.upstreams.models_listing import Headers
from proxy.upstreams.routing import Routing, is_plain
from proxy.wire.controls import UPSTREAM
from proxy.wire.headers import value_of
from proxy.wire.paths import one_path

HEADER = UPSTREAM.decode()
AVOID_S = 15.0  # how long no request is moved to an upstream that could not be connected to


class Routed(NamedTuple):
    """The upstream of a request. `scanned`: its scan, if that was needed to choose. `error`: it may not go there."""

    home: Backend
    scanned: Scanned | None = None
    error: ClientError | None = None


class Router(Protocol):
    """Chooses the upstream of each request."""

    @property
    def default(self) -> Backend:
        """The upstream of requests that no row takes."""

    @property
    def only(self) -> Routed | None:
        """The upstream of every request, if there is only one."""

    def check_named(self, named: str | None) -> None:
        """Raises `ClientError` for an upstream that a header names, if no request can have that one."""

    async def begin(self, received: Received, record: Record, scanned: Scanned | None = None) -> Routed:
        """The upstream of a request that is to be sent, as `choose`; with an error for a caller who may not use it."""

    async def choose(self, received: Received, record: Record, scanned: Scanned | None = None) -> Routed:
        """The upstream of a received request, which may be `scanned` already: the one that it names, else by its path
        and its model; with an error for a model that its row does not serve. Raises `ClientError` for a name that does
        not exist."""

    def target(self, planned: Planned, home: Backend) -> Backend:
        """The upstream that the payload goes to: another one than `home` if it was moved to another model."""

    async def without(
        self, planned: Planned, home: Backend, failed: Backend, record: Record, failure: UpstreamError | None
    ) -> Planned | None:
        """After an upstream that a request was moved to has `failed`, or answered with an error: the request planned
        again without the models of that one. None if it was not moved, or cannot go without. Never raises."""

    async def other(self, headers: Headers, target: bytes, *, reads: bool = False, caller: str = "") -> Backend:
        """The upstream of a request that is not fitted: the one that it names, else by its path. `reads`: it can call
        no model. `caller`: whose rule names it. Raises as `begin`."""


@dataclass(frozen=True, slots=True)
class OneUpstream:
    """The only upstream gets every request."""

    default: Backend
    only: Routed = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "only", Routed(self.default))

    def check_named(self, named: str | None) -> None:
        """See `Router.check_named`."""
        if named not in (None, "", DEFAULT):
            raise no_upstreams()

    async def begin(self, received: Received, record: Record, scanned: Scanned | None = None) -> Routed:
        """See `Router.begin`."""
        return self.only

    async def choose(self, received: Received, record: Record, scanned: Scanned | None = None) -> Routed:
        """See `Router.choose`."""
        return self.only

    def target(self, planned: Planned, home: Backend) -> Backend:
        """See `Router.target`."""
        return home

    async def without(
        self, planned: Planned, home: Backend, failed: Backend, record: Record, failure: UpstreamError | None
    ) -> Planned | None:
        """See `Router.without`."""
        return None

    async def other(self, headers: Headers, target: bytes, *, reads: bool = False, caller: str = "") -> Backend:
        """See `Router.other`."""
        self.check_named((value_of(headers, UPSTREAM) or b"").decode("latin-1"))
        return self.default


@dataclass(slots=True)
class Routes:
    """The upstreams by name, and the rows that choose among them. `extra_calls` knows whose own key the default
    upstream accepted; `probe` asks it. No page of a stranger (`pages`) spends the key of a row."""

    routing: Routing
    backends: Mapping[str, Backend]
    extra_calls: ExtraCalls
    pages: WebPages = field(default_factory=WebPages)
    probe: KeyProbe | None = None
    only: None = None
    _avoided_until: dict[str, float] = field(default_factory=dict)

    @property
    def default(self) -> Backend:
        """See `Router.default`."""
        return self.backends[DEFAULT]

    def check_named(self, named: str | None) -> None:
        """See `Router.check_named`: `choose` knows the path, too."""

    async def begin(self, received: Received, record: Record, scanned: Scanned | None = None) -> Routed:
        """See `Router.begin`."""
        routed = await self.choose(received, record, scanned)
        backend, headers = routed.home, received.headers
        if routed.error is not None or backend.row is None:
            return routed
        await self._learn_of_caller(backend, received, routed.scanned)
        if self._refuses(backend, headers):
            await self._ask_for(headers)
        return routed._replace(error=self._refusal(backend, headers))

    async def _learn_of_caller(self, backend: Backend, received: Received, scanned: Scanned | None) -> None:
        """Reads what other replicas know of a request's caller, together with all else that it needs of them."""
        caller, knowledge = self.caller(received.headers), backend.knowledge
        if caller and scanned is not None:
            tenant, api = knowledge.tenant(received.headers, scanned.model), received.api.name
            ladder = backend.planner.ladder_for(scanned.model, received.controls)
            await knowledge.refresh(scanned.model, ladder, tenant, api, received.headers, caller)
        else:
            await knowledge.cache.read(caller)

    def caller(self, headers: Headers) -> Sequence[Lookup]:
        """`Peers.caller`."""
        cache = self.backends[DEFAULT].knowledge.cache
        if not cache.shared or not any(map(_is_lent, self.backends.values())):
            return ()
        lookup = cache.accepted.lookup(caller_of(headers))
        return () if lookup is None else (lookup,)

    async def choose(self, received: Received, record: Record, scanned: Scanned | None = None) -> Routed:
        """See `Router.choose`."""
        path, model, controls = path_of(received.api), None, received.controls
        if controls.upstream is not None:
            backend = self._named(controls.upstream, path, controls.sent_by)
        else:
            scanned, model = await self._scan(received, record, scanned)
            backend = self.backends[self.routing.upstream(path, model)]
        error = None
        if backend.route is not None and backend.route.serving is not None:
            if model is None:
                scanned, model = await self._scan(received, record, scanned)
            error = None if backend.route.serves(model) else not_served(backend.name)
        return Routed(backend, None if received.mode is Mode.OFF else scanned, error)

    async def _scan(self, received: Received, record: Record, known: Scanned | None) -> tuple[Scanned | None, str]:
        """The scan of a request, which may be `known`, and the model that it names; empty if it is not understood."""
        return await self.default.planner.scanner.named(received, record) if known is None else (known, known.model)

    async def other(self, headers: Headers, target: bytes, *, reads: bool = False, caller: str = "") -> Backend:
        """See `Router.other`."""
        await self.default.knowledge.cache.read(self.caller(headers))  # what other replicas know of it
        path = one_path(target.partition(b"?")[0]).decode("latin-1")
        named = (value_of(headers, UPSTREAM) or b"").decode("latin-1").strip()
        if named:
            backend = self._named(named, path, caller)
        else:
            backend = self.backends[self.routing.upstream(path)]
        if backend.row is not None and not is_plain(path):
            text = f"A path that can be read in two ways goes to the upstream {DEFAULT} alone."
            raise ClientError(400, text, code="invalid_path")
        if not reads and backend.route is not None and backend.route.serving is not None:
            raise not_served(backend.name)  # what its body names is not read
        if (error := self._refusal(backend, headers)) is not None:
            raise error
        return backend

    def _named(self, name: str, path: str, caller: str) -> Backend:
        """The upstream that a request names, or the rule of its `caller`."""
        backend = self.backends.get(name)
        if backend is None:
            raise bad_header(HEADER, f"must be one of {', '.join(self.backends)}")
        if not backend.speaks(path):
            if caller:
                raise not_spoken(caller, name)
            raise bad_header(HEADER, f"names the upstream {name}, which does not have the API of this path")
        return backend

    def _refusal(self, backend: Backend, headers: Headers) -> ClientError | None:
        """The error for a caller who may not spend the key of an upstream."""
        if not self._refuses(backend, headers):
            return None
        return foreign_origin() if self.pages.is_strange(headers) else not_permitted(backend.name)

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

    def target(self, planned: Planned, home: Backend) -> Backend:
        """See `Router.target`."""
        descent = planned.descent
        if descent is None or not planned.received.may_change or descent.plan.draft.model == descent.prompt.model:
            return home
        return self.backends[self.routing.upstream(path_of(planned.received.api), descent.plan.draft.model)]

    async def without(
        self, planned: Planned, home: Backend, failed: Backend, record: Record, failure: UpstreamError | None
    ) -> Planned | None:
        """See `Router.without`."""
        understood, descent = planned.fitted, planned.descent
        if failed is home or understood is None or descent is None:
            return None
        if failure is not None and failure.unconnected:  # nothing that a client sends can cause that
            self._avoided_until[failed.name] = time.monotonic() + AVOID_S
            failed.knowledge.mark_unreachable()
        try:
            again = await self._without(home, failed, planned, *understood, descent, record)
        except Exception as error:
            report_bug(record, error)
            return None
        if again is None:
            return None
        result, unmoved = planned.result, after_failure(failed.name)
        return replace(again, counted=planned.counted, result=result, unmoved=unmoved)

    async def _without(
        self,
        home: Backend,
        failed: Backend,
        planned: Planned,
        scanned: Scanned,
        ladder: Ladder,
        descent: Descent,
        record: Record,
    ) -> Planned | None:
        received, plans = planned.received, home.planner.plans
        path = path_of(received.api)
        kept = tuple(c for c in descent.facts.candidates if self.routing.upstream(path, c.model) != failed.name)
        facts = replace(descent.facts, candidates=kept)
        again = await plans.rebuild(received, scanned, descent.prompt, facts, ladder, record)
        if not again.plan.possible and not (again.plan.changed and ladder.on_unfit == SEND):
            return None
        if not again.plan.changed:
            return await plans.unchanged(received, scanned, again)
        return await plans.rendered(received, scanned, again)


def _is_lent(backend: Backend) -> bool:
    """Whether the operator's key of an upstream is for callers whose own key was accepted."""
    return backend.row is not None and backend.row.callers != ANY and backend.upstream.has_key


def path_of(api: Api) -> str:
    """The path of an API by which its requests are routed, whichever of its paths they have."""
    return api.path


PATHS = {api.name: path_of(api) for api in apis()}


def no_upstreams() -> ClientError:
    """A request names an upstream, and there is only the default one."""
    return bad_header(HEADER, f"must be {DEFAULT}: there are no others")


def not_spoken(caller: str, name: str) -> ClientError:
    """The rule of a caller names an upstream that does not have the API of a request."""
    text = f"The rule of the caller {caller} names the upstream {name}, which does not have the API of this path."
    return ClientError(404, text, code="not_found")


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
