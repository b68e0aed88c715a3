"""GET /v1/models over all upstreams: each model from the upstream that its requests go to, with its window on demand.

An upstream that fails is left out. If the default upstream refuses the client, the client gets that answer alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

import msgspec

from proxy.apis import USUAL, clients_server, error_body, servers
from proxy.apis.paths import shown
from proxy.config.model_names import MAX_LENGTH
from proxy.config.models_list import distinct, entries_of, entry_for, one_list, read_list, shaped, with_window
from proxy.config.upstreams import DEFAULT
from proxy.errors import ClientError
from proxy.http.client.answer import UpstreamError
from proxy.http.receiving import Scope, target_of
from proxy.http.relay import Send
from proxy.model.outcome import PASSTHROUGH, Outcome
from proxy.model.plan import Ladder
from proxy.model.server import Entry, ModelList, Server
from proxy.observe import log
from proxy.request.backend import Backend
from proxy.request.facts import LOADED
from proxy.request.refusal_detection import plainly
from proxy.request.routes import Routes
from proxy.upstreams.models_listing import INLINE_BYTES, MAX_LIST_BYTES
from proxy.upstreams.upstream import Sender
from proxy.wire.controls import UPSTREAM
from proxy.wire.headers import Header, to_client, value_of
from proxy.wire.paths import one_path

PATHS = frozenset((b"/v1/models", b"/models"))
PAGES = (b"after_id=", b"before_id=", b"after=", b"before=")  # of a list whose beginning the client has
FETCH_S = 10.0
KEEP_S = 60.0  # how long the list of an upstream of rules is kept: it is the same for every client
REFUSED = (401, 403)
GLOB = frozenset("*?[")
LENGTH = frozenset((b"content-length",))


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, whole."""

    status: int
    body: bytes
    headers: Sequence[Header] = ((b"content-type", b"application/json"),)


