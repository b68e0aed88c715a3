"""The spans of an outcome: which there are, what is in them, and what never is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from proxy.apis import apis
from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Note
from proxy.model.trace import AttemptSpan, Trace
from proxy.observe.tracing.spans import CLIENT, SERVER, Attributes, Server, Span, spans_of, upstream_server
from tests.observe import outcomes

OPENAI, LOCAL = Server("openai", "api.openai.com", 443), Server("", "127.0.0.1", 8000)
OWN, PARENT, FIRST, SECOND = "a" * 16, "b" * 16, "1" * 16, "2" * 16
TRACE = Trace(
    "c" * 32, OWN, "POST", 100, 900, PARENT, (AttemptSpan(FIRST, 200, 800, 200),), "vendor=1", "chatcmpl-1", "stop"
)
PASSED = Outcome("passthrough", "passed", 200, path="/v1/models", attempts=1, trace=replace(TRACE, method="GET"))
FITTED = replace(
    outcomes.FITTED,
    prompt_sent=4995,
    load_after=0.98,
    messages_sent=34,
    notes=(Note("prune_history", 7793, 4995, 3000, 3000, "gpt-4", "gpt-4"),),
    usage=Usage(4995, 7, 1024, written=512, model="gpt-4-0613"),
    own_seconds=0.002,
    first_byte_seconds=0.1,
    request_id="req_1",
    trace=TRACE,
)


def spans(outcome: Outcome) -> list[Span]:
    return list(spans_of(outcome, {"": OPENAI, "default": OPENAI, "local": LOCAL, "bedrock": Server("bedrock")}))


def own(outcome: Outcome) -> Attributes:
    """The attributes of the request's own span."""
    return spans(outcome)[0].attributes


def test_what_was_not_traced_has_no_spans() -> None:
    assert spans(replace(FITTED, trace=None)) == []


def test_a_request_is_a_server_span_and_each_attempt_a_client_span_below_it() -> None:
    request, attempt = spans(FITTED)
    assert (request.trace_id, request.span_id, request.parent_id) == ("c" * 32, OWN, PARENT)
    assert (attempt.trace_id, attempt.span_id, attempt.parent_id) == ("c" * 32, FIRST, OWN)
    assert (request.kind, request.started, request.ended) == (SERVER, 100, 900)
    assert (attempt.kind, attempt.started, attempt.ended) == (CLIENT, 200, 800)
    assert (request.name, attempt.name) == ("POST /v1/chat/completions", "chat gpt-4")
    assert not request.error and not attempt.error


def test_a_fitted_request_has_the_figures_of_the_log() -> None:
    assert own(FITTED) == {
        "http.request.method": "POST",
        "url.scheme": "http",
        "url.path": "/v1/chat/completions",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "plimsoll.endpoint": "chat",
        "plimsoll.result": "fitted",
        "plimsoll.mode": "fit",
        "plimsoll.ladder": "default",
        "plimsoll.window": 8192,
        "plimsoll.window_source": "litellm",
        "plimsoll.count": "exact",
        "plimsoll.prompt": 7793,
        "plimsoll.prompt_sent": 4995,
        "plimsoll.reserve": 3000,
        "plimsoll.load_before": 1.32,
        "plimsoll.load_after": 0.98,
        "plimsoll.messages": 144,
        "plimsoll.messages_sent": 34,
        "plimsoll.steps": ("prune_history;-2798",),
        "plimsoll.own_seconds": 0.002,
        "plimsoll.upstream_seconds": 0.25,
        "plimsoll.request_id": "req_1",
    }


def test_M11_an_attempt_is_a_call_of_a_model_with_what_was_answered() -> None:
    assert spans(FITTED)[1].attributes == {
        "http.request.method": "POST",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4",
        "gen_ai.request.max_tokens": 3000,
        "gen_ai.response.model": "gpt-4-0613",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 4995,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 1024,
        "gen_ai.usage.cache_creation.input_tokens": 512,
        "gen_ai.conversation.compacted": True,
        "server.address": "api.openai.com",
        "server.port": 443,
        "http.response.status_code": 200,
    }


