"""POST /inspect/<path of an API>: what would be done with a body. Nothing is sent, and no extra call is made."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from proxy.cache.cache import Cache
from proxy.config.settings import Settings
from proxy.errors import ClientError
from proxy.http.memory_budget import Budget, Room
from proxy.http.relay import ClientDisconnected, Receive, Scope, Send, read_body, send_error
from proxy.model.api import Api
from proxy.model.plan import Mode
from proxy.model.structs import replace
from proxy.request.bugs import FAILED, report_bug
from proxy.request.context import Received, RequestContext
from proxy.request.facts import Knowledge
from proxy.request.model_records import learned_of
from proxy.request.prepare import Planner
from proxy.request.routes import Routes
from proxy.request.work import INLINE_BYTES
from proxy.upstreams.internal_client import tenant_of
from proxy.upstreams.models_listing import Headers
from proxy.wire.controls import controls
from proxy.wire.report import inspection
from proxy.wire.scan import NotUnderstood


@dataclass(frozen=True, slots=True)
class Inspecting:
    """Plans as the gateway does, and returns the plan as JSON."""

    settings: Settings
    planner: Planner
    knowledge: Knowledge
    cache: Cache
    budget: Budget
    routes: Routes | None = None

    async def __call__(self, api: Api, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        headers, room = scope["headers"], self.budget.room()
        try:
            settings = self.settings
            body = await read_body(scope, receive, settings.max_body, settings.body_timeout, room, settings.min_rate)
            payload = msgspec.json.encode(await self.plan_of(api, body, headers, room))
        except ClientError as error:
            await send_error(send, error, api.error_body(error))
            return
        except ClientDisconnected:
            return
        finally:
            room.release()
        response = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(payload))]
        await send({"type": "http.response.start", "status": 200, "headers": response})
        await send({"type": "http.response.body", "body": payload})

    async def plan_of(self, api: Api, body: bytes, headers: Headers, room: Room | None = None) -> dict[str, object]:
        """The JSON of section 7. Raises `ClientError` for a body or a header that is not understood."""
        received = Received(api, Mode.FIT, api.paths[0], headers, controls(headers), body, dry_run=True)
        context = RequestContext(received, room=room)
        try:
            return await self._plan(context)
        except NotUnderstood as error:
            raise ClientError(400, f"Nothing to inspect: {error}.", code="not_understood") from None
        except ClientError:
            raise
        except Exception as error:
            report_bug(context.record, error)
            raise FAILED from None

    async def _plan(self, context: RequestContext) -> dict[str, object]:
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
        scanned = replace(scanned, ladder=ladder, lore=lore, tenant=tenant, learned=learned)
        if (silent := received.api.without_truncation) is not None:
            scanned = await planner.with_loaded(received, scanned)
        context.scanned = scanned
        planned = context.planned = await planner.plans.build(received, scanned, ladder, context.record)
        plan = planned.plan
        assert plan is not None
        body = await planner.plans.render(received.api, scanned, planned) if plan.changed else scanned.plain
        if silent is not None:
            await planner.tell_to_refuse(context, silent)
            body = context.planned.payload if context.planned.refusing else body
        heavy = len(scanned.plain) > INLINE_BYTES  # excerpts are compared with their texts
        report = await planner.plans.pool.run(heavy, inspection, plan, msgspec.Raw(body), context.notices())
        where = {} if self.routes is None else {"upstream": self.routes.target(context).name}
        return {**report, **where, "learned": learned_of(knowledge.cache, knowledge.families, model, tenant)}
