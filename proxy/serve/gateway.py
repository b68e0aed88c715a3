"""Joins it all for one request: prepares, sends, heals, relays, reports; the only module with decisions that wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from proxy.config.settings import Settings
from proxy.errors import ClientError
from proxy.serve.client import (
    BrokenOff,
    Gone,
    Receive,
    Scope,
    Send,
    read_body,
    relay,
    send_error,
    target_of,
    unless_gone,
)
from proxy.serve.knowledge import Headers
from proxy.serve.metrics import Metrics
from proxy.serve.passthrough import CLIENT_LEFT, passthrough
from proxy.serve.planning import Planner, unpacked
from proxy.serve.upstream import Answer, Upstream, UpstreamError
from proxy.serve.visit import Visit
from proxy.types import Mode, Outcome, Refusal
from proxy.wire.controls import controls
from proxy.wire.endpoints import chat
from proxy.wire.headers import value_of
from proxy.wire.refusals import Rules as Refusals
from proxy.wire.refusals import recognise, recognise_event
from proxy.wire.report import inspection, plan_headers
from proxy.wire.tap import Tap, first_event

HEALS = 2  # a refusal is answered with a smaller request at most so often (section 2)
REFUSAL_BYTES = 1 << 20  # an error's body is read whole up to so much; a longer one is no refusal
PATIENCE = 1.0  # seconds that a stream's first bytes wait for its first event, so that a refusal in it can be healed
EVENTS = b"text/event-stream"
REFUSING = frozenset({400, 413, 422, 429, 500, 503})  # the statuses under which "too long" was ever seen


@dataclass(slots=True)
class Gateway:
    """One request to an endpoint that is fitted, from its first byte to its outcome."""

    settings: Settings
    planner: Planner
    upstream: Upstream
    refusals: Refusals
    metrics: Metrics
    tell: Callable[[Outcome], None]
    behind: set[asyncio.Task[None]] = field(default_factory=set)

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /v1/chat/completions."""
        visit = Visit(chat.NAME, self.settings.mode)
        counting: asyncio.Task[None] | None = None
        self.metrics.in_flight.inc()
        try:
            payload = await self._arrive(visit, scope, receive)
            if visit.plan is None and visit.ladder is not None:
                counting = asyncio.create_task(self.planner.count_only(visit, scope["headers"]))
            await self._exchange(visit, payload, scope, receive, send, counting)
        except ClientError as error:
            visit.status, visit.result = error.status, visit.result or "rejected"
            await send_error(send, error, plan_headers(visit.plan, sent=False) if visit.plan else ())
        except UpstreamError as error:
            visit.status, visit.result = error.status, "upstream_error"
            await send_error(send, error.for_client())
        except BrokenOff:
            visit.result = "broken_off"
        except Gone:
            visit.status, visit.result = CLIENT_LEFT, "cancelled"
        finally:
            self.metrics.in_flight.dec()
            await self._leave(visit, counting)

    async def _arrive(self, visit: Visit, scope: Scope, receive: Receive) -> bytes:
        """Reads the request and prepares what to send. Our own time does not count the client's."""
        asked = controls(scope["headers"])
        visit.controls, visit.mode = asked, asked.mode or visit.mode
        visit.body = await read_body(scope, receive, self.settings.max_body, self.settings.body_timeout)
        began = time.perf_counter()
        try:
            return await self.planner.prepare(visit, scope["headers"])
        finally:
            visit.own_seconds += time.perf_counter() - began

    async def _exchange(
        self,
        visit: Visit,
        payload: bytes,
        scope: Scope,
        receive: Receive,
        send: Send,
        counting: asyncio.Task[None] | None,
    ) -> None:
        """Sends, and answers a refusal with a smaller request; what comes then goes to the client as it is."""
        for heals in range(HEALS + 1):
            answer = await self._send(visit, payload, scope, receive)
            try:
                refusal, first = await self._refusal(visit, answer, receive)
                if refusal is not None:
                    visit.refusals.append(refusal.rule)
                    smaller = await self._heal(visit, refusal, scope, counting) if heals < HEALS else None
                    if smaller is not None:
                        payload = smaller
                        continue
                visit.healed = heals > 0 and refusal is None and answer.status < 400
                visit.result = "healed" if visit.healed else visit.result
                await self._relay(visit, answer, first, receive, send)
                return
            finally:
                await answer.close()
                visit.upstream_seconds += time.perf_counter() - visit.sent_at

    async def _send(self, visit: Visit, payload: bytes, scope: Scope, receive: Receive) -> Answer:
        headers = scope["headers"]
        if payload is not visit.body:  # what we wrote anew is not packed
            headers = [(k, v) for k, v in headers if k != b"content-encoding"]
        visit.sent_at = time.perf_counter()
        return await unless_gone(self.upstream.send("POST", target_of(scope), headers, payload), receive)

    async def _refusal(self, visit: Visit, answer: Answer, receive: Receive) -> tuple[Refusal | None, list[bytes]]:
        """Whether the answer says that the request was too long, and what of it had to be read to tell."""
        if not visit.acts or visit.ladder is None:
            return None, []
        if answer.status in REFUSING:
            body = await unless_gone(answer.read(REFUSAL_BYTES), receive)
            return recognise(self.refusals, answer.status, body), [body]
        if answer.status == 200 and (value_of(answer.headers, b"content-type") or b"").startswith(EVENTS):
            data, seen = await unless_gone(self._first_event(answer), receive)
            return (recognise_event(self.refusals, data) if data is not None else None), [seen]
        return None, []

    async def _first_event(self, answer: Answer) -> tuple[bytes | None, bytes]:
        """The data of a stream's first event, and all that was read. Where the upstream sends comments to bridge a
        long wait, they go on to the client rather than wait for it."""
        seen, data = await answer.next(), None
        try:
            async with asyncio.timeout(PATIENCE):
                while (data := first_event(seen)) is None and len(seen) < REFUSAL_BYTES:
                    chunk = await answer.next()
                    if not chunk:
                        break
                    seen += chunk
        except TimeoutError:
            pass
        return data, seen

    async def _heal(
        self, visit: Visit, refusal: Refusal, scope: Scope, counting: asyncio.Task[None] | None
    ) -> bytes | None:
        if counting is not None:
            await counting
        began = time.perf_counter()
        try:
            return await self.planner.healed(visit, refusal, scope["headers"])
        finally:
            visit.own_seconds += time.perf_counter() - began

    async def _relay(self, visit: Visit, answer: Answer, first: list[bytes], receive: Receive, send: Send) -> None:
        """Hands the answer on, watching it go by."""
        visit.status = answer.status
        kind, packing = value_of(answer.headers, b"content-type"), value_of(answer.headers, b"content-encoding")
        visit.tap = tap = Tap((kind or b"").decode("latin-1"), (packing or b"").decode("latin-1"))
        extra = plan_headers(visit.plan, sent=visit.acts) if visit.plan else []

        def watch(chunk: bytes) -> None:
            if visit.first_byte_seconds is None:
                visit.first_byte_seconds = time.perf_counter() - visit.sent_at
            tap.feed(chunk)

        await relay(answer, receive, send, first=first, extra=extra, watch=watch)

    async def _leave(self, visit: Visit, counting: asyncio.Task[None] | None) -> None:
        """Tells the outcome; a count that is still being made is waited for, but not by the client."""
        if counting is not None and not counting.done():
            task = asyncio.create_task(self._late(visit, counting))
            self.behind.add(task)
            task.add_done_callback(self.behind.discard)
            return
        self._told(visit)

    async def _late(self, visit: Visit, counting: asyncio.Task[None]) -> None:
        await asyncio.wait([counting])
        self._told(visit)

    def _told(self, visit: Visit) -> None:
        outcome = visit.outcome()
        self.planner.learn_ratio(visit, outcome)
        self.metrics.observe(outcome)
        self.tell(outcome)

    async def inspect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /inspect/v1/chat/completions: the plan for a body, which is not sent."""
        try:
            body = await read_body(scope, receive, self.settings.max_body, self.settings.body_timeout)
            told = await self.inspected(body, scope["headers"])
        except ClientError as error:
            await send_error(send, error)
            return
        payload = msgspec.json.encode(told)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(payload)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": payload})

    async def inspected(self, body: bytes, headers: Headers) -> dict[str, object]:
        """What would be done with a body. Raises `ClientError` for one that is not understood."""
        visit = Visit(chat.NAME, Mode.FIT, controls=controls(headers))
        try:
            plain = unpacked(body, headers, self.settings.max_body)
            visit.model = chat.glance(plain).model
            visit.ladder = self.planner.ladder(visit, visit.model)
            await self.planner.measure(visit, plain, headers)
            assert visit.plan is not None and visit.prompt is not None
            sent = chat.render(visit.prompt, visit.plan) if visit.plan.changed else plain
            return inspection(visit.plan, msgspec.Raw(sent))
        except chat.NotUnderstood as error:
            raise ClientError(400, f"Nothing to inspect: {error}.", code="not_understood") from None

    async def other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Every other path: passed through."""
        self.metrics.in_flight.inc()
        try:
            await passthrough(scope, receive, send, self.upstream, self._passed, self.settings.body_timeout)
        finally:
            self.metrics.in_flight.dec()

    def _passed(self, outcome: Outcome) -> None:
        self.metrics.observe(outcome)
        self.tell(outcome)

    async def close(self) -> None:
        """Waits for counts that are still being made."""
        if self.behind:
            await asyncio.wait(self.behind, timeout=5)
