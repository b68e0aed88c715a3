"""The page and its API, on the admin port: figures of the last requests and of all, before and after, live."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

import msgspec

from proxy import __version__
from proxy.admin.conversations import MAX_REQUESTS, fates, summary
from proxy.admin.feed import MAX_VIEWERS, Feed, Viewer
from proxy.admin.guard import PLAIN
from proxy.admin.local import MAX_ENTRIES, Served
from proxy.admin.peers import Peers
from proxy.admin.policy import document
from proxy.admin.upstreams import recent
from proxy.apis import api_of, by_path, error_body, usual
from proxy.config.shown import shown_settings, without_credentials
from proxy.errors import ClientError, not_found, wrong_method
from proxy.http.receiving import Receive, Scope, cycle_of, read_body
from proxy.http.relay import ClientDisconnected, Send, send_error, until_disconnect
from proxy.model.api import Api
from proxy.observe.entries import FILTERED
from proxy.observe.log import event
from proxy.observe.metrics import periods
from proxy.observe.metrics.outcome_metrics import REQUESTS
from proxy.observe.metrics.overview import Values, figures, not_above
from proxy.observe.metrics.periods import STEP_S
from proxy.observe.recent import TEXT_SECONDS, Recent
from proxy.request.learned_endpoint import ASKED, MOST_BYTES, is_loopback, is_token, no_token
from proxy.wire.headers import value_of

API = "/api/"
HTML, JSON = b"text/html; charset=utf-8", b"application/json"
STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),  # nginx
)
EXPIRY_S = 30.0  # between two looks for texts that are too old
LEARNED_S = 10.0  # what was learned is read again after that time
UNREAD_S = 60.0  # how long a viewer may read nothing
NEVER_SENT = frozenset({"unfit", "rejected"})  # results of requests that we answer ourselves
LIMITS = ("name", "window", "effective", "ladder", "mode", "upstream", "models", "budget")  # of a row of callers.toml
LAST_EVENT = b"last-event-id"


Handler = Callable[[Scope, Receive], Awaitable[Any]]


class _Named(msgspec.Struct):
    model: str


_NAMED = msgspec.json.Decoder(_Named)


class Page:
    """The page of one worker, for all workers. `state` is the server's: it says when the proxy stops."""

    def __init__(self, served: Served, recent: Recent, peers: Peers, workers: int) -> None:
        self._served, self.recent, self.peers, self._workers = served, recent, peers, workers
        self.state: Mapping[str, object] = {}
        settings = served.gateway.settings
        configured = settings.admin_token
        self.is_open = configured is None  # whether reading takes no token
        self.token = configured or secrets.token_urlsafe(24)
        self._tells = self.is_open and is_loopback(settings.admin_host or settings.host)
        self.feed = Feed(peers, self.overview)
        self._began = time.time()
        self._expiry: asyncio.Task[None] | None = None
        self._noting: asyncio.Task[None] | None = None
        self._learned: tuple[float, list[Any]] = (0.0, [])
        self._reading: Mapping[str, Handler] = {"overview": self._overview, "requests": self._requests}
        self._pod = socket.gethostname()
        self._changing: Mapping[str, Handler] = {"inspect": self._inspect, "forget": self._forget}

    async def open(self) -> None:
        """Answers the other workers from now on."""
        self.recent.begin()
        self.peers.local.noted.begin()
        await self.peers.open()
        self._noting = asyncio.create_task(self._note())
        if self._served.gateway.settings.page_content:
            self._expiry = asyncio.create_task(self._expire())

    async def _expire(self) -> None:
        """Drops texts that are too old, also where no request comes and nobody looks."""
        while True:
            await asyncio.sleep(EXPIRY_S)
            self.recent.expire()

    async def _note(self) -> None:
        """Notes what was used so far, twice a minute: of it follow the figures of the last minutes."""
        while True:
            await asyncio.sleep(STEP_S)
            try:
                self.peers.local.noted.note()
            except Exception as error:  # a bug of ours: the page goes on without these figures
                event("what was used could not be noted", error=type(error).__name__)

    async def close(self) -> None:
        """Ends the viewers, and answers no more."""
        for task in (self._expiry, self._noting):
            if task is not None:
                task.cancel()
        self.feed.close()
        await self.peers.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request to the page or its API."""
        try:
            await self._answer(scope, receive, send)
        except ClientError as error:
            await send_error(send, error, error_body(PLAIN, error))
        except ClientDisconnected:
            return

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if path in ("/", ""):
            _allow(method, "GET", "HEAD")
            page = document()
            await _send(scope, send, HTML, page.body, [(b"content-security-policy", page.policy)])
            return
        if not path.startswith(API):
            raise not_found()
        name, _, rest = path.removeprefix(API).strip("/").partition("/")
        self._check_token(scope, changes=name == "forget")
        if name == "events" and not rest:
            _allow(method, "GET")
            await self._events(scope, receive, send)
            return
        if name in self._changing and not rest:
            _allow(method, "POST")
            found = await self._changing[name](scope, receive)
        elif name == "conversations" and rest:
            _allow(method, "GET", "HEAD")
            found = await self._conversation(rest)
        elif name in self._reading and (not rest or name == "requests"):
            _allow(method, "GET", "HEAD")
            found = await (self._reading[name](scope, receive) if not rest else self._request(rest))
        else:
            raise not_found()
        await _send(scope, send, JSON, msgspec.json.encode(found))

    def _check_token(self, scope: Scope, changes: bool) -> None:
        if (changes or not self.is_open) and not is_token(value_of(scope["headers"], ASKED), self.token):
            raise no_token()

    async def _overview(self, scope: Scope, receive: Receive) -> Any:
        """The page itself gets the token as well, on loopback: only there nobody but this machine can say that it is
        the page."""
        found = await self.overview()
        return {**found, "token": self.token} if self._tells and _is_page(scope) else found

    async def overview(self) -> dict[str, Any]:
        """The JSON of the overview."""
        served, settings = self._served, self._served.gateway.settings
        values = Values(await served.metrics.values_in_thread(), served.metrics.by_caller)
        states = await self._states()
        noted = await self.peers.ask({"ask": "periods"})
        found = figures(values)
        for model in found["models"]:
            _add_loads(model, [state["loads"][model["model"]] for state in states if model["model"] in state["loads"]])
        return {
            "at": round(time.time(), 3),
            "started_at": round(self._began, 3),
            "pod": self._pod,
            **self._rules(),
            "budgets": budgets_of(answer["budgets"] for answer in noted),
            "periods": periods.overview(noted, periods.sums_of(values), time.time() - self._began),
            "version": _version(values),
            "workers": {"count": self._workers, "reached": len(states)},
            "content": settings.page_content,
            "content_minutes": round(TEXT_SECONDS / 60),
            "token": None,
            "token_required": not self.is_open,
            **found,
            "learned": _without_duplicates([one for state in states for one in state["learned"]], "model"),
            "unfitted_paths": sorted({path for state in states for path in state["unfitted_paths"]}),
            "upstreams": self._upstreams(values, states),
            "settings": shown_settings(settings),
        }

    def _rules(self) -> dict[str, Any]:
        """What holds for requests: for all, and for each caller that has a rule."""
        served, settings = self._served, self._served.gateway.settings
        limits = [{name: getattr(row, name) for name in LIMITS} for row in served.rules.callers.rows]
        holds = {"mode": settings.mode, "ladder": settings.ladder, "window_cap": settings.context_total_token_limit}
        return {"holds": {**holds, "upstream": without_credentials(settings.upstream)}, "limits": limits}

    async def _conversation(self, name: str) -> dict[str, Any]:
        """The newest requests of a conversation, the newest first, and what became of its messages."""
        answers = await self.peers.ask({"ask": "conversation", "name": name})
        found = sorted((one for answer in answers for one in answer), key=lambda one: one["at"])[-MAX_REQUESTS:]
        if not found:
            raise gone()
        messages = fates(found)
        requests = [{key: value for key, value in one.items() if key != "rows"} for one in reversed(found)]
        return {"conversation": name, "requests": requests, **summary(messages), "messages": messages}

    async def _states(self) -> list[Any]:
        at, found = self._learned
        if time.monotonic() - at > LEARNED_S or not found:
            found = await self.peers.ask({"ask": "state"})
            self._learned = (time.monotonic(), found)
        return found

    def _upstreams(self, values: Values, states: Sequence[Any]) -> list[dict[str, Any]]:
        served = self._served

        def last(name: str) -> dict[str, Any]:
            return recent(state["asked"].get(name, ()) for state in states)

        default = {"name": "default", "url": without_credentials(served.gateway.settings.upstream)}
        if served.routes is None:  # then nothing counts requests by upstream
            results = values.by(REQUESTS, "result")
            asked_of = sum(count for result, count in results.items() if result not in NEVER_SENT)
            failed_of = sum(results[result] for result in ("upstream_error", "broken_off"))
            return [{**default, "requests": int(asked_of), "failed": int(failed_of), "recent": last("")}]
        asked = values.by_pair("plimsoll_upstream_requests_total", "upstream", "status")
        urls = {row.name: without_credentials(row.url or row.provider) for row in served.rules.upstreams}
        return [
            {
                "name": name,
                "url": urls.get(name, default["url"]),
                "requests": int(sum(count for (one, _), count in asked.items() if one == name)),
                "failed": int(sum(n for (one, status), n in asked.items() if one == name and status >= "500")),
                "recent": last(name),
            }
            for name in served.routes.backends
        ]

    async def _requests(self, scope: Scope, receive: Receive) -> Any:
        asked = {name: values[-1] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}
        try:
            limit = min(MAX_ENTRIES, max(1, int(asked.get("limit", "100"))))
            filters = {name: asked[name] for name in FILTERED if name in asked}
            before = await self._time_of(asked["before"]) if "before" in asked else None
            answers = await self.peers.ask({"ask": "entries", "filters": filters, "limit": limit + 1, "before": before})
        except ValueError as error:
            raise ClientError(400, f"A filter is wrong: {error}.", code="invalid_filter") from None
        found = sorted((entry for answer in answers for entry in answer), key=lambda one: one["at"], reverse=True)
        return {"requests": found[:limit], "more": len(found) > limit}

    async def _time_of(self, id: str) -> float:
        answers = await self.peers.ask({"ask": "detail", "id": id})
        found: float | None = next((answer["at"] for answer in answers if answer is not None), None)
        if found is None:
            raise gone()
        return found

    async def _request(self, rest: str) -> Any:
        """The detail of a request, or its texts."""
        id, _, part = rest.partition("/")
        if part not in ("", "texts"):
            raise not_found()
        if part and not self._served.gateway.settings.page_content:
            raise content_off()
        answers = await self.peers.ask({"ask": "texts" if part else "detail", "id": id})
        found = next((answer for answer in answers if answer is not None), None)
        if found is None:
            raise gone()
        return {"texts": found} if part else found

    async def _events(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.feed.viewers) >= MAX_VIEWERS:
            raise too_many_viewers()
        after = (value_of(scope["headers"], LAST_EVENT) or b"").decode("latin-1")
        viewer, first = await self.feed.join(after)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM})
            await until_disconnect(self._stream(viewer, first, send), receive, cycle_of(scope))
        finally:
            self.feed.leave(viewer)

    async def _stream(self, viewer: Viewer, first: bytes, send: Send) -> None:
        found = first
        try:
            while not self.state.get("draining") and viewer in self.feed.viewers:
                if found:
                    async with asyncio.timeout(UNREAD_S):
                        await send({"type": "http.response.body", "body": found, "more_body": True})
                found = await viewer.next()
        except TimeoutError:
            return  # its place is for another viewer; the connection is closed
        await send({"type": "http.response.body", "body": b""})

    async def _inspect(self, scope: Scope, receive: Receive) -> Any:
        """The plan for a body of any API: of the one whose path is given, else of the one that recognises it."""
        path = parse_qs(scope["query_string"].decode("latin-1")).get("path", [""])[-1]
        if path and path not in by_path():
            raise ClientError(400, f"path must be one of {', '.join(by_path())}.", code="unknown_path", param="path")

        def api(body: bytes) -> Api:
            return by_path()[path] if path else api_of(body) or usual()

        return await self._served.inspecting.answer(api, scope, receive)

    async def _forget(self, scope: Scope, receive: Receive) -> Any:
        served, room = self._served, self._served.budget.room(scope)
        try:
            body = await read_body(scope, receive, MOST_BYTES, served.settings.body_timeout, room)
            model = _NAMED.decode(body).model
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise unnamed() from None
        finally:
            room.release()
        if not model:
            raise unnamed()
        answers = await self.peers.ask({"ask": "forget", "model": model})
        self._learned = (0.0, [])  # not before all have forgotten: an overview may be asked for meanwhile
        return max(answers, key=lambda answer: len(answer["limits"]) + len(answer["counts"]))


def budgets_of(answers: Iterable[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The accounts of all workers: of one that they share what the worker knows that knows most, else what all used."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in (row for rows in answers for row in rows):
        known = found.setdefault((row["budget"], row["caller"]), {**row, "used": 0, "stage": 0})
        known["used"] = max(known["used"], row["used"]) if row["shared"] else known["used"] + row["used"]
        known["stage"] = max(known["stage"], row["stage"])
    return [{**one, "left": max(0, one["limit"] - one["used"])} for _, one in sorted(found.items())]


def gone() -> ClientError:
    """A request is asked for that is not there."""
    return ClientError(404, "This request is no longer kept, or never was.", code="gone")


def content_off() -> ClientError:
    """Texts are asked for where none are kept."""
    return ClientError(404, "Texts are not kept: PLIMSOLL_PAGE_CONTENT is off.", code="content_off")


def too_many_viewers() -> ClientError:
    """Every viewer's place is taken."""
    return ClientError(503, f"There are {MAX_VIEWERS} viewers already.", code="too_many_viewers", retry=True, after=5)


