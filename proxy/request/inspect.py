"""POST /inspect/<path of an API>: what would be done with a body. Nothing is sent, and no extra call is made."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from proxy.cache.cache import Cache
from proxy.config.settings import Settings
from proxy.errors import ClientError
from proxy.http.memory_budget import Budget, Room
from proxy.http.receiving import Receive, Scope, read_body
from proxy.http.relay import ClientDisconnected, Send, send_error
from proxy.model.api import Api
from proxy.model.plan import Mode
from proxy.model.structs import replace
from proxy.request.bugs import FAILED, report_bug
from proxy.request.context import RequestContext
from proxy.request.facts import Knowledge
from proxy.request.learned_endpoint import ASKED, is_token, learned_of, no_token
from proxy.request.prepare import Planner, check_too_long
from proxy.request.routes import Routes
from proxy.request.stages import Received
from proxy.request.work import INLINE_BYTES, Turns
from proxy.upstreams.internal_client import tenant_of
from proxy.upstreams.models_listing import Headers
from proxy.wire.controls import controls
from proxy.wire.headers import value_of
from proxy.wire.report import inspection
from proxy.wire.scan import NotUnderstood

T = TypeVar("T")
Backing = tuple[Knowledge, Planner]  # of the upstream that a request would go to


@dataclass(frozen=True, slots=True)
class Inspecting:
    """Plans as the gateway does, and returns the plan as JSON."""

    settings: Settings
    planner: Planner
    knowledge: Knowledge
    cache: Cache
    budget: Budget
    routes: Routes | None = None
    turns: Turns = field(default_factory=Turns)

    async def __call__(self, api: Api, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        headers, token = scope["headers"], self.settings.admin_token
        try:
            if token is not None and not is_token(value_of(headers, ASKED), token):
                raise no_token()
            payload = msgspec.json.encode(await self.answer(lambda body: api, scope, receive))
        except ClientError as error:
            await send_error(send, error, api.response.error_body(error))
            return
        except ClientDisconnected:
            return
        response = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(payload))]
        await send({"type": "http.response.start", "status": 200, "headers": response})
        await send({"type": "http.response.body", "body": payload})

    async def answer(self, api_of: Callable[[bytes], Api], scope: Scope, receive: Receive) -> dict[str, object]:
        """The JSON for the body of a request to inspect, in its turn; bodies that wait take no memory. Raises
        `ClientError` and `ClientDisconnected`."""
        settings, room = self.settings, self.budget.room(scope)
        try:
            async with self.turns.turn():
                body = await read_body(
                    scope, receive, settings.max_body, settings.body_timeout, room, settings.min_rate
                )
                return await self.plan_of(api_of(body), body, scope["headers"], room)
        finally:
            room.release()

    async def plan_of(self, api: Api, body: bytes, headers: Headers, room: Room | None = None) -> dict[str, object]:
        """The JSON of section 7. Raises `ClientError` for a body or a header that is not understood."""
        context = _context(api, body, headers, room)
        return await _or_client_error(context, self._report(context))

    async def planned(self, api: Api, body: bytes, headers: Headers) -> RequestContext:
        """The stages of a body, with the plan that `plan_of` shows. Raises as `plan_of`."""
        context = _context(api, body, headers, None)
        await _or_client_error(context, self._plan(context))
        return context

    async def _plan(self, context: RequestContext) -> Backing:
        """Plans the request of a context."""
        received, knowledge, planner = context.received, self.knowledge, self.planner
        if self.routes is None:
            context.scanned = planner.scanner.scan_now(received)
        else:
            backend = await self.routes.choose(context)
            knowledge, planner = backend.knowledge, backend.planner
        scanned = await planner.scan(context)
        model, controls, tenant = scanned.model, scanned.controls, tenant_of(received.headers)
        ladder = planner.ladder_for(model, controls)
        await knowledge.refresh(model, ladder, tenant, received.api.name, received.headers)
        learned, lore = knowledge.learned(model, tenant), planner.lore_for(model, controls, ladder)
        learned = knowledge.learned_for(learned, model, len(scanned.plain), controls.window)
        scanned = replace(scanned, ladder=ladder, lore=lore, tenant=tenant, learned=learned)
        context.scanned = scanned = await planner.with_requested(received, scanned)
        context.planned = await planner.plans.build(received, scanned, ladder, context.record)
        if context.plan is not None:
            check_too_long(scanned, context.plan)
        return knowledge, planner

    async def _report(self, context: RequestContext) -> dict[str, object]:
        """Plans the request of a context, and makes the JSON."""
        knowledge, planner = await self._plan(context)
        received, scanned, planned = context.received, context.scanned, context.planned
        assert scanned is not None and planned is not None and planned.plan is not None
        plan = planned.plan
        body = await planner.plans.render(received.api, scanned, planned) if plan.changed else scanned.plain
        if (silent := received.api.without_truncation) is not None:
            await planner.tell_to_refuse(context, silent)
            planned = context.planned
            body = planned.payload if planned is not None and planned.refusing else body
        heavy = len(scanned.plain) > INLINE_BYTES  # excerpts are compared with their texts
        report = await planner.plans.pool.run(heavy, inspection, plan, msgspec.Raw(body), context.notices())
        where = {} if self.routes is None else {"upstream": self.routes.target(context).name}
        learned = learned_of(knowledge.cache, knowledge.families, scanned.model, scanned.tenant)
        return {**report, **where, "learned": learned}


def _context(api: Api, body: bytes, headers: Headers, room: Room | None) -> RequestContext:
    """The context of a body that is only planned. Raises `ClientError` for an invalid control header."""
    received = Received(api, Mode.FIT, api.paths[0], headers, controls(headers), body, dry_run=True)
    return RequestContext(received, room=room)


async def _or_client_error(context: RequestContext, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work. Raises `ClientError` for a body that is not understood, and for a bug of ours."""
    try:
        return await work
    except NotUnderstood as error:
        raise ClientError(400, f"Nothing to inspect: {error}.", code="not_understood") from None
    except ClientError:
        raise
    except Exception as error:
        report_bug(context.record, error)
        raise FAILED.with_traceback(None) from None  # else it would keep the frames of each time
