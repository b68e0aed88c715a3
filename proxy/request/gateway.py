"""Drives one request through its stages: prepares, sends, heals, relays; `reporting` tells what became of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import unquote_to_bytes

import msgspec

from proxy.apis import by_path, error_body
from proxy.config.settings import Settings
from proxy.config.upstreams import DEFAULT
from proxy.errors import ClientError, stopped, websocket_refused
from proxy.http.cancellation import interrupt_on_disconnect
from proxy.http.client.answer import UNREACHABLE, Answer, UpstreamError
from proxy.http.memory_budget import SMALL, Budget, Room
from proxy.http.receiving import Receive, Scope, body_if_received, cycle_of, read_body, target_of
from proxy.http.relay import BrokenOff, ClientDisconnected, Send, relay, relay_at_once, send_error
from proxy.http.server.cycle import CLOSE, Cycle
from proxy.model.api import Api
from proxy.model.outcome import PASSTHROUGH, Outcome, Refusal, Usage
from proxy.model.plan import Mode
from proxy.model.structs import replace
from proxy.observe import log
from proxy.observe.metrics.exposition import Metrics
from proxy.observe.recording.recorder import Recorder
from proxy.request.answers import AnswerLearning
from proxy.request.bugs import FAILED, report_bug
from proxy.request.context import RequestContext
from proxy.request.facts import Knowledge
from proxy.request.heal import Healer
from proxy.request.models import ModelsList
from proxy.request.passthrough import CLIENT_LEFT, passthrough
from proxy.request.prepare import Planner
from proxy.request.refusal_detection import RefusalDetector, came_to_nothing, hold_seconds, plainly, unreadable
from proxy.request.reporting import Reporter
from proxy.request.routes import Routes, no_upstreams
from proxy.request.shown import Keeping
from proxy.request.split_requests import PieceSender
from proxy.request.stages import Answered, Planned, Received, Record
from proxy.request.tracing import Tracer
from proxy.request.web_pages import WebPages
from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.internal_client import caller_of
from proxy.upstreams.key_checks import REFUSING, brings_credential
from proxy.upstreams.models_listing import Headers
from proxy.upstreams.upstream import Sender, Upstream
from proxy.wire.controls import NOTHING_ASKED, UPSTREAM, controls
from proxy.wire.headers import QUERY, REQUEST_ID, Header, answered_id, value_of
from proxy.wire.paths import one_path, shown
from proxy.wire.report import plan_headers
from proxy.wire.tap import Tap

UPGRADE_REQUIRED = 426
MAX_NAMED = 100  # paths that are logged as not fitted, each once; clients choose them
EVENT_STREAM = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))
MAX_HEALS = 2  # smaller requests that are sent after a refusal (section 2)
# Headers that describe the body's bytes: they are wrong for another payload.
OF_THE_BODY = frozenset((b"content-encoding", b"content-digest", b"repr-digest", b"digest", b"content-md5"))


class Attempt(msgspec.Struct, frozen=True):
    """An answer of the upstream, none of which the client has seen: `seen` are the bytes that had to be read to detect
    a refusal. `usage` is set if the whole answer is in `seen`."""

    answer: Answer
    seen: bytes = b""
    refusal: Refusal | None = None
    usage: Usage | None = None


@dataclass(slots=True)
class Gateway:
    """Serves the endpoints that are fitted, and passes all others through."""

    settings: Settings
    planner: Planner
    healer: Healer
    knowledge: Knowledge
    upstream: Upstream
    refusals: RefusalDetector
    metrics: Metrics
    budget: Budget
    reporter: Reporter
    extra_calls: ExtraCalls | None = None  # set if extra calls depend on whose requests the upstream accepts
    tracer: Tracer | None = None
    routes: Routes | None = None  # set if there are several upstreams
    models: ModelsList | None = None  # set if lists of models are not passed on as they are
    recorder: Recorder | None = None
    keeping: Keeping | None = None  # set if there is a page
    pages: WebPages = field(default_factory=WebPages)
    accepted: ExtraCalls | None = None  # whose large bodies the upstream accepted, for the budget of memory
    _named: set[str] = field(default_factory=set)

    def with_rules(
        self,
        planner: Planner,
        healer: Healer,
        learning: AnswerLearning,
        refusals: RefusalDetector,
        extra_calls: ExtraCalls | None,
        routes: Routes | None,
        models: ModelsList | None,
    ) -> Gateway:
        """The gateway for further requests under other rules; those that this one has begun stay with it."""
        return replace(
            self,
            planner=planner,
            healer=healer,
            reporter=self.reporter.with_rules(planner, learning, refusals, routes),
            knowledge=planner.knowledge,
            refusals=refusals,
            extra_calls=extra_calls,
            routes=routes,
            models=models,
        )

    async def fit(self, api: Api, scope: Scope, receive: Receive, send: Send) -> None:
        """A request to one of the paths of an API."""
        target = target_of(scope)
        if b"?" in target:  # a key may be in the query: it is handled like a header from here on
            query = unquote_to_bytes(target.partition(b"?")[2].replace(b"+", b" "))
            scope["headers"] = [*scope["headers"], (QUERY, query)]
        headers, trace = scope["headers"], None
        if self.tracer is not None:
            trace, headers = self.tracer.begin(scope["method"], headers)
        client = scope.get("client")
        received = Received(api, self.settings.mode, shown(target), headers, address=client[0] if client else "")
        context = RequestContext(received, record=Record(trace=trace), keeping=self.keeping)
        cycle = cycle_of(scope)
        self.metrics.in_flight.inc()
        try:
            self.pages.check(scope, self.upstream.has_key)
            planner = await self._prepare(context, scope, receive, cycle)
            if context.proven and context.total is None:
                planner.count_later(context)
            await self._exchange(context, target, receive, send, cycle)
        except ClientError as error:
            context.end(context.record.result or "rejected", error.status)
            unsent = replace(context.plan, notes=()) if context.plan else None  # its steps were not done
            await _fail(context, send, error, plan_headers(unsent, sent=False) if unsent else ())
        except UpstreamError as failure:
            context.end("upstream_error", failure.status)
            if failure.code == UNREACHABLE:
                knowledge = self.knowledge if self.routes is None else self.routes.asked(context).knowledge
                knowledge.mark_unreachable()
            await _fail(context, send, failure.for_client())
        except BrokenOff:
            context.record.result = "broken_off"
        except ClientDisconnected:
            if not has_all(context):
                context.end("cancelled", CLIENT_LEFT)
        except asyncio.CancelledError:  # the server stops
            context.record.result = "stopped"
            if context.answered is not None:
                raise  # the client must see that its answer breaks off
            context.end("stopped", stopped().status)
            await _fail(context, send, stopped())
        except Exception as error:  # where nothing can be forwarded any more; a server may log its text
            report_bug(context.record, error)
            if context.answered is None:
                context.end("bug", FAILED.status)
                await _fail(context, send, FAILED)
        finally:
            self.metrics.in_flight.dec()
            context.record.stop_waiting()
            self.reporter.finish(context)

    async def _prepare(self, context: RequestContext, scope: Scope, receive: Receive, cycle: Cycle | None) -> Planner:
        """Reads the request and prepares what to send; returns the planner of its upstream. The client's time is not
        counted as our own."""
        settings, head = self.settings, context.received
        asked = controls(head.headers)
        mode = asked.mode or head.mode
        if asked is not NOTHING_ASKED:  # an error while the body is read is reported with them, too
            context.received = replace(head, mode=mode, controls=asked)
            if self.routes is None and asked.upstream not in (None, DEFAULT):
                raise no_upstreams()
        context.room = room = Room(self.budget, scope)
        body = body_if_received(cycle, settings.max_body, room)
        if body is None:
            body = await read_body(scope, receive, settings.max_body, settings.body_timeout, room, settings.min_rate)
        context.received = Received(head.api, mode, head.path, head.headers, asked, body, address=head.address)
        began = time.perf_counter()
        try:
            planner = self.planner if self.routes is None else (await self.routes.begin(context)).planner
            await planner.prepare(context)
        finally:
            context.record.own_seconds += time.perf_counter() - began
        return planner

    async def _exchange(
        self, context: RequestContext, target: bytes, receive: Receive, send: Send, cycle: Cycle | None
    ) -> None:
        """Sends, and answers a refusal with a smaller request; what comes then goes to the client as it is."""
        empty: Attempt | None = None
        while True:
            try:
                with interrupt_on_disconnect(receive, cycle):
                    attempt = await self._attempt(context, target)
            except UpstreamError as failure:
                if (
                    context.record.attempts <= MAX_HEALS
                    and self.routes is not None
                    and await self.routes.stay(context, failure)
                ):
                    continue
                raise
            left = context.record.attempts <= MAX_HEALS
            if self.routes is not None and left and attempt.refusal is None and attempt.answer.status >= 400:
                if await self.routes.stay(context):
                    await attempt.answer.close()
                    continue
            if empty is not None:
                if attempt.refusal is None and attempt.answer.status < 400:  # its length was not the reason
                    await attempt.answer.close()
                    attempt = empty
                empty = None
            elif left and _may_be_refused(context, attempt):
                whole = await self._without_stream(context)
                if whole is not None:
                    empty, context.planned = attempt, whole
                    continue
            try:
                if attempt.refusal is not None and left and await self._heal(context, attempt.refusal):
                    continue
                await self._relay(context, attempt, receive, send, cycle)
                return
            finally:
                await attempt.answer.close()

    async def _attempt(self, context: RequestContext, target: bytes) -> Attempt:
        """Sends the payload; reads as much of the answer as it takes to detect a refusal."""
        received, planned, record = context.received, context.planned, context.record
        assert planned is not None
        payload, headers = planned.payload, received.headers
        if payload is not received.body:
            headers = [h for h in headers if h[0] not in OF_THE_BODY]
        upstream: Sender = self.upstream
        if self.routes is not None:
            backend = self.routes.target(context)
            upstream, record.upstream = backend.upstream, backend.name
        record.attempt()
        if record.unreadable:
            headers = plainly(headers)
        if record.trace is not None:
            headers = record.trace.attempt(headers, record.upstream)
        if planned.pieces:
            answer = await self._in_pieces(context, planned, upstream, target, headers)
        else:
            answer = await upstream.send("POST", target, headers, payload)
        if record.trace is not None:
            record.trace.answered(answer.status)
        record.request_id = answered_id(answer.headers) or value_of(headers, REQUEST_ID) or b""
        # Most answers say nothing of keys: they are no refusal, and their bodies take little memory.
        teaches = answer.status in REFUSING or self.extra_calls is not None or len(received.body) > SMALL
        if teaches and record.upstream in ("", DEFAULT):  # only there a client's own key is used
            self._record_key(headers, answer.status, len(received.body))
        if context.scanned is None or context.scanned.ladder is None or not received.may_change:
            return Attempt(answer)
        body = answer.buffered_body()
        if body is not None:  # as most are: short, plain and here already
            usage = received.api.response.complete_usage(body) if answer.status == 200 else None
            if usage is not None:
                return Attempt(answer, body, None, usage)
            answer.unread(body)
        if unreadable(answer) and not (planned.pieces or record.unreadable) and record.attempts <= MAX_HEALS:
            await answer.close()
            record.stop_waiting()
            record.unreadable = True
            return await self._attempt(context, target)
        try:
            untried = self.refusals.is_untried(context, len(payload))
            doubtful = untried or self.refusals.has_refused(received.headers, context.scanned.model)
            seconds = hold_seconds(context, doubtful)
            near = (doubtful or not context.proven) and seconds > 0
            seen, refusal = await self.refusals.at(received.api, answer, near, seconds)
            if untried and near and refusal is None and answer.status == 200:
                self.refusals.accept(context, len(payload))
        except BaseException:
            await answer.close()
            raise
        if refusal is not None:
            record.refusals = (*record.refusals, refusal.rule)
            self.refusals.remember(received.headers, context.scanned.model)
        return Attempt(answer, seen, refusal)

    def _record_key(self, headers: Headers, status: int, size: int) -> None:
        """Records what an answer says of the key that the client's request had, or of its absence: for extra calls, and
        of large bodies for their memory."""
        keys = self.knowledge.keys
        keys.record_response(headers, status)
        accepted = self.accepted if self.extra_calls is None and size > SMALL else self.extra_calls
        if accepted is not None and (keys.checked or not brings_credential(headers)):
            accepted.record_response(caller_of(headers), status)

    async def _in_pieces(
        self,
        context: RequestContext,
        planned: Planned,
        upstream: Sender,
        target: bytes,
        headers: Sequence[Header],
    ) -> Answer:
        """The joined answer to all pieces of a request, or the answer to one that failed."""

        async def post(payload: bytes, headers: Sequence[Header]) -> Answer:
            return await upstream.send("POST", target, headers, payload)

        room = Room(self.budget) if context.room is None else context.room.another()
        assert planned.plan is not None
        counts = [sum(len(block.messages) for block in blocks) for blocks in planned.plan.pieces]
        sender = PieceSender(context.received.api, post, counts, self.planner.plans.pool, room)
        return await sender.send(planned.pieces, headers)

    async def _without_stream(self, context: RequestContext) -> Planned | None:
        """The same request for an answer of one piece: it has the error that an empty stream does not have."""
        scanned, planned = context.scanned, context.planned
        assert scanned is not None and planned is not None
        try:
            payload = await self.planner.plans.without_stream(context.received, scanned, planned.payload)
        except Exception as error:
            report_bug(context.record, error)
            return None
        return replace(planned, payload=payload)

    async def _heal(self, context: RequestContext, refusal: Refusal) -> bool:
        """Whether there is a smaller request to send."""
        record = context.record
        record.stop_waiting()
        if record.counting is not None:
            record.counting.cancel()  # the client waits now: the request is counted anew, and at once
        began, own = time.perf_counter(), record.own_seconds
        healer = self.healer if self.routes is None else self.routes.home(context).healer
        try:
            return await healer.heal(context, refusal)
        finally:
            record.phase("heal", began, own - record.own_seconds)
            record.own_seconds += time.perf_counter() - began

    async def _relay(
        self, context: RequestContext, attempt: Attempt, receive: Receive, send: Send, cycle: Cycle | None
    ) -> None:
        """Relays the answer to the client; a short plain one that is here already, as most are, at once."""
        answer, usage, record = attempt.answer, attempt.usage, context.record
        healed = bool(record.refusals) and attempt.refusal is None and answer.status < 400
        if attempt.refusal is not None and record.result in ("", "fitted"):
            record.result = "refused"
        extra = context.headers()
        if healed:
            record.result = "healed"
        context.answered = Answered(answer.status, usage, None, healed)
        if usage is not None:
            if context.is_truncated(usage):
                extra.append((b"x-plimsoll-truncated", b"%d" % usage.prompt))
            if cycle is not None:
                record.first_byte()
                if relay_at_once(cycle, answer, attempt.seen, extra):
                    return
        self._release(context)
        kind, packing = value_of(answer.headers, b"content-type"), value_of(answer.headers, b"content-encoding")
        tap = Tap(context.received.api, (kind or b"").decode("latin-1"), (packing or b"").decode("latin-1"))
        context.answered = Answered(answer.status, usage, tap, healed)
        await relay(
            answer,
            receive,
            send,
            context.received.api.response,
            first=(attempt.seen,),
            extra=extra,
            watch=tap.feed,
            started=record.first_byte,
            cycle=cycle,
            event=log.event,
        )

    def _release(self, context: RequestContext) -> None:
        """Drops the content of a request that cannot be healed any more, once it is counted."""
        if self.recorder is not None:
            context.record.held = self.recorder.hold(context.received.body)
        counting = context.record.counting
        if counting is None or counting.done():
            context.release()
        else:
            counting.add_done_callback(context.release)

    async def other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Every other path: passed through."""
        self.metrics.in_flight.inc()
        listed = self.models is not None and self.models.serves(scope)
        trace = None
        if self.tracer is not None:
            trace, scope["headers"] = self.tracer.begin(scope["method"], scope["headers"])
        seconds, rate = self.settings.body_timeout, self.settings.min_rate
        passed = partial(self.reporter.passed, scope["headers"])
        try:
            self.pages.check(scope, self.upstream.has_key)
            if self.models is not None and listed:
                passed(await self.models(scope, send))
                return
            self._check_handshake(scope)
            self.log_unfitted(scope["method"], target_of(scope))
            upstream, done = await self._upstream_of(scope, passed)
            await passthrough(scope, receive, send, upstream, done, seconds, rate, trace)
        except ClientError as error:
            passed(Outcome(PASSTHROUGH, "rejected", error.status, path=shown(target_of(scope))))
            extra = (CLOSE, (b"upgrade", b"HTTP/1.1")) if error.status == UPGRADE_REQUIRED else ()
            await send_error(send, error, error_body(scope["path"], error), extra)
        finally:
            self.metrics.in_flight.dec()

    def _check_handshake(self, scope: Scope) -> None:
        """Raises `ClientError` for a WebSocket past the fitted requests of a path. Codex then speaks HTTP."""
        cycle = cycle_of(scope)
        path = one_path(target_of(scope).partition(b"?")[0])
        if cycle is None or not cycle.is_handshake or path.decode("latin-1") not in by_path():
            return
        if (controls(scope["headers"]).mode or self.settings.mode) is not Mode.OFF:
            raise websocket_refused()

    async def _upstream_of(
        self, scope: Scope, passed: Callable[[Outcome], None]
    ) -> tuple[Sender, Callable[[Outcome], None]]:
        """The upstream of a request that is not fitted, and what gets its outcome. Raises `ClientError`."""
        if self.routes is None:
            if value_of(scope["headers"], UPSTREAM) not in (None, b"", DEFAULT.encode()):
                raise no_upstreams()
            return self.upstream, passed
        await self.routes.learn_of_caller(scope["headers"])
        cycle = cycle_of(scope)
        reads = scope["method"] in ("GET", "HEAD") and not (cycle is not None and cycle.is_handshake)
        backend = self.routes.other(scope["headers"], target_of(scope), reads=reads)
        return backend.upstream, lambda outcome: passed(replace(outcome, upstream=backend.name))

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

    async def close(self) -> None:
        """Waits until the last requests have ended, at most a second, and until their outcomes are reported."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while self.metrics.in_flight.value:
                    await asyncio.sleep(0.01)
        await self.reporter.close()


async def _fail(context: RequestContext, send: Send, error: ClientError, extra: Sequence[Header] = ()) -> None:
    """Sends an error of the proxy's own, in the shape of the request's API."""
    scanned = context.scanned
    if scanned is not None and scanned.scan.stream:
        refusal_stream = context.received.api.refusal_stream
        stream = None if refusal_stream is None else refusal_stream(error, scanned.model, int(time.time()))
        if stream is not None:
            context.end(context.record.result, 200)
            await send({"type": "http.response.start", "status": 200, "headers": [*EVENT_STREAM, *extra]})
            await send({"type": "http.response.body", "body": stream})
            return
    await send_error(send, error, error_body(context.received.path, error), extra)


def has_all(context: RequestContext) -> bool:
    """Whether a client that has left has its whole answer: some leave at the last event."""
    tap = None if context.answered is None else context.answered.tap
    return tap is not None and tap.done


def _may_be_refused(context: RequestContext, attempt: Attempt) -> bool:
    """Whether an empty stream may be a refusal: some servers fail so if a request is too long."""
    scanned = context.scanned
    streams = scanned is not None and scanned.scan.stream
    return streams and not context.proven and came_to_nothing(context.received.api, attempt.answer, attempt.seen)
