"""Traces end to end: a client, a proxy, an upstream and a collector, on real sockets."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.observe.log import json_line, text_line
from proxy.observe.tracing.spans import CLIENT, SERVER
from proxy.simulator.app import SimulatorConfig
from tests.e2e.services import KEY, PATH, Running, body, plimsoll, simulating, talk
from tests.hostile.harness import HELLO, friendly, running, upstream
from tests.otlp import Export, ReadSpan, read_json, read_protobuf
from tests.recorder import Peer, Recorder, Request, Script, always, answer, recording
from tests.serving import ask, eventually, get, post, run

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTINUED = (f"traceparent: 00-{TRACE}-{SPAN}-01".encode(), b"tracestate: vendor=1", b"baggage: user=2")
DONE = json.dumps({"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}).encode()
TOO_LONG = (
    b'{"error":{"message":"This model\'s maximum context length is 3000 tokens.","code":"context_length_exceeded"}}'
)


def settings(collector: Recorder, **environment: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}", **environment}


@contextlib.asynccontextmanager
async def traced(
    script: Script = always, collecting: Script = always, **environment: str
) -> AsyncIterator[tuple[Recorder, Recorder, Running]]:
    """An upstream, a collector, and a proxy that exports to it as JSON unless the environment says otherwise."""
    async with recording(script) as up, recording(collecting) as collector:
        given = settings(collector, OTEL_EXPORTER_OTLP_PROTOCOL="http/json", **environment)
        async with plimsoll(up.url, **given) as proxy:
            yield up, collector, proxy


def read(request: Request) -> Export:
    """An export, by its own content type."""
    assert request.target == b"/v1/traces"
    readers = {b"application/json": read_json, b"application/x-protobuf": read_protobuf}
    return readers[request.header(b"content-type")[0]](request.body)


async def exported(collector: Recorder, count: int) -> list[ReadSpan]:
    """So many spans, oldest first; waits for them."""
    await eventually(lambda: sum(len(read(r).spans) for r in collector.requests) >= count, 30)
    found = [span for request in collector.requests for span in read(request).spans]
    assert len(found) == count
    return found


def parent_of(request: Request) -> str:
    """The span that an upstream's spans are children of."""
    (value,) = request.header(b"traceparent")
    version, trace_id, span_id, flags = value.decode().split("-")
    assert (version, trace_id, flags) == ("00", TRACE, "01")
    return span_id


@pytest.mark.parametrize("protocol", ["http/json", "http/protobuf"])
def test_a_trace_leads_from_the_client_through_the_proxy_to_the_upstream(protocol: str) -> None:
    async def check() -> None:
        async with recording() as collector, simulating(SimulatorConfig()) as (app, url):
            named = {"OTEL_SERVICE_NAME": "llm-proxy", "OTEL_RESOURCE_ATTRIBUTES": "k8s.pod.name=plimsoll-0"}
            given = settings(collector, OTEL_EXPORTER_OTLP_PROTOCOL=protocol, **named)
            async with plimsoll(url, **given) as proxy:
                assert (await proxy.chat(body(talk(400)), *CONTINUED)).status == 200
                own, attempt = await exported(collector, 2)
                export = read(collector.requests[0])
                assert (
                    export.resource["service.name"] == "llm-proxy" and export.resource["k8s.pod.name"] == "plimsoll-0"
                )
                assert export.scope[0] == "plimsoll"
                assert {own.trace_id, attempt.trace_id} == {TRACE}
                assert (own.parent_id, attempt.parent_id) == (SPAN, own.span_id)
                assert (own.kind, attempt.kind) == (SERVER, CLIENT)
                assert own.started <= attempt.started <= attempt.ended <= own.ended
                sent = dict(app.received[-1].headers)
                assert sent[b"traceparent"] == f"00-{TRACE}-{attempt.span_id}-01".encode()
                assert (sent[b"tracestate"], sent[b"baggage"]) == (b"vendor=1", b"user=2")
                told = await proxy.told()
                assert told.usage is not None
                assert attempt.attributes["gen_ai.usage.input_tokens"] == told.usage.prompt == told.prompt_sent
                assert (own.state, attempt.state) == ("vendor=1", "vendor=1")
                assert own.attributes["plimsoll.prompt"] == told.prompt
                (step,) = own.attributes["plimsoll.steps"]
                assert step.startswith("prune_history;-")
                assert json.loads(json_line(told, 1.0))["trace_id"] == TRACE and f" trace={TRACE}" in text_line(
                    told, 1.0
                )

    run(check())


