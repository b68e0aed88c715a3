"""Joins it all for one request: prepares, sends, heals, relays, reports; the only module with decisions that wait."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from proxy.apis import error_body
from proxy.config.settings import Settings
from proxy.errors import ClientError, stopped
from proxy.http.cancellation import leaving
from proxy.http.client.answer import UNREACHABLE, Answer, UpstreamError
from proxy.http.memory_budget import Budget, Room
from proxy.http.relay import (
    BrokenOff,
    ClientDisconnected,
    Receive,
    Scope,
    Send,
    body_here,
    cycle_of,
    handed_on,
    read_body,
    relay,
    send_error,
    target_of,
)
from proxy.http.server.cycle import Cycle
from proxy.model.api import Api
from proxy.model.outcome import Outcome, Refusal
from proxy.model.structs import replace
from proxy.observe import log
from proxy.observe.metrics import Metrics
from proxy.request.context import RequestContext
from proxy.request.passthrough import CLIENT_LEFT, passthrough
from proxy.request.prepare import FAILED, Planner
from proxy.request.refusal_detection import RefusalDetector, came_to_nothing, plainly, unreadable
from proxy.tokens.usage import truncated
from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.internal_client import caller_of
from proxy.upstreams.upstream import Upstream
from proxy.wire.controls import controls
from proxy.wire.headers import QUERY, REQUEST_ID, value_of
from proxy.wire.paths import shown
from proxy.wire.report import plan_headers
from proxy.wire.tap import Tap

MOST_NAMED = 100  # endpoints that are named once; clients choose them
HEALS = 2  # a refusal is answered with a smaller request at most so often (section 2)
# Headers that speak of the body's bytes: they are not true any more of what we wrote anew.
OF_THE_BODY = frozenset((b"content-encoding", b"content-digest", b"repr-digest", b"digest", b"content-md5"))


@dataclass(slots=True)
class Gateway:
    """One request to an endpoint that is fitted, from its first byte to its outcome."""

    settings: Settings
    planner: Planner
    upstream: Upstream
    looking: RefusalDetector
    metrics: Metrics
    budget: Budget
    tell: Callable[[Outcome], None]
    extra_calls: ExtraCalls | None = None  # where calls on the operator's money depend on whom the upstream accepts
    behind: set[asyncio.Task[None]] = field(default_factory=set)
    over: list[RequestContext] = field(default_factory=list)
    named: set[str] = field(default_factory=set)

    async def fit(self, api: Api, scope: Scope, receive: Receive, send: Send) -> None:
        """A request to one of the paths of an API."""
        target = target_of(scope)
        if b"?" in target:  # as in headers, so that nobody need know of both
            query = unquote_to_bytes(target.partition(b"?")[2].replace(b"+", b" "))
            scope["headers"] = [*scope["headers"], (QUERY, query)]
        context = RequestContext(api, self.settings.mode, path=shown(target))
        cycle = cycle_of(scope)
        self.metrics.in_flight.inc()
        try:
            context.payload = await self._arrive(context, scope, receive, cycle)
            if context.sure and context.total is None:
                self.planner.count_later(context, scope["headers"])
            await self._exchange(context, scope, target, receive, send, cycle)
        except ClientError as error:
            context.status, context.result = error.status, context.result or "rejected"
            unsent = replace(context.plan, notes=()) if context.plan else None  # what was tried was not done
            extra = plan_headers(unsent, sent=False) if unsent else ()
            await send_error(send, error, error_body(context.path, error), extra)
        except UpstreamError as failure:
            context.status, context.result = failure.status, "upstream_error"
            if failure.code == UNREACHABLE:
                self.planner.knowledge.mark_unreachable()
            await self._fail(context, send, failure.for_client())
        except BrokenOff:
            context.result = "broken_off"
        except ClientDisconnected:
            context.status, context.result = CLIENT_LEFT, "cancelled"
        except asyncio.CancelledError:  # the server stops
            context.result = "stopped"
            if context.status:
                raise  # the client must see that its answer breaks off
            context.status = stopped().status
            await self._fail(context, send, stopped())
        except Exception as error:  # where nothing can be forwarded any more; a server may log its text
            self.planner.caught(context, error)
            if not context.status:
                context.status = FAILED.status
                await self._fail(context, send, FAILED)
        finally:
            self.metrics.in_flight.dec()
            context.returns()
            self._let_go(context)
            self._leave(context)

    async def _fail(self, context: RequestContext, send: Send, error: ClientError) -> None:
        await send_error(send, error, error_body(context.path, error))

    async def _arrive(self, context: RequestContext, scope: Scope, receive: Receive, cycle: Cycle | None) -> bytes:
        """Reads the request and prepares what to send. Our own time does not count the client's."""
        asked = context.controls = controls(scope["headers"])
        context.mode = asked.mode or context.mode
        settings = self.settings
        context.room = room = Room(self.budget)
        body = body_here(cycle, settings.max_body, room)
        if body is None:
            body = await read_body(scope, receive, settings.max_body, settings.body_timeout, room, settings.min_rate)
        context.body = body
        began = time.perf_counter()
        try:
            return await self.planner.prepare(context, scope["headers"])
        finally:
            context.own_seconds += time.perf_counter() - began

    async def _exchange(
        self, context: RequestContext, scope: Scope, target: bytes, receive: Receive, send: Send, cycle: Cycle | None
    ) -> None:
        """Sends, and answers a refusal with a smaller request; what comes then goes to the client as it is."""
        empty: tuple[Answer, bytes] | None = None
        for left in reversed(range(HEALS + 1)):
            with leaving(receive, cycle):
                answer, seen, refusal = await self._ask(context, scope, target)
            if empty is not None:
                if refusal is None and answer.status < 400:  # its length was not why: the client gets what there was
                    await answer.close()
                    (answer, seen), context.usage = empty, None
                empty = None
            elif left and context.stream and not context.sure and came_to_nothing(context.api, answer, seen):
                whole = await self._in_one_piece(context)
                if whole is not None:
                    empty, context.payload = (answer, seen), whole
                    continue
            try:
                smaller = await self._heal(context, refusal, scope) if refusal is not None and left else None
                if smaller is None:
                    context.healed = bool(context.refusals) and refusal is None and answer.status < 400
                    if refusal is not None and context.result in ("", "fitted"):
                        context.result = "refused"
                    await self._relay(context, answer, seen, receive, send, cycle)
                    return
                context.payload = smaller
            finally:
                await answer.close()

    async def _ask(self, context: RequestContext, scope: Scope, target: bytes) -> tuple[Answer, bytes, Refusal | None]:
        """The answer, what had to be read of it to tell whether it is a refusal, and the refusal that it is."""
        headers = scope["headers"]
        if context.payload is not context.body:
            headers = [h for h in headers if h[0] not in OF_THE_BODY]
        context.departs()
        answer = await self.upstream.send("POST", target, headers, context.payload)
        context.request_id = value_of(answer.headers, REQUEST_ID) or value_of(headers, REQUEST_ID) or b""
        if self.extra_calls is not None:
            self.extra_calls.record_response(caller_of(headers), answer.status)
        if context.ladder is None or not context.acts:
            return answer, b"", None
        body = answer.at_hand()
        if body is not None:  # as most are: short, plain and here already
            context.usage = context.api.complete_usage(body) if answer.status == 200 else None
            if context.usage is not None:
                return answer, body, None
            answer.put_back(body)
        if unreadable(answer):
            await answer.close()
            answer = await self.upstream.send("POST", target, plainly(headers), context.payload)
        try:
            seen, refusal = await self.looking.at(context.api, answer, near=not context.sure)
        except BaseException:
            await answer.close()
            raise
        if refusal is not None:
            context.refusals.append(refusal.rule)
        return answer, seen, refusal

    async def _in_one_piece(self, context: RequestContext) -> bytes | None:
        """What was sent, without the wish for a stream: what an empty stream does not say, a plain answer does."""
        try:
            return await self.planner.measuring.unstreamed(context)
        except Exception as error:
            self.planner.caught(context, error)
            return None

    async def _heal(self, context: RequestContext, refusal: Refusal, scope: Scope) -> bytes | None:
        context.returns()
        if context.counting is not None:
            context.counting.cancel()  # somebody waits now: it is counted anew, and at once
        began = time.perf_counter()
        try:
            return await self.planner.healed(context, refusal, scope["headers"])
        finally:
            context.own_seconds += time.perf_counter() - began

    async def _relay(
        self, context: RequestContext, answer: Answer, seen: bytes, receive: Receive, send: Send, cycle: Cycle | None
    ) -> None:
        """Hands the answer on, watching it go by; a short plain one that is here already, as most are, at once."""
        extra = context.headers()
        if context.healed:
            context.result = "healed"
        context.status = answer.status
        if context.usage is not None and context.truncated(context.usage):
            extra.append((b"x-plimsoll-truncated", b"%d" % context.usage.prompt))
        if context.usage is not None and cycle is not None:
            context.begins()
            if handed_on(cycle, answer, seen, extra):
                return
        self._let_go(context)
        kind, packing = value_of(answer.headers, b"content-type"), value_of(answer.headers, b"content-encoding")
        context.tap = tap = Tap(context.api, (kind or b"").decode("latin-1"), (packing or b"").decode("latin-1"))
        await relay(
            answer,
            receive,
            send,
            context.api,
            first=(seen,),
            extra=extra,
            watch=tap.feed,
            started=context.begins,
            cycle=cycle,
            event=log.event,
        )

    def _let_go(self, context: RequestContext) -> None:
        """Nothing of its body is kept while its answer goes by: no refusal can be healed any more."""
        if context.counting is None or context.counting.done():
            context.let_go()
        else:
            context.counting.add_done_callback(context.let_go)

    def _leave(self, context: RequestContext) -> None:
        """Tells the outcome; a count that is still being made is waited for, but not by the client."""
        if context.counting is None or context.counting.done():
            self._is_over(context)
            return
        task = asyncio.create_task(self._late(context, context.counting))
        self.behind.add(task)
        task.add_done_callback(self.behind.discard)

    async def _late(self, context: RequestContext, counting: asyncio.Task[None]) -> None:
        await asyncio.wait([counting])
        self._is_over(context)

    def _is_over(self, context: RequestContext) -> None:
        """Its outcome is told when the loop has written the answer, together with those of others that end now: one
        after the other costs half of what they cost in between."""
        if not self.over:
            asyncio.get_running_loop().call_soon(self._tell)
        self.over.append(context)

    def _tell(self) -> None:
        over, self.over = self.over, []
        for context in over:
            self._told(context)

    def _told(self, context: RequestContext) -> None:
        try:
            outcome = _marked(context, context.outcome())
            self.planner.learn_ratio(context, outcome)
            self.metrics.observe(outcome)
            self.tell(outcome)
        except Exception as error:
            self.planner.caught(context, error)

    async def other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Every other path: passed through."""
        self.metrics.in_flight.inc()
        self.unfitted(scope["method"], target_of(scope))
        try:
            await passthrough(
                scope, receive, send, self.upstream, self._passed, self.settings.body_timeout, self.settings.min_rate
            )
        finally:
            self.metrics.in_flight.dec()

    def unfitted(self, method: str, target: bytes) -> None:
        """Names an endpoint that passes through in the log, once."""
        name = f"{method} {shown(target)}"
        if name not in self.named and len(self.named) < MOST_NAMED:
            self.named.add(name)
            log.event("not fitted: requests pass through as they are, unmeasured", endpoint=name)

    def _passed(self, outcome: Outcome) -> None:
        self.metrics.observe(outcome)
        self.tell(outcome)

    async def close(self) -> None:
        """Waits for requests that are being told to stop, and for counts that are still being made."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while self.metrics.in_flight.value:
                    await asyncio.sleep(0.01)
        if self.behind:
            await asyncio.wait(self.behind, timeout=5)
        self._tell()


def _marked(context: RequestContext, outcome: Outcome) -> Outcome:
    """The outcome, with a mark where its usage says that the upstream cut the prompt without a word."""
    counted, usage = outcome.prompt_sent, outcome.usage
    if usage is None or counted is None or outcome.status != 200 or usage.prompt >= counted:
        return outcome
    return replace(outcome, truncated=True) if truncated(counted, outcome.quality, context.unit, usage) else outcome
