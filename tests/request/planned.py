"""Services without an upstream, and requests at the first stages, for the tests of this package."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

from proxy.apis.openai_chat import API
from proxy.config.settings import read_settings
from proxy.model.api import Api
from proxy.model.plan import Mode
from proxy.request.context import RequestContext
from proxy.request.prepare import Planner
from proxy.request.stages import Received
from proxy.services import Services, build
from proxy.upstreams.internal_client import tenant_of
from proxy.wire.controls import Controls

TENANT = tenant_of(())  # of requests without a key


def services(**environment: str) -> Services:
    """Services whose upstream is never asked."""
    settings = read_settings({"PLIMSOLL_UPSTREAM": "http://127.0.0.1:9/v1", **environment})
    made = build(settings, lambda outcome: None)
    made.gateway.planner.knowledge.offline = True
    return made


def arrived(sent: bytes, mode: Mode = Mode.FIT, api: Api = API, **controls: Any) -> RequestContext:
    """A request that has arrived."""
    return RequestContext(Received(api, mode, "", (), Controls(**controls), sent))


def packed(sent: bytes, mode: Mode = Mode.FIT) -> RequestContext:
    """A request that has arrived with a body in gzip."""
    headers = [(b"content-encoding", b"gzip")]
    return RequestContext(Received(API, mode, "", headers, body=gzip.compress(sent)))


def prepared(planner: Planner, context: RequestContext) -> bytes:
    """What is to be sent for it."""
    asyncio.run(planner.prepare(context))
    assert context.planned is not None
    return context.planned.payload