ENDPOINTS = {
    "chat": ("chat", "openai"),
    "responses": ("chat", "openai"),
    "completions": ("text_completion", "openai"),
    "embeddings": ("embeddings", "openai"),
    "messages": ("chat", "anthropic"),
    "ollama": ("chat", "ollama"),
    "generate": ("text_completion", "ollama"),
}


def test_the_endpoints_are_those_of_the_apis() -> None:
    assert ENDPOINTS.keys() == {api.name for api in apis()}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_M11_a_call_has_the_operation_and_the_provider_of_its_api(endpoint: str) -> None:
    operation, provider = ENDPOINTS[endpoint]
    (_, call) = spans(replace(FITTED, endpoint=endpoint, upstream="local"))
    assert call.name == f"{operation} gpt-4" and call.kind == CLIENT
    assert call.attributes["gen_ai.operation.name"] == operation
    assert call.attributes["gen_ai.provider.name"] == provider, "never the address"
    (_, known) = spans(replace(FITTED, endpoint=endpoint))
    assert known.attributes["gen_ai.provider.name"] == "openai", "the host's, where it is known"


def test_M11_only_the_last_attempt_has_an_answer() -> None:
    attempts = (AttemptSpan(FIRST, 200, 300, 400), AttemptSpan(SECOND, 350, 800, 200))
    _, refused, answered = spans(replace(FITTED, trace=replace(TRACE, attempts=attempts)))
    assert "gen_ai.request.model" in refused.attributes
    assert not any(name.startswith(("gen_ai.response", "gen_ai.usage")) for name in refused.attributes)
    assert answered.attributes["gen_ai.response.id"] == "chatcmpl-1"


def test_M11_each_span_has_the_tracestate_that_came() -> None:
    assert [span.state for span in spans(FITTED)] == ["vendor=1", "vendor=1"]


def test_the_scheme_is_that_of_our_port() -> None:
    (request, _) = spans_of(FITTED, {}, "https")
    assert request.attributes["url.scheme"] == "https"


def test_what_passes_through_is_no_models_call() -> None:
    request, attempt = spans(PASSED)
    assert (request.name, attempt.name) == ("GET /v1/models", "GET")
    assert not any(name.startswith("gen_ai.") for name in request.attributes)
    assert request.attributes["plimsoll.endpoint"] == "passthrough"


def test_a_healed_request_shows_the_refused_attempt() -> None:
    attempts = (AttemptSpan(FIRST, 200, 300, 400), AttemptSpan(SECOND, 350, 800, 200))
    healed = replace(
        FITTED, result="healed", healed=True, refusals=("openai",), trace=replace(TRACE, attempts=attempts)
    )
    request, refused, answered = spans(healed)
    assert not request.error and refused.error and not answered.error
    assert (refused.attributes["error.type"], refused.attributes["http.response.status_code"]) == ("400", 400)
    assert "http.request.resend_count" not in refused.attributes
    assert answered.attributes["http.request.resend_count"] == 1
    assert (request.attributes["plimsoll.refused"], request.attributes["plimsoll.healed"]) == (("openai",), True)


# The result, the status for the client, that of the attempt (None: there was none); what is an error of which span.
ENDS: list[tuple[str, int, int | None, str, str]] = [
    ("passed", 429, 429, "", "429"),
    ("passed", 500, 500, "500", "500"),
    ("upstream_error", 502, 0, "502", "upstream_error"),
    ("cancelled", 499, 0, "", "cancelled"),
    ("broken_off", 200, 200, "broken_off", "broken_off"),
    ("bug", 200, 200, "bug", ""),
    ("unfit", 400, None, "", ""),
]


@pytest.mark.parametrize(("result", "status", "attempt", "of_request", "of_attempt"), ENDS)
def test_an_error_is_one_of_the_side_that_made_it(
    result: str, status: int, attempt: int | None, of_request: str, of_attempt: str
) -> None:
    attempts = () if attempt is None else (AttemptSpan(FIRST, 200, 800, attempt),)
    found = spans(replace(FITTED, result=result, status=status, trace=replace(TRACE, attempts=attempts)))
    assert len(found) == 1 + len(attempts)
    for span, error in zip(found, (of_request, of_attempt), strict=False):
        assert (span.error, span.attributes.get("error.type", "")) == (bool(error), error)