NOTHING = Response(0, b"")
Seen = Callable[[Response], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Client:
    """For what a client is written: the shape of a list of models, and the path of its requests: a model belongs to the
    upstream that a request at this path with its name goes to."""

    shape: ModelList
    path: str


def _client(server: Server) -> Client:
    assert server.models is not None  # as of all that have a mark, and of the usual one
    return Client(server.models, server.asked_at)


@dataclass(slots=True)
class ModelsList:
    """Serves lists of models. `ladder` says what holds for unknown windows; `windows`: entries show the window that is
    enforced."""

    default: Backend
    ladder: Ladder
    routes: Routes | None = None
    windows: bool = False
    _lists: dict[str, tuple[float, asyncio.Task[bytes]]] = field(default_factory=dict)

    def serves(self, scope: Scope) -> bool:
        """Whether a request is for the list, but not for that of one upstream and not for a further page."""
        if scope["method"] != "GET" or (self.routes is None and not self.windows):
            return False
        path, _, query = target_of(scope).partition(b"?")
        if value_of(scope["headers"], UPSTREAM) or any(page in query for page in PAGES):
            return False
        return one_path(path) in PATHS or self._elsewhere(path) is not None

    def _elsewhere(self, path: bytes) -> str | None:
        """The model that a path names, if its requests go to another upstream than the default."""
        parent, _, name = one_path(path).rpartition(b"/models/")
        model = unquote(name.decode("latin-1"))
        if self.routes is None or parent not in (b"", b"/v1") or not 0 < len(model) <= MAX_LENGTH:
            return None
        return None if self.routes.routing.upstream(USUAL.asked_at, model) == DEFAULT else model

    async def __call__(self, scope: Scope, send: Send, seen: Seen | None = None) -> Outcome:
        """Answers one request, and returns its outcome. `seen`: the list as its caller may see it."""
        began, target, headers = time.perf_counter(), target_of(scope), scope["headers"]
        client = _client(clients_server(headers))
        model, failure = self._elsewhere(target.partition(b"?")[0]), None
        try:
            found = await (self._all(target, headers, client) if model is None else self._one(model, client))
            found = found if seen is None else await seen(found)
        except (UpstreamError, ClientError) as error:
            failure = error.for_client() if isinstance(error, UpstreamError) else error
            found = Response(failure.status, error_body(scope["path"], failure))
        await respond(send, found)
        result = "passed" if failure is None else "upstream_error" if failure.retry else "rejected"
        seconds = time.perf_counter() - began
        return Outcome(PASSTHROUGH, result, found.status, upstream_seconds=seconds, path=shown(target), attempts=1)

    async def _all(self, target: bytes, headers: Sequence[Header], client: Client) -> Response:
        """The list of all models. Raises UpstreamError if nobody has one and the default upstream fails."""
        others = asyncio.gather(*(self._list(backend, client) for backend in self._others(client)))
        failure: UpstreamError | None = None
        own = NOTHING
        try:
            own = await ask(self.default.upstream, target, readable(headers))
        except UpstreamError as error:
            failure = error
        listed = [entry for entries in await others for entry in entries]
        found = read_list(own.body) if own.status == 200 else None
        if own.status in REFUSED or (found is None and not listed):
            if failure is not None:
                raise failure
            return own
        if len(own.body) > INLINE_BYTES:
            return Response(200, await asyncio.to_thread(self._merged, found, listed, client))
        return Response(200, self._merged(found, listed, client))

    def _merged(self, found: Entry | None, listed: Iterable[Entry], client: Client) -> bytes:
        own = [self._shown(self.default, entry, client) for entry in self._served(self.default, found, client)]
        return one_list(found, distinct([*own, *listed]), client.shape)

    async def _one(self, model: str, client: Client) -> Response:
        """The entry of a model of another upstream. Raises ClientError if none lists it."""
        for backend in self._others(client):
            for entry in await self._list(backend, client):
                if entry["id"] == model:
                    return Response(200, msgspec.json.encode(entry))
        raise ClientError(404, "No upstream lists this model.", code="model_not_found")

    def _others(self, client: Client) -> list[Backend]:
        """The upstreams of rules that have the API of a client."""
        backends = () if self.routes is None else self.routes.backends.values()
        return [b for b in backends if b.route is not None and b.route.speaks(client.path)]

    async def _list(self, backend: Backend, client: Client) -> list[Entry]:
        """The models of an upstream of rules: those of its own list that it serves, those that its row names, and those
        that requests may be moved to."""
        row = backend.row
        assert row is not None
        found = read_list(await self._fetched(backend)) if servers()[row.api].models is not None else None
        assert backend.route is not None
        exact = [name for name in row.models if not GLOB & set(name) and backend.route.serves(name)]
        exact += [name for name in row.serves if not GLOB & set(name) and self._reaches(backend, name, client)]
        exact += [name for name in self.ladder.models if self._reaches(backend, name, client)]
        named = [entry_for(name, row.name, client.shape) for name in exact]
        listed = [shaped(entry, row.name, client.shape) for entry in self._served(backend, found, client)]
        return [self._shown(backend, entry, client) for entry in distinct([*listed, *named])]

    async def _fetched(self, backend: Backend) -> bytes:
        """The list of an upstream of rules; empty if it cannot be had. Requests at the same time share one."""
        until, task = self._lists.get(backend.name, (0.0, None))
        if task is None or (task.done() and (time.monotonic() >= until or not task.result())):
            task = asyncio.create_task(_body(backend))
            self._lists[backend.name] = time.monotonic() + KEEP_S, task
        return await asyncio.shield(task)

    def _served(self, backend: Backend, found: Entry | None, client: Client) -> list[Entry]:
        """The entries of an upstream's list whose requests go to it."""
        if self.routes is None:
            return entries_of(found)
        return [entry for entry in entries_of(found) if self._reaches(backend, entry["id"], client)]

    def _reaches(self, backend: Backend, model: str, client: Client) -> bool:
        """Whether requests for a model go to an upstream, which serves it."""
        if self.routes is None or self.routes.routing.upstream(client.path, model) != backend.name:
            return False
        return backend.route is None or backend.route.serves(model)

    def _shown(self, backend: Backend, entry: Entry, client: Client) -> Entry:
        """An entry, with the window that is enforced if that is asked for and known."""
        if not self.windows or len(entry["id"]) > MAX_LENGTH:
            return entry
        window = backend.knowledge.window_now(entry["id"], self.ladder, None)
        if window.guessed or window.source == LOADED:  # another client's request may have had it loaded
            return entry
        return with_window(entry, window.tokens, window.max_output, client.shape)


async def _body(backend: Backend) -> bytes:
    """The body of an upstream's list; empty on any failure."""
    row = backend.row
    assert row is not None
    listing = servers()[row.api].models
    assert listing is not None
    try:
        answer = await ask(backend.upstream, listing.target, listing.headers)
    except UpstreamError:
        return b""
    except Exception as error:  # a bug of ours must not be kept as an answer; its text may contain a key
        log.event("the list of models of an upstream failed", upstream=row.name, kind=type(error).__name__)
        return b""
    return answer.body if answer.status == 200 and read_list(answer.body) is not None else b""


async def ask(upstream: Sender, target: bytes, headers: Sequence[Header]) -> Response:
    """An upstream's answer, of which at most `MAX_LIST_BYTES` are read. Raises UpstreamError."""
    try:
        async with asyncio.timeout(FETCH_S):
            answer = await upstream.send("GET", target, headers, None)
            try:
                return Response(answer.status, await answer.read(MAX_LIST_BYTES), answer.headers)
            finally:
                await answer.close()
    except TimeoutError:
        raise UpstreamError(504, "upstream_timeout", "The upstream did not send its list of models in time.") from None


def readable(headers: Sequence[Header]) -> list[Header]:
    """The client's headers, for an answer that can be read and is no mere confirmation of what the client has."""
    return [header for header in plainly(headers) if not header[0].startswith(b"if-")]


async def respond(send: Send, found: Response) -> None:
    """Sends an answer to the client."""
    answered = [*to_client(found.headers, LENGTH), (b"content-length", b"%d" % len(found.body))]
    await send({"type": "http.response.start", "status": found.status, "headers": answered})
    await send({"type": "http.response.body", "body": found.body})
