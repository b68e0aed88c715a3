"""The spans of a traced request, made from its outcome: OpenTelemetry's names where there are some, else `plimsoll.*`.

They contain what the log contains: no content, no key, and nothing about the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from urllib.parse import urlsplit

import msgspec

from proxy.apis import apis
from proxy.config.upstreams import DEFAULT, UpstreamRow
from proxy.model.outcome import UNFITTED, Outcome
from proxy.model.trace import AttemptSpan, Trace
from proxy.observe.log import MAX_NAME, printable
from proxy.observe.tracing.providers import BY_ENDPOINT, provider_of
from proxy.wire.report import step_summary

SERVER, CLIENT = 2, 3  # span kinds
USUAL = "chat"  # the operation of another endpoint
PORTS = {"http": 80, "https": 443}
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"))
OTHER_METHOD = "_OTHER"
FAILED = frozenset(("broken_off", "bug"))  # results that are errors of ours or of the upstream, whatever the status
Value = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, Value]


class Span(msgspec.Struct, frozen=True):
    """One span. Ids are hexadecimal; times are nanoseconds since 1970. `parent_id` is empty if it has no
    parent; `state` is the trace's `tracestate`, as the client sent it."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: int
    started: int
    ended: int
    attributes: Attributes
    error: bool
    state: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """An upstream: its provider's name (empty: not known), its host and its port. A library has no host."""

    provider: str = ""
    host: str = ""
    port: int = 0


UNKNOWN = Server()  # of rules that are not in use any more
Servers = Mapping[str, Server]  # by the names of upstreams; that of the only one is empty