def test_a_request_without_a_response_has_no_status() -> None:
    trace = replace(TRACE, attempts=(AttemptSpan(FIRST, 200, 800),))
    request, attempt = spans(replace(FITTED, result="stopped", status=0, trace=trace))
    for span in (request, attempt):
        assert "http.response.status_code" not in span.attributes


def test_a_stream_has_the_time_until_its_first_chunk() -> None:
    found = spans(replace(FITTED, stream=True))[1].attributes
    assert (found["gen_ai.request.stream"], found["gen_ai.response.time_to_first_chunk"]) == (True, 0.1)


def test_a_switched_request_names_both_models() -> None:
    request, call = spans(replace(FITTED, model_sent="gpt-4o"))
    assert (call.attributes["gen_ai.request.model"], request.attributes["plimsoll.model"]) == ("gpt-4o", "gpt-4")


def test_a_request_that_was_not_cut_is_not_compacted() -> None:
    clamped = Note("clamp_output", 100, 100, 4096, 1200, "gpt-4", "gpt-4")
    request, call = spans(replace(FITTED, notes=(clamped,)))
    assert "gen_ai.conversation.compacted" not in call.attributes
    assert request.attributes["plimsoll.steps"] == ("clamp_output;4096->1200",)


def test_extra_calls_are_counted() -> None:
    found = own(replace(FITTED, extra_calls=2, extra_tokens=300, extra_seconds=0.5, planned=FITTED.notes, notes=()))
    names = ("extra_calls", "extra_tokens", "extra_seconds", "planned")
    assert [found[f"plimsoll.{name}"] for name in names] == [2, 300, 0.5, ("prune_history;-2798",)]


def test_each_attempt_names_its_own_upstream_if_there_are_several() -> None:
    attempts = (AttemptSpan(FIRST, 200, 300, 503, "local"), AttemptSpan(SECOND, 350, 800, 200, "default"))
    moved = replace(FITTED, upstream="default", trace=replace(TRACE, attempts=attempts))
    request, *found = spans(moved)
    assert [(s.attributes["server.address"], s.attributes["plimsoll.upstream"]) for s in found] == [
        ("127.0.0.1", "local"),
        ("api.openai.com", "default"),
    ]
    assert request.attributes["plimsoll.upstream"] == "default"


def test_a_request_that_passed_through_has_one_upstream() -> None:
    assert spans(replace(PASSED, upstream="local"))[1].attributes["server.address"] == "127.0.0.1"


@pytest.mark.parametrize(("upstream", "provider"), [("bedrock", "bedrock"), ("of-old-rules", "openai")])
def test_a_library_and_an_upstream_of_old_rules_have_no_address(upstream: str, provider: str) -> None:
    _, attempt = spans(replace(FITTED, upstream=upstream))
    assert attempt.attributes["gen_ai.provider.name"] == provider
    assert not {"server.address", "server.port"} & attempt.attributes.keys()


def test_a_method_that_nobody_knows_is_other() -> None:
    request, attempt = spans(replace(PASSED, trace=replace(TRACE, method="SECRETS")))
    assert (request.name, attempt.name) == ("_OTHER /v1/models", "_OTHER")


@pytest.mark.parametrize("hostile", ["a\ud800b", "x" * 10_000, "line\nbreak", "\u202eback"])
def test_a_clients_model_is_printable_and_bounded(hostile: str) -> None:
    for outcome in (replace(FITTED, model=hostile), replace(FITTED, model=hostile, model_sent=hostile)):
        for span in spans(outcome):
            for value in (span.name, *span.attributes.values()):
                if isinstance(value, str):
                    assert value.isprintable() and len(value) <= 120


def test_every_attribute_has_a_value_that_can_be_encoded() -> None:
    for outcome in (FITTED, PASSED, replace(FITTED, notes=(), usage=None)):
        for span in spans(outcome):
            values: list[Any] = list(span.attributes.values())
            assert all(isinstance(value, str | bool | int | float | tuple) for value in values)


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("https://api.openai.com/v1", OPENAI),
        ("http://vllm:8000/v1", Server("", "vllm", 8000)),
        ("http://[::1]/v1", Server("", "::1", 80)),
        ("HTTPS://API.OPENAI.COM", OPENAI),
    ],
)
def test_the_server_is_that_of_the_upstreams_url(url: str, server: Server) -> None:
    assert upstream_server(url) == server
