"""How a request ends that no answer of the upstream ends: from an exception to its result and what the client gets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from proxy.errors import ClientError, stopped
from proxy.http.client.answer import UNREACHABLE, UpstreamError
from proxy.http.relay import BrokenOff, ClientDisconnected
from proxy.model.structs import replace
from proxy.request.bugs import FAILED, report_bug
from proxy.request.context import RequestContext
from proxy.request.holds import headers_of_hold
from proxy.request.passthrough import CLIENT_LEFT
from proxy.wire.headers import Header
from proxy.wire.report import AS_SENT, plan_headers

EVENT_STREAM = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))


class Ending(NamedTuple):
    """The end of a request. `result`: the outcome's label, empty if it stays as it is. `status`: that of the outcome,
    None if it stays. `error`: what the client gets, with the headers `extra`; None if it has gone, or has the head of
    its answer. `breaks`: the exception goes on to the server, so that the client sees that its answer breaks off."""

    result: str = ""
    status: int | None = None
    error: ClientError | None = None
    extra: Sequence[Header] = ()
    breaks: bool = False


def _rejected(error: ClientError, context: RequestContext) -> Ending:
    plan = None if context.planned is None else context.planned.plan
    unsent = None if plan is None else replace(plan, notes=())  # its steps were not done
    planned = () if unsent is None else plan_headers(unsent, sent=False)
    extra = [header for header in planned if header[0] not in AS_SENT]
    return Ending(context.result or "rejected", error.status, error, [*extra, *headers_of_hold(context.hold)])


def _unreached(failure: UpstreamError, context: RequestContext) -> Ending:
    backend = context.asked or context.home
    if failure.code == UNREACHABLE and backend is not None:
        backend.knowledge.mark_unreachable()
    return Ending("upstream_error", failure.status, failure.for_client())


def _broken_off(error: BrokenOff, context: RequestContext) -> Ending:
    return Ending("broken_off")


def _left(error: ClientDisconnected, context: RequestContext) -> Ending:
    return Ending() if has_all(context) else Ending("cancelled", CLIENT_LEFT)


def _stopped(error: asyncio.CancelledError, context: RequestContext) -> Ending:
    if context.answered is not None:
        return Ending("stopped", breaks=True)
    return Ending("stopped", stopped().status, stopped())


def _failed(error: Exception, context: RequestContext) -> Ending:
    """Where nothing can be forwarded any more; a server may log an exception's text, so it goes no further."""
    report_bug(context.record, error)
    return Ending() if context.answered is not None else Ending("bug", FAILED.status, FAILED)


ENDINGS: Sequence[tuple[type[BaseException], Callable[[Any, RequestContext], Ending]]] = (
    (ClientError, _rejected),
    (UpstreamError, _unreached),
    (BrokenOff, _broken_off),
    (ClientDisconnected, _left),
    (asyncio.CancelledError, _stopped),  # the server stops
    (Exception, _failed),
)


def ending(error: BaseException, context: RequestContext) -> Ending:
    """The end that the first row for the exception names. An exception without a row, which ends the process, goes
    on."""
    for kind, ended in ENDINGS:
        if isinstance(error, kind):
            return ended(error, context)
    return Ending(breaks=True)


def as_stream(error: ClientError, context: RequestContext) -> bytes | None:
    """The error as the stream that a client asked for, where its API has errors of this kind in streams alone."""
    scanned, write = None if context.latest is None else context.latest.scanned, context.received.api.refusal_stream
    if scanned is None or write is None or not scanned.scan.stream:
        return None
    return write(error, scanned.model, int(time.time()))


def has_all(context: RequestContext) -> bool:
    """Whether a client that has left has its whole answer: some leave at the last event."""
    tap = None if context.answered is None else context.answered.tap
    return tap is not None and tap.done