def upstream_server(url: str) -> Server:
    """The server of a provider's base URL."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return Server(provider_of(host), host, parts.port or PORTS[parts.scheme])


OPERATIONS: Mapping[str, str] = {api.name: api.operation for api in apis()}  # by endpoint
# What is asked in each attempt and answered in the last one, which are calls of a model
# (https://github.com/open-telemetry/semantic-conventions-genai); then what Plimsoll did, in the names of the log's
# fields. Values that are empty are left out.
ASKED: tuple[tuple[str, Callable[[Outcome], Value | None]], ...] = (
    ("gen_ai.request.model", lambda o: printable(o.model_sent or o.model)),
    ("gen_ai.request.max_tokens", attrgetter("reply_sent")),
    ("gen_ai.request.stream", attrgetter("stream")),
)
ANSWERED: tuple[tuple[str, Callable[[Outcome], Value | None]], ...] = (
    ("gen_ai.response.model", lambda o: printable(o.usage.model) if o.usage else None),
    ("gen_ai.response.id", lambda o: printable(o.trace.response_id) if o.trace else None),
    ("gen_ai.response.finish_reasons", lambda o: (printable(o.trace.finish),) if o.trace and o.trace.finish else None),
    ("gen_ai.usage.input_tokens", lambda o: o.usage.prompt if o.usage else None),
    ("gen_ai.usage.output_tokens", lambda o: o.usage.completion if o.usage else None),
    ("gen_ai.usage.cache_read.input_tokens", lambda o: o.usage.cached if o.usage else None),
    ("gen_ai.usage.cache_creation.input_tokens", lambda o: o.usage.written if o.usage else None),
    ("gen_ai.response.time_to_first_chunk", lambda o: o.first_byte_seconds if o.stream else None),
    ("gen_ai.conversation.compacted", lambda o: any(n.tokens_after < n.tokens_before for n in o.notes)),
)
PLIMSOLL: tuple[tuple[str, Callable[[Outcome], Value | None]], ...] = (
    ("plimsoll.endpoint", attrgetter("endpoint")),
    ("plimsoll.result", attrgetter("result")),
    ("plimsoll.mode", lambda o: str(o.mode)),
    ("plimsoll.ladder", attrgetter("ladder")),
    ("plimsoll.model", lambda o: printable(o.model) if o.model != o.model_sent else None),
    ("plimsoll.window", attrgetter("window")),
    ("plimsoll.window_source", attrgetter("window_source")),
    ("plimsoll.count", attrgetter("quality")),
    ("plimsoll.prompt", attrgetter("prompt")),
    ("plimsoll.prompt_sent", attrgetter("prompt_sent")),
    ("plimsoll.reserve", attrgetter("reserve")),
    ("plimsoll.load_before", attrgetter("load_before")),
    ("plimsoll.load_after", attrgetter("load_after")),
    ("plimsoll.messages", attrgetter("messages_in")),
    ("plimsoll.messages_sent", attrgetter("messages_sent")),
    ("plimsoll.steps", lambda o: tuple(printable(step_summary(note)) for note in o.notes)),
    ("plimsoll.planned", lambda o: tuple(printable(step_summary(note)) for note in o.planned)),
    ("plimsoll.refused", attrgetter("refusals")),
    ("plimsoll.healed", attrgetter("healed")),
    ("plimsoll.truncated", attrgetter("truncated")),
    ("plimsoll.extra_calls", attrgetter("extra_calls")),
    ("plimsoll.extra_tokens", attrgetter("extra_tokens")),
    ("plimsoll.extra_seconds", attrgetter("extra_seconds")),
    ("plimsoll.own_seconds", attrgetter("own_seconds")),
    ("plimsoll.upstream_seconds", attrgetter("upstream_seconds")),
    ("plimsoll.request_id", attrgetter("request_id")),
    ("plimsoll.upstream", attrgetter("upstream")),
    ("plimsoll.bytes_in", attrgetter("bytes_in")),
    ("plimsoll.bytes_out", attrgetter("bytes_out")),
)


def spans_of(o: Outcome, servers: Servers, scheme: str = "http") -> Iterator[Span]:
    """The span of the request, then one for each of its attempts. None if it was not traced. `scheme`: of our port."""
    if o.trace is not None:
        yield _request_span(o, o.trace, scheme)
        for number, attempt in enumerate(o.trace.attempts):
            yield _attempt_span(o, o.trace, servers.get(attempt.upstream or o.upstream, UNKNOWN), attempt, number)


def _request_span(o: Outcome, trace: Trace, scheme: str) -> Span:
    """A span of an HTTP server, with what Plimsoll did: it covers all attempts."""
    method, error = _method(trace), _error_type(o)
    attributes: Attributes = {"http.request.method": method, "url.scheme": scheme}
    if o.path:
        attributes |= {"url.path": o.path, "http.route": o.path}
    if o.status:
        attributes["http.response.status_code"] = o.status
    if error:
        attributes["error.type"] = error
    attributes |= {name: value for name, of in PLIMSOLL if (value := of(o))}
    return Span(
        trace_id=trace.trace_id,
        span_id=trace.span_id,
        parent_id=trace.parent_id,
        name=f"{method} {o.path}".rstrip(),
        kind=SERVER,
        started=trace.started,
        ended=trace.ended,
        attributes=attributes,
        error=bool(error),
        state=trace.state,
    )


def _attempt_span(o: Outcome, trace: Trace, server: Server, attempt: AttemptSpan, number: int) -> Span:
    """A span of an HTTP client, which is a call of a model where the endpoint is fitted. A response that failed after
    its head counts as the outcome does."""
    method, last = _method(trace), number == len(trace.attempts) - 1
    attributes: Attributes = {"http.request.method": method}
    operation = _call(o, server, last, attributes)
    if server.host:
        attributes |= {"server.address": server.host, "server.port": server.port}
    if attempt.upstream:
        attributes["plimsoll.upstream"] = attempt.upstream
    if number:
        attributes["http.request.resend_count"] = number
    if attempt.status:
        attributes["http.response.status_code"] = attempt.status
    error = str(attempt.status) if attempt.status >= 400 else ""
    if not attempt.status or (last and o.result == "broken_off"):
        error = o.result
    if error:
        attributes["error.type"] = error
    return Span(
        trace_id=trace.trace_id,
        span_id=attempt.span_id,
        parent_id=trace.span_id,
        name=operation or method,
        kind=CLIENT,
        started=attempt.started,
        ended=attempt.ended,
        attributes=attributes,
        error=bool(error),
        state=trace.state,
    )


def _call(o: Outcome, server: Server, last: bool, attributes: Attributes) -> str:
    """Adds what makes a span a call of a model. Returns its name: operation and model; empty if it is none."""
    if o.endpoint in UNFITTED:
        return ""
    operation = OPERATIONS.get(o.endpoint, USUAL)
    attributes["gen_ai.operation.name"] = operation
    if provider := server.provider or BY_ENDPOINT.get(o.endpoint, ""):
        attributes["gen_ai.provider.name"] = provider
    rows = (*ASKED, *ANSWERED) if last else ASKED
    attributes |= {name: value for name, of in rows if (value := of(o))}
    return f"{operation} {attributes.get('gen_ai.request.model', '')}"[:MAX_NAME].rstrip()


def _method(trace: Trace) -> str:
    return trace.method if trace.method in METHODS else OTHER_METHOD


def _error_type(o: Outcome) -> str:
    """Why the request's span is an error; empty if it is none. A 4xx is the client's error, not the server's."""
    if o.result in FAILED:
        return o.result
    return str(o.status) if o.status >= 500 else ""


def provider_names(url: str, upstreams: Iterable[UpstreamRow]) -> dict[str, str]:
    """OpenTelemetry's names of the providers behind the upstream at a URL and behind those of rows."""
    default = upstream_server(url).provider
    named = {row.name: upstream_server(row.url).provider if row.url else row.provider for row in upstreams}
    return {"": default, DEFAULT: default, **named}
