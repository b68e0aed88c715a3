"""Lists of models as a caller may see them, in whatever shape an upstream lists them: those that its rule allows.

It decides nothing about requests for a model: `proxy.request.callers` does.
"""

from __future__ import annotations

import asyncio
import time
from functools import cache

from proxy.apis import error_body, servers
from proxy.apis.paths import shown
from proxy.config.models_list import allowed_only
from proxy.errors import ClientError
from proxy.http.client.answer import UpstreamError
from proxy.http.receiving import Scope, target_of
from proxy.http.relay import Send
from proxy.model.caller_rule import CallerRule
from proxy.model.outcome import PASSTHROUGH, Outcome
from proxy.request.callers import not_allowed, resolved
from proxy.request.models import Response, ask, readable, respond
from proxy.upstreams.models_listing import INLINE_BYTES, MAX_LIST_BYTES, Headers
from proxy.upstreams.upstream import Sender
from proxy.wire.headers import value_of

ENTRY = "/models/"  # stands before the name of one model


def is_list(scope: Scope) -> bool:
    """Whether a request is for a list of models, of any kind of server."""
    return scope["method"] == "GET" and resolved(target_of(scope)).endswith(_lists())


@cache
def _lists() -> tuple[str, ...]:
    return tuple({ending for server in servers().values() for ending in server.lists})


def check_entry(scope: Scope, rule: CallerRule) -> None:
    """Raises `ClientError` for a request for the entry of a model that a rule does not allow."""
    _, found, name = resolved(target_of(scope)).partition(ENTRY)
    if scope["method"] in ("GET", "HEAD") and found and not rule.allows(name):
        raise not_allowed(rule)


async def allowed(found: Response, rule: CallerRule) -> Response:
    """A list as the caller of a rule may see it."""
    if found.status != 200:
        return found
    shapes = [server.models for server in servers().values() if server.models is not None]
    given = found.body, rule.allows, shapes
    body = allowed_only(*given) if len(found.body) <= INLINE_BYTES else await asyncio.to_thread(allowed_only, *given)
    return Response(found.status, body, found.headers)


async def send_allowed(scope: Scope, send: Send, upstream: Sender, headers: Headers, rule: CallerRule) -> Outcome:
    """Answers a request for the list of one upstream, and returns its outcome."""
    began, target = time.perf_counter(), target_of(scope)
    failure: ClientError | None = None
    try:
        found = await allowed(_whole(await ask(upstream, target, readable(headers))), rule)
    except UpstreamError as error:
        failure = error.for_client()
        found = Response(failure.status, error_body(scope["path"], failure))
    await respond(send, found)
    result = "passed" if failure is None else "upstream_error"
    seconds = time.perf_counter() - began
    return Outcome(PASSTHROUGH, result, found.status, upstream_seconds=seconds, path=shown(target), attempts=1)


def _whole(found: Response) -> Response:
    """The same answer. Raises UpstreamError for a list that is too long or in a coding that nobody asked for."""
    if found.status == 200 and (len(found.body) >= MAX_LIST_BYTES or value_of(found.headers, b"content-encoding")):
        raise UpstreamError(502, "upstream_error", "The upstream's list of models cannot be read.")
    return found