def test_each_attempt_is_a_span_and_the_parent_of_its_own_request() -> None:
    async def refusing(request: Request, peer: Peer) -> None:
        refused = len(json.loads(request.body)["messages"]) > 100
        await peer.send(answer(TOO_LONG, b"400 No") if refused else answer(DONE))

    async def check() -> None:
        async with traced(refusing) as (up, collector, proxy):
            messages = talk(120, 15)
            assert (await proxy.chat(body(messages, max_tokens=100), *CONTINUED)).status == 200
            own, refused, answered = await exported(collector, 3)
            assert [parent_of(request) for request in up.requests] == [refused.span_id, answered.span_id]
            assert [(s.attributes["http.response.status_code"], s.error) for s in (refused, answered)] == [
                (400, True),
                (200, False),
            ]
            assert (own.attributes["plimsoll.result"], own.attributes["plimsoll.healed"], own.error) == (
                "healed",
                True,
                False,
            )

    run(check())


def test_what_passes_through_is_traced_too() -> None:
    async def check() -> None:
        async with traced() as (up, collector, proxy):
            await ask(proxy.port, get(b"/v1/models", *CONTINUED))
            await ask(proxy.port, post(b"{}", *CONTINUED, target=b"/v1/moderations?key=secret"))
            spans = await exported(collector, 4)
            assert [span.name for span in spans] == ["GET /v1/models", "GET", "POST /v1/moderations", "POST"]
            assert [parent_of(request) for request in up.requests] == [spans[1].span_id, spans[3].span_id]

    run(check())


