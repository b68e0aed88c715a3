"""POST /inspect/v1/chat/completions: what would be done with a body; it is not sent, and no summary is asked for."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from proxy.apis import error_body
from proxy.config.settings import Settings
from proxy.errors import ClientError
from proxy.http.memory_budget import Budget, Room
from proxy.http.relay import ClientDisconnected, Receive, Scope, Send, read_body, send_error
from proxy.model.api import Api
from proxy.model.plan import Mode
from proxy.request.context import RequestContext
from proxy.request.model_records import learned_of
from proxy.request.prepare import FAILED, Planner
from proxy.upstreams.internal_client import tenant_of
from proxy.upstreams.models_listing import Headers
from proxy.wire.controls import controls
from proxy.wire.report import inspection
from proxy.wire.scan import NotUnderstood


@dataclass(frozen=True, slots=True)
class Inspecting:
    """Plans as the gateway does, and tells the plan."""

    settings: Settings
    planner: Planner
    budget: Budget

    async def __call__(self, api: Api, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        headers, room = scope["headers"], self.budget.room()
        try:
            settings = self.settings
            body = await read_body(scope, receive, settings.max_body, settings.body_timeout, room, settings.min_rate)
            payload = msgspec.json.encode(await self.plan_of(api, body, headers, room))
        except ClientError as error:
            await send_error(send, error, error_body(scope["path"], error))
            return
        except ClientDisconnected:
            return
        finally:
            room.leave()
        told = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(payload))]
        await send({"type": "http.response.start", "status": 200, "headers": told})
        await send({"type": "http.response.body", "body": payload})

    async def plan_of(self, api: Api, body: bytes, headers: Headers, room: Room | None = None) -> dict[str, object]:
        """The JSON of section 7. Raises `ClientError` for a body or a header that is not understood."""
        context = RequestContext(api, Mode.FIT, controls(headers), body=body, asks=False, room=room)
        measuring, knowledge = self.planner.measuring, self.planner.knowledge
        try:
            model = (await measuring.look(context, headers)).model
            context.caller = tenant_of(headers)
            ladder = self.planner.ladder_for(context)
            await knowledge.refresh(model, ladder, context.caller)
            context.learned = knowledge.learned(model, context.caller)
            context.lore = self.planner.lore_for(context, ladder)
            made = await measuring.measure(context, headers, ladder)
            sent = await measuring.render(context, made) if made.changed else context.plain
            told = inspection(made, msgspec.Raw(sent), context.notices())
            return {**told, "learned": learned_of(knowledge.cache, knowledge.families, model, context.caller)}
        except NotUnderstood as error:
            raise ClientError(400, f"Nothing to inspect: {error}.", code="not_understood") from None
        except ClientError:
            raise
        except Exception as error:
            self.planner.caught(context, error)
            raise FAILED from None