def unnamed() -> ClientError:
    """A body names no model."""
    return ClientError(400, 'Name one model: {"model": "NAME"}.', code="no_model", param="model")


def _is_page(scope: Scope) -> bool:
    """Whether a browser says that a page of this origin asks; scripts of other pages cannot make it say so."""
    return value_of(scope["headers"], b"sec-fetch-site") == b"same-origin"


def _allow(method: str, *allowed: str) -> None:
    if method not in allowed:
        raise wrong_method(", ".join(allowed))


async def _send(scope: Scope, send: Send, kind: bytes, body: bytes, extra: Sequence[tuple[bytes, bytes]] = ()) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *extra]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _version(values: Values) -> dict[str, Any]:
    version, python, litellm = next(iter(values.read("plimsoll_build_info")), (__version__, "", ""))
    table = values.read("plimsoll_model_table_timestamp_seconds")
    return {"plimsoll": version, "python": python, "litellm": litellm, "table_at": table.get((), None)}


def _add_loads(model: dict[str, Any], loads: Sequence[Any]) -> None:
    """Adds the loads of a model's last requests, of each worker."""
    model["load_max"] = highest = max((load[0] for load in loads), default=None)
    model["load_last"] = None
    if highest is not None:  # a model has a sample for each source that its window ever had: the newest request's holds
        _, model["load_last"], _, model["window"], model["source"] = max(loads, key=lambda load: load[2])
        for name in ("load_p50", "load_p95"):
            model[name] = not_above(highest, model[name])


def _without_duplicates(found: Sequence[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """One for each value of a key: that of the worker that knows most."""
    best: dict[Any, dict[str, Any]] = {}
    for one in found:
        known = best.get(one[key])
        if known is None or len(one["limits"]) > len(known["limits"]):
            best[one[key]] = one
    return list(best.values())