def test_the_proxys_own_calls_are_below_the_requests_span() -> None:
    async def script(request: Request, peer: Peer) -> None:
        text = "<summary>They counted cargo.</summary>"
        said = {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
        await peer.send(answer(json.dumps(said).encode()))

    async def check() -> None:
        async with traced(script, PLIMSOLL_SUMMARY_MODEL="gpt-4o-mini") as (up, collector, proxy):
            assert (await proxy.chat(body(talk(190), max_tokens=500), *CONTINUED)).status == 200
            own, attempt = await exported(collector, 2)
            parents = {json.loads(request.body)["model"]: parent_of(request) for request in up.requests}
            assert parents == {"gpt-4o-mini": own.span_id, "gpt-4": attempt.span_id}
            assert own.attributes["plimsoll.extra_calls"] == 1 and own.attributes["plimsoll.extra_tokens"] > 0

    run(check())


def test_an_attempt_names_the_upstream_that_it_went_to(tmp_path: Path) -> None:
    async def check() -> None:
        async with recording() as other:
            rows = (("large", 'models = ["large-*"]'), ("files", 'paths = ["/v1/files*"]'))
            text = [f'[[upstream]]\nname = "{name}"\nurl = "{other.url}"\n{which}\n' for name, which in rows]
            (tmp_path / "upstreams.toml").write_text("".join(text))
            async with traced(always, always, PLIMSOLL_RULES=str(tmp_path)) as (up, collector, proxy):
                await proxy.chat(body(talk(2)), *CONTINUED)
                await proxy.chat(body(talk(2), "large-1"), b"x-plimsoll-window: 8000", *CONTINUED)
                await ask(proxy.port, get(b"/v1/files", *CONTINUED))
                attempts = [span for span in await exported(collector, 6) if span.kind == CLIENT]
                assert [span.attributes["server.port"] for span in attempts] == [up.port, other.port, other.port]
                chats = [request for request in (*up.requests, *other.requests) if request.target == PATH]
                assert [parent_of(request) for request in chats] == [span.span_id for span in attempts[:2]]

    run(check())


OFF: list[dict[str, str]] = [{}, {"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}]


@pytest.mark.parametrize("environment", OFF)
def test_headers_stay_as_they_are_without_traces(environment: dict[str, str]) -> None:
    async def check() -> None:
        async with recording() as up, recording() as collector:
            given = settings(collector, **environment) if environment else {}
            async with plimsoll(up.url, **given) as proxy:
                for raw in (post(body(talk(2)), KEY, *CONTINUED, target=PATH), get(b"/v1/models", KEY, *CONTINUED)):
                    await ask(proxy.port, raw)
                    assert up.requests[-1].head.split(b"\r\n")[2:6] == [KEY, *CONTINUED]
                assert (await proxy.told()).trace is None
        assert collector.requests == []

    run(check())


UNSAMPLED: list[tuple[tuple[bytes, ...], dict[str, str]]] = [
    ((f"traceparent: 00-{TRACE}-{SPAN}-00".encode(), b"tracestate: vendor=1"), {}),
    ((b"traceparent: nonsense", b"tracestate: vendor=1"), {"OTEL_TRACES_SAMPLER": "parentbased_always_off"}),
    (CONTINUED, {"OTEL_TRACES_SAMPLER": "always_off"}),
]


@pytest.mark.parametrize(("headers", "environment"), UNSAMPLED)
def test_a_request_that_is_not_sampled_goes_as_it_came(headers: tuple[bytes, ...], environment: dict[str, str]) -> None:
    async def check() -> None:
        async with traced(always, always, **environment) as (up, collector, proxy):
            for raw in (post(body(talk(2)), KEY, *headers, target=PATH), get(b"/v1/models", KEY, *headers)):
                await ask(proxy.port, raw)
                assert up.requests[-1].head.split(b"\r\n")[2 : 3 + len(headers)] == [KEY, *headers]
            await proxy.told(2)
        assert collector.requests == []

    run(check())


def test_a_request_without_a_trace_begins_one_and_its_body_is_not_touched() -> None:
    async def check() -> None:
        async with traced() as (up, collector, proxy):
            sent = body(talk(2))
            await ask(proxy.port, post(sent, KEY, b"tracestate: of=nothing", target=PATH))
            own, attempt = await exported(collector, 2)
            assert own.parent_id == "" and up.requests[0].body == sent
            assert up.requests[0].header(b"traceparent") == [f"00-{own.trace_id}-{attempt.span_id}-01".encode()]
            assert up.requests[0].header(b"tracestate") == []

    run(check())


def test_a_dead_collector_costs_traces_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    async def check() -> None:
        async with recording() as up:
            async with plimsoll(up.url, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9") as proxy:
                for _ in range(3):
                    assert (await proxy.chat(body(talk(2)))).status == 200
                await proxy.told(3)
            assert proxy.services.traces is not None
            assert proxy.services.traces.exporter.results() == {("exported",): 0, ("dropped",): 0, ("failed",): 3}

    run(check())
    assert "traces are not exported" in capfd.readouterr().err


def test_metrics_count_what_was_exported() -> None:
    async def check() -> None:
        async with traced() as (_, collector, proxy):
            await proxy.chat(body(talk(2)))
            await exported(collector, 2)
            await eventually(lambda: proxy.services.traces.exporter.results()["exported",], 20)  # type: ignore[union-attr]
            lines = (await ask(proxy.port, get(b"/metrics"))).body.decode().splitlines()
            found = [line for line in lines if line.startswith("plimsoll_traced_requests_total")]
            assert sorted(found) == [
                'plimsoll_traced_requests_total{result="dropped"} 0.0',
                'plimsoll_traced_requests_total{result="exported"} 1.0',
                'plimsoll_traced_requests_total{result="failed"} 0.0',
            ]

    run(check())


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_export_what_is_queued_when_they_stop(workers: int) -> None:
    with upstream(always) as collector, upstream(friendly) as there:
        given = settings(collector, OTEL_EXPORTER_OTLP_PROTOCOL="http/json")
        with running(there.url, workers=workers, admin=False, **given) as proxy:
            for _ in range(20):
                assert proxy.ask(HELLO).status == 200
            assert proxy.stop() == 0
        spans = [span for request in collector.requests for span in read(request).spans]
        assert len(spans) == 40 and len({span.span_id for span in spans}) == 40
        assert len({span.trace_id for span in spans}) == 20


def test_a_wrong_protocol_stops_the_start() -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    }
    with pytest.raises(TimeoutError, match="must be one of http/protobuf, http/json"):
        with running("http://127.0.0.1:9/v1", workers=1, admin=False, **environment):
            pass


# A request of each API, with and without a stream: its path, its body, the operation, the finish reason of the answer.
SAY = [{"role": "user", "content": "hi"}]
CLAUDE = {"model": "claude-sonnet-4-5", "messages": SAY, "max_tokens": 9}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
CALLS: list[tuple[bytes, dict[str, object], str, str]] = [
    (b"/v1/chat/completions", {"model": "gpt-4", "messages": SAY}, "chat", "stop"),
    (b"/v1/chat/completions", {"model": "gpt-4", "messages": SAY, **STREAM}, "chat", "stop"),
    (b"/v1/responses", {"model": "gpt-4", "input": "hi"}, "chat", ""),  # they have a status instead
    (b"/v1/messages", CLAUDE, "chat", "end_turn"),
    (b"/v1/messages", {**CLAUDE, "stream": True}, "chat", "end_turn"),
    (b"/v1/completions", {"model": "gpt-3.5-turbo-instruct", "prompt": "hi"}, "text_completion", "stop"),
]


@pytest.mark.parametrize(("path", "asked", "operation", "finish"), CALLS)
def test_M11_a_call_is_named_by_its_api_and_has_the_answers_id_and_finish(
    path: bytes, asked: dict[str, object], operation: str, finish: str
) -> None:
    async def check() -> None:
        async with recording() as collector, simulating(SimulatorConfig()) as (_, url):
            async with plimsoll(url, **settings(collector, OTEL_EXPORTER_OTLP_PROTOCOL="http/json")) as proxy:
                request = post(json.dumps(asked).encode(), KEY, b"anthropic-version: 2023-06-01", target=path)
                reply = await ask(proxy.port, request)
                assert reply.status == 200
                _, call = await exported(collector, 2)
                found = call.attributes
                assert call.name == f"{operation} {asked['model']}" and found["gen_ai.operation.name"] == operation
                assert found["gen_ai.provider.name"] == ("anthropic" if b"messages" in path else "openai")
                assert found.get("gen_ai.response.finish_reasons", [""]) == [finish] and finish.encode() in reply.body
                for name in ("gen_ai.response.id", "gen_ai.response.model"):
                    assert found[name] and found[name].encode() in reply.body

    run(check())
