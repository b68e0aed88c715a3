"""POST /inspect/<path of an API>: what would be done with a body. Nothing is sent, and no extra call is made."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from proxy.config.settings import Settings
from proxy.errors import ClientError
from proxy.http.memory_budget import Budget, Room
from proxy.http.receiving import Receive, Scope, read_body
from proxy.http.relay import ClientDisconnected, Send, send_error
from proxy.model.api import Api
from proxy.model.plan import Mode
from proxy.request.backend import Backend
from proxy.request.bugs import FAILED, report_bug
from proxy.request.callers import Callers
from proxy.request.descents import check_too_long
from proxy.request.learned_endpoint import ASKED, is_token, learned_of, no_token
from proxy.request.response_headers import notices_of
from proxy.request.routes import Router
from proxy.request.stages import Descent, Planned, Received, Record, Scanned
from proxy.request.work import INLINE_BYTES, Turns
from proxy.upstreams.internal_client import tenant_of
from proxy.upstreams.models_listing import Headers
from proxy.wire.controls import controls
from proxy.wire.headers import value_of
from proxy.wire.report import inspection
from proxy.wire.scan import NotUnderstood

T = TypeVar("T")


class DryRun(NamedTuple):
    """A request that was only planned. `changes`: whether its plan may change what is sent: not where its mode is
    another than to fit, and not where it is left to the client's agent."""

    received: Received
    scanned: Scanned
    descent: Descent
    changes: bool


@dataclass(frozen=True, slots=True)
class Inspecting:
    """Plans as the gateway does, and returns the plan as JSON."""

    settings: Settings
    routes: Router
    budget: Budget
    turns: Turns = field(default_factory=Turns)
    callers: Callers | None = None

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
        record = Record()
        return await _understood(record, self._report(_received(api, body, headers, room), record))

    async def planned(self, api: Api, body: bytes, headers: Headers) -> DryRun:
        """The plan that `plan_of` shows. Raises as `plan_of`."""
        record = Record()
        received = _received(api, body, headers, None)
        received, home, scanned, descent = await _understood(record, self._plan(received, record))
        left = home.planner.agents.leaves(received, scanned, descent.prompt)
        return DryRun(received, scanned, descent, received.may_change and not left)

    async def _plan(self, received: Received, record: Record) -> tuple[Received, Backend, Scanned, Descent]:
        """A request under the rule of its caller, the upstream that it would go to, and its plan."""
        known, denied = None, None
        if self.callers is not None:
            scanner = self.routes.default.planner.scanner
            received, known, denied = await self.callers.ruled(received, record, scanner)
        routed = await self.routes.choose(received, record, known)
        if (error := denied or routed.error) is not None:
            raise error
        knowledge, planner = routed.home.knowledge, routed.home.planner
        scanned = routed.scanned or known or planner.scanner.scan_now(received)
        scanned = await planner.scanner.whole(received, scanned)
        model, controls, tenant = scanned.model, scanned.controls, tenant_of(received.headers)
        ladder = planner.ladder_for(model, controls)
        await knowledge.refresh(model, ladder, tenant, received.api.name, received.headers)
        learned, lore = knowledge.learned(model, tenant), planner.lore_for(model, controls, ladder)
        learned = knowledge.learned_for(learned, model, len(scanned.plain), controls.window)
        scanned = replace(scanned, ladder=ladder, lore=lore, tenant=tenant, learned=learned)
        scanned = await planner.with_requested(received, scanned)
        scanned = await planner.editor.edited(received, scanned, record)
        descent = await planner.plans.build(received, scanned, ladder, record)
        check_too_long(scanned, descent.plan)
        return received, routed.home, scanned, descent

    async def _report(self, received: Received, record: Record) -> dict[str, object]:
        """Plans a request, and makes the JSON."""
        received, home, scanned, descent = await self._plan(received, record)
        planner, plan = home.planner, descent.plan
        changed = plan.changed and received.may_change
        body = await planner.plans.render(received.api, scanned, descent) if changed else scanned.plain
        planned = Planned(received, body, scanned, descent=descent)
        if received.may_change and (silent := received.api.without_truncation) is not None:
            planned = await planner.told_to_refuse(planned, silent)
        heavy = len(scanned.plain) > INLINE_BYTES  # excerpts are compared with their texts
        shown = msgspec.Raw(planned.payload), notices_of(planned)
        report = await planner.plans.pool.run(heavy, inspection, plan, *shown)
        target = self.routes.target(planned, home)
        where = {"upstream": target.name} if target.name else {}
        learned = learned_of(home.knowledge.cache, home.knowledge.families, scanned.model, scanned.tenant)
        caller = {"caller": scanned.controls.caller} if scanned.controls.caller else {}
        return {**report, **where, **caller, "mode": received.mode, "learned": learned}


def _received(api: Api, body: bytes, headers: Headers, room: Room | None) -> Received:
    """A body that is only planned. Raises `ClientError` for an invalid control header."""
    asked = controls(headers)
    return Received(api, asked.mode or Mode.FIT, api.path, headers, asked, body, dry_run=True, room=room)


async def _understood(record: Record, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work. Raises `ClientError` for a body that is not understood, and for a bug of ours."""
    try:
        return await work
    except NotUnderstood as error:
        raise ClientError(400, f"Nothing to inspect: {error}.", code="not_understood") from None
    except ClientError:
        raise
    except Exception as error:
        report_bug(record, error)
        raise FAILED.with_traceback(None) from None  # else it would keep the frames of each time
