"""Services without an upstream, and requests at the first stages, for the tests of this package."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

from proxy.apis.openai_chat import API
from proxy.config.settings import read_settings
from proxy.model.api import Api
from proxy.model.plan import Mode, Plan
from proxy.model.scan import Total
from proxy.request.context import RequestContext
from proxy.request.prepare import Planner
from proxy.request.response_headers import headers_of, notices_of
from proxy.request.stages import Counted, Planned, Received, Scanned
from proxy.services import Services, build
from proxy.upstreams.internal_client import tenant_of
from proxy.wire.controls import Controls

TENANT = tenant_of(())  # of requests without a key


def services(**environment: str) -> Services:
    """Services whose upstream is never asked."""
    settings = read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1", **environment})
    made = build(settings, lambda outcome: None)
    made.gateway.default.planner.knowledge.offline = True
    return made


class Arrived(RequestContext):
    """A request that has arrived, with what tests ask of its stages."""

    @property
    def stage(self) -> Planned:
        """What was planned."""
        assert self.planned is not None
        return self.planned

    @property
    def scanned(self) -> Scanned | None:
        """What was scanned, if it was understood."""
        return self.stage.scanned

    @property
    def counted(self) -> Counted | None:
        """The window, and the count if there is one."""
        return self.stage.counted

    @property
    def plan(self) -> Plan | None:
        """The plan, if the ladder was descended."""
        return self.stage.plan

    @property
    def proven(self) -> bool:
        """Whether its bytes prove that it fits."""
        return self.stage.proven

    @property
    def total(self) -> Total | None:
        """Its cost, if it was counted without a plan."""
        return self.stage.total

    def headers(self) -> dict[bytes, bytes]:
        """The response headers."""
        return dict(headers_of(self.stage, ""))

    def notices(self) -> list[str]:
        """The notices among them."""
        return notices_of(self.stage)


def arrived(sent: bytes, mode: Mode = Mode.FIT, api: Api = API, **controls: Any) -> Arrived:
    """A request that has arrived."""
    return Arrived(Received(api, mode, "", (), Controls(**controls), sent))


def packed(sent: bytes, mode: Mode = Mode.FIT) -> Arrived:
    """A request that has arrived with a body in gzip."""
    headers = [(b"content-encoding", b"gzip")]
    return Arrived(Received(API, mode, "", headers, body=gzip.compress(sent)))


async def prepare(planner: Planner, context: RequestContext) -> bytes:
    """What is to be sent for it. Raises the error that its client gets."""
    context.planned = await planner.prepare(context.received, context.record)
    if context.planned.error is not None:
        raise context.planned.error
    return context.planned.payload


def prepared(planner: Planner, context: RequestContext) -> bytes:
    """The same, in a loop of its own."""
    return asyncio.run(prepare(planner, context))


def count(planner: Planner, context: Arrived) -> None:
    """Counts what was proven to fit."""
    context.planned = asyncio.run(planner.later.count(context.stage, context.record))
