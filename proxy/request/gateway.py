"""Drives one request through its stages, and is alone to bind them: prepares, sends, heals, relays.

* Who may change what is sent: `prepare` before the first attempt, `heal` after a refusal, `Router.without` after
  another upstream has failed. Each returns a new `Planned`, made from what the client sent, never from an earlier
  payload. Two attempts need no new plan: one for an answer that can be read, with the same bytes, and one for an answer
  in one piece where a stream came to nothing, without the stream flag alone (`_in_one_piece`).
* No attempt follows once a byte of an answer has gone to the client. A refusal that comes then is relayed as it is; the
  tap that reads along tells the reporter, and of the caller's next streams of such a size more is read first.
* Who asks for an answer closes it, here, whatever happens.
* A bug of ours: while it is planned the client's own bytes are sent, without our own key (an error in `strict`), while
  it is healed the refusal is relayed; elsewhere the client gets our 500, or its answer breaks off (`endings.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from proxy.apis import error_body
from proxy.apis.paths import shown
from proxy.config.settings import Settings
from proxy.errors import ClientError
from proxy.http.cancellation import interrupt_on_disconnect
from proxy.http.client.answer import UpstreamError
from proxy.http.memory_budget import Budget, Room
from proxy.http.receiving import Receive, Scope, body_if_received, cycle_of, read_body, target_of, with_query
from proxy.http.relay import Send, Watch, relay, relay_at_once, send_error
from proxy.http.server.cycle import Cycle
from proxy.model.api import Api
from proxy.model.outcome import Refusal
from proxy.model.structs import replace
from proxy.model.terms import Terms
from proxy.observe import log
from proxy.observe.metrics.exposition import Metrics
from proxy.request.attempts import MAX_HEALS, Attempt, Attempts, may_be_refused
from proxy.request.backend import Backend
from proxy.request.budgets import Asked, Budgets
from proxy.request.bugs import report_bug
from proxy.request.callers import Callers
from proxy.request.context import RequestContext
from proxy.request.endings import EVENT_STREAM, as_stream, ending
from proxy.request.holds import headers_of_hold
from proxy.request.reporting import Reporter
from proxy.request.response_headers import headers_of, is_truncated
from proxy.request.restated_answers import change_of, restated, restated_whole
from proxy.request.routes import Router
from proxy.request.shown import Keeping
from proxy.request.stages import Answered, Planned, Received, Record, Scanned
from proxy.request.tracing import Begin, untraced
from proxy.request.web_pages import WebPages
from proxy.wire.controls import NOTHING_ASKED, controls
from proxy.wire.headers import Header, value_of
from proxy.wire.tap import Tap


class Client(msgspec.Struct, frozen=True):
    """Where a request comes from and its answer goes to. `target`: the path and query as they were sent. `cycle`: set
    on our own server, where most need no task and no message."""

    scope: Scope
    receive: Receive
    send: Send
    target: bytes
    cycle: Cycle | None


@dataclass(slots=True)
class Gateway:
    """Serves the endpoints that are fitted. `begin_trace`: of a request that may be traced. `keeping`: set if there is
    a page."""

    settings: Settings
    routes: Router
    attempts: Attempts
    metrics: Metrics
    budget: Budget
    reporter: Reporter
    pages: WebPages = field(default_factory=WebPages)
    begin_trace: Begin = untraced
    keeping: Keeping | None = None
    callers: Callers | None = None
    budgets: Budgets | None = None
    terms: Terms = field(init=False)

    def __post_init__(self) -> None:
        self.terms = self.settings.terms

    def with_rules(self, routes: Router, attempts: Attempts, reporter: Reporter, callers: Callers | None) -> Gateway:
        """The gateway for further requests under other rules; those that this one has begun stay with it."""
        return replace(self, routes=routes, attempts=attempts, reporter=reporter, callers=callers)

    @property
    def default(self) -> Backend:
        """The upstream of requests that no row takes."""
        return self.routes.default

    async def fit(self, api: Api, scope: Scope, receive: Receive, send: Send) -> None:
        """A request to one of the paths of an API."""
        target = target_of(scope)
        if b"?" in target:  # a key may be in the query: it is handled like a header from here on
            scope["headers"] = with_query(target, scope["headers"])
        client = Client(scope, receive, send, target, cycle_of(scope))
        trace, headers = self.begin_trace(scope["method"], scope["headers"])
        address = (scope.get("client") or ("",))[0]
        received = Received(api, self.settings.mode, shown(target), headers, address=address, terms=self.terms)
        context = RequestContext(received, record=Record(trace=trace), keeping=self.keeping)
        self.metrics.in_flight.inc()
        try:
            self.pages.check(scope, self.default.upstream.has_key)
            await self._receive(context, client)
            await self._prepare(context)
            attempt = await self._exchange(context, client)
            try:
                await self._relay(context, attempt, client)
            finally:
                await attempt.answer.close()
        except BaseException as error:
            if await self._end(context, error, send):
                raise
        finally:
            self.metrics.in_flight.dec()
            context.record.stop_waiting()
            self.reporter.finish(context)

    async def _receive(self, context: RequestContext, client: Client) -> None:
        """Reads the control headers and the body. Raises `ClientError`."""
        settings, head, scope = self.settings, context.received, client.scope
        asked = controls(head.headers)
        mode, terms = asked.mode or head.mode, head.terms
        if asked is not NOTHING_ASKED:  # an error while the body is read is reported with them, too
            terms = asked.terms(terms)
            context.received = replace(head, mode=mode, controls=asked, terms=terms)
            self.routes.check_named(asked.upstream)
        context.room = room = Room(self.budget, scope)
        body = body_if_received(client.cycle, settings.max_body, room)
        if body is None:
            rate, seconds = settings.min_rate, settings.body_timeout
            body = await read_body(scope, client.receive, settings.max_body, seconds, room, rate)
        context.received = Received(
            head.api, mode, head.path, head.headers, asked, body, address=head.address, room=room, terms=terms
        )

    async def _prepare(self, context: RequestContext) -> None:
        """Prepares what to send, and begins to count what is sent uncounted. The client's time is not counted as our
        own. Raises `ClientError`."""
        received, record, began = context.received, context.record, time.perf_counter()
        known, denied = None, None
        try:
            if self.callers is not None:
                given = received, record, self.default.planner.scanner
                received, known, denied = self.callers.at_once(*given) or await self.callers.ruled(*given)
                context.received = received
            rule = received.controls.rule
            if rule is None or rule.budget is None or denied is not None or self.budgets is None:
                planned = await self._planned(context, received, known, denied)
            else:
                planned = await self._under_budget(context, known, self.budgets)
            context.planned = planned
        finally:
            record.own_seconds += time.perf_counter() - began
        if planned.error is not None:
            raise planned.error
        if planned.proven and planned.total is None and context.home is not None:
            context.counting = context.home.planner.later.start_count(planned, record)
            if context.counting is None:
                context.planned = planned.uncounted()

    async def _planned(
        self, context: RequestContext, received: Received, known: Scanned | None, denied: ClientError | None = None
    ) -> Planned:
        """What is to be sent, to the upstream that the request is routed to."""
        routed = self.routes.only or await self.routes.begin(received, context.record, known)
        context.home, planner, known = routed.home, routed.home.planner, routed.scanned or known
        if (error := denied or routed.error) is not None:
            return Planned(received, scanned=known, error=error)
        found = planner.at_once(received, known)
        if isinstance(found, Planned):  # as of most
            return found
        return await planner.prepare(received, context.record, found)

    async def _under_budget(self, context: RequestContext, known: Scanned | None, budgets: Budgets) -> Planned:
        """The same under the budget of the request's caller: counted, and with what it may take held."""

        async def plan(under: Received, scanned: Scanned | None) -> tuple[Planned, Backend | None]:
            return await self._planned(context, under, scanned), context.home

        asked = Asked(context.received, known, context.record, plan, self.routes, self.reporter.expected)
        planned, context.hold = await budgets.plan(asked)
        context.received = planned.received
        return planned

    async def _exchange(self, context: RequestContext, client: Client) -> Attempt:
        """Sends, and sends again where there is something better to send. Returns what the client gets. Raises
        UpstreamError. No caller keeps the content: it is dropped while a long answer is relayed."""
        while True:
            planned = context.planned
            assert planned is not None
            try:
                attempt = await self._attempt(context, planned, client)
                if attempt.usage is not None:  # a whole, good answer, as most
                    return attempt
                if may_be_refused(planned, attempt) and context.record.attempts <= MAX_HEALS:
                    attempt = await self._in_one_piece(context, planned, attempt, client)
            except UpstreamError as failure:
                again = await self._elsewhere(context, planned, failure)
                if again is None:
                    raise
            else:
                again = await self._again(context, attempt)
                if again is None:
                    return attempt
            context.planned = again

    async def _attempt(self, context: RequestContext, planned: Planned, client: Client) -> Attempt:
        """Sends the payload; reads as much of the answer as it takes to detect a refusal. Raises UpstreamError."""
        assert context.home is not None
        attempts, record = self.attempts, context.record
        context.asked = backend = self.routes.target(planned, context.home)
        with interrupt_on_disconnect(client.receive, client.cycle):
            answer = await attempts.send(planned, client.target, backend, record)
            latest = context.latest or planned  # a count may be there by now
            try:
                return attempts.at_once(latest, answer) or await attempts.read(latest, answer, record)
            except BaseException:
                await answer.close()
                raise

    async def _again(self, context: RequestContext, attempt: Attempt) -> Planned | None:
        """What is to be sent next, and the answer before it is closed; None if the client gets that one."""
        planned, record, again = context.latest, context.record, None
        if planned is None or record.attempts > MAX_HEALS:
            return None
        try:
            if attempt.unreadable:
                record.stop_waiting()
                record.unreadable, again = True, planned
            elif attempt.refusal is not None:
                again = await self._heal(context, planned, attempt.refusal)
            elif attempt.answer.status >= 400:
                again = await self._elsewhere(context, planned)
        except BaseException:
            await attempt.answer.close()
            raise
        if again is not None:
            await attempt.answer.close()
        return again

    async def _elsewhere(
        self, context: RequestContext, planned: Planned, failure: UpstreamError | None = None
    ) -> Planned | None:
        """A request that was moved to another upstream, which failed, as it is sent without that one. None if it was
        not moved."""
        home, asked, record = context.home, context.asked, context.record
        if home is None or asked is None or asked is home or record.attempts > MAX_HEALS:
            return None
        record.stop_waiting()
        return await self.routes.without(planned, home, asked, record, failure)

    async def _in_one_piece(self, context: RequestContext, planned: Planned, empty: Attempt, client: Client) -> Attempt:
        """The answer to the same request without a stream, if it is an error: it has the text that an empty stream does
        not have. Else the empty stream: its length was not the reason."""
        assert context.home is not None and planned.scanned is not None
        try:
            try:
                whole = await context.home.planner.plans.without_stream(planned, planned.scanned)
            except Exception as error:
                report_bug(context.record, error)
                return empty
            context.planned = whole
            attempt = await self._attempt(context, whole, client)
        except BaseException:
            await empty.answer.close()
            raise
        if attempt.failed:
            await empty.answer.close()
            return attempt
        context.planned = planned
        await attempt.answer.close()
        return empty

    async def _heal(self, context: RequestContext, planned: Planned, refusal: Refusal) -> Planned | None:
        """A smaller request to send after a refusal; None if there is none."""
        record = context.record
        record.stop_waiting()
        if context.counting is not None:
            context.counting.cancel()  # the client waits now: the request is counted anew, and at once
            context.counting = None
        began, own = time.perf_counter(), record.own_seconds
        assert context.home is not None
        try:
            context.planned = planned = await context.home.healer.measured(planned, record)
            return await context.home.healer.heal(planned, refusal, record)
        finally:
            record.phase("heal", began, own - record.own_seconds)
            record.own_seconds += time.perf_counter() - began

    async def _relay(self, context: RequestContext, attempt: Attempt, client: Client) -> None:
        """Relays the answer to the client; a short plain one that is here already, as most are, at once."""
        answer, usage, record, api = attempt.answer, attempt.usage, context.record, context.received.api
        seen = attempt.seen
        extra = self._headers(context, attempt) + headers_of_hold(context.hold)
        healed = bool(record.refusals) and not attempt.failed
        if attempt.refusal is not None:
            self._note_refusal(context)
        if healed:
            record.result = "healed"
        context.answered = Answered(answer.status, usage, None, healed)
        change = change_of(context.latest)
        if usage is not None and client.cycle is not None:
            record.whole(api, seen)
            whole = (answer, seen) if change is None else restated_whole(change, answer, seen)
            if relay_at_once(client.cycle, *whole, extra):
                return
        self._release(context)
        kind, packing = value_of(answer.headers, b"content-type"), value_of(answer.headers, b"content-encoding")
        tap = Tap(api, (kind or b"").decode("latin-1"), (packing or b"").decode("latin-1"))
        context.answered = Answered(answer.status, usage, tap, healed)
        watch: Watch | None = tap.feed
        if change is not None and (given := restated(change, answer, seen, tap.feed)) is not None:
            answer, seen, watch = given, b"", None  # the tap reads what the upstream reports
        await relay(
            answer,
            client.receive,
            client.send,
            api.response,
            first=(seen,),
            extra=extra,
            watch=watch,
            started=record.first_byte,
            cycle=client.cycle,
            event=log.event,
        )

    def _note_refusal(self, context: RequestContext) -> None:
        """The client gets a refusal of the upstream."""
        if context.result in ("", "fitted"):
            context.record.result = "refused"
        if context.home is not None and context.latest is not None:
            context.home.planner.agents.note_refused(context.latest)

    def _headers(self, context: RequestContext, attempt: Attempt) -> list[Header]:
        """The response headers of ours."""
        planned, usage = context.latest, attempt.usage
        assert planned is not None
        extra = headers_of(planned, context.record.upstream)
        if usage is not None and is_truncated(planned, usage):
            extra.append((b"x-plimsoll-truncated", b"%d" % usage.prompt))
        return extra

    def _release(self, context: RequestContext) -> None:
        """Drops the content of a request that cannot be healed any more, once it is counted."""
        self.reporter.keep(context)
        if context.counting is None or context.counting.done():
            _drop_content(context)
        else:
            context.counting.add_done_callback(partial(_drop_content, context))

    async def _end(self, context: RequestContext, error: BaseException, send: Send) -> bool:
        """Ends a request by the table of `endings`. Returns whether the exception goes on to the server."""
        end = ending(error, context)
        context.record.result = end.result or context.record.result
        if end.status is not None:
            answered = context.answered
            context.answered = Answered(end.status) if answered is None else replace(answered, status=end.status)
        if not end.breaks:
            error.__traceback__ = None  # its frames have the stages, one of which has the error: none would be freed
        if end.error is not None:
            await self._fail(context, send, end.error, end.extra)
        return end.breaks

    async def _fail(self, context: RequestContext, send: Send, error: ClientError, extra: Sequence[Header]) -> None:
        """Sends an error of the proxy's own, in the shape of the request's API."""
        if (stream := as_stream(error, context)) is not None:
            context.answered = Answered(200)
            await send({"type": "http.response.start", "status": 200, "headers": [*EVENT_STREAM, *extra]})
            await send({"type": "http.response.body", "body": stream})
            return
        await send_error(send, error, error_body(context.received.path, error), extra)

    async def close(self) -> None:
        """Waits until the last requests have ended, at most a second, and until their outcomes are reported."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while self.metrics.in_flight.value:
                    await asyncio.sleep(0.01)
        await self.reporter.close()


def _drop_content(context: RequestContext, counted: object = None) -> None:
    """Takes the figures of a request and drops its content, while its answer is still under way."""
    if context.figures is None:
        context.close()
        context.received = replace(context.received, body=b"")
        context.planned = context.counting = None
