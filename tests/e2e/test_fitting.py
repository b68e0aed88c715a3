"""A fitted endpoint over real sockets: what fits passes byte for byte, what does not is made to fit and reported."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.observe.log import json_line, text_line
from proxy.request import refusal_detection
from proxy.simulator.app import SimulatorConfig
from tests.e2e.services import KEY, PATH, before_simulator, body, error, ours, plimsoll, sentence, talk
from tests.recorder import EVENTS, Peer, Request, chunk, recording
from tests.serving import ask, dialling, eventually, get, post, run

DONE = b"data: [DONE]\n\n"
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
HI = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1234,"completion_tokens":2,"total_tokens":1236}}\n\n'

ODD = {
    "white space and key order": b'\n { "messages" :\t[ {"content": "Hi" ,"role":"user"} ] ,\r\n"model":"gpt-4o"  } \n',
    "escapes": rb'{"model":"gpt-4o","messages":[{"role":"user","content":"\u00fc\ud83d\ude00\/ \u0041"}]}',
    "raw letters": '{"model":"gpt-4o","messages":[{"role":"user","content":"ü😀 漢"}]}'.encode(),
    "duplicate keys": b'{"model":"gpt-3.5-turbo","model":"gpt-4o","messages":[],"messages":[{"role":"user",'
    b'"content":"a","content":"b"}],"seed":1,"seed":2}',
    "unknown fields": b'{"model":"gpt-4o","messages":[{"role":"user","content":"Hi","x":[1.50,1e2]}],"y":{"a":-0.0}}',
    "special tokens": b'{"model":"gpt-4o","messages":[{"role":"user","content":"<|endoftext|><|im_start|>"}]}',
    "large numbers": b'{"model":"gpt-4o","messages":[{"role":"user","content":"Hi"}],"seed":12345678901234567890123}',
}


@pytest.mark.parametrize("sent", ODD.values(), ids=ODD.keys())
def test_a_request_that_fits_arrives_with_the_same_bytes(sent: bytes) -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(sent)
            assert (reply.status, reply.body) == (200, b"{}")
            assert [r.body for r in up.requests] == [sent]
            told = await proxy.told()
            assert (told.result, told.model, told.prompt == told.prompt_sent, told.notes) == (
                *("passed", "gpt-4o", True),
                (),
            )

    run(check())


def test_a_request_near_the_line_that_fits_arrives_with_the_same_bytes() -> None:
    sent = json.dumps({"messages": talk(100), "model": "gpt-4"}, indent=3).encode()  # too long for a proof by its bytes

    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(sent)
            assert up.requests[0].body == sent
            assert 4_000 < int(ours(reply)["tokens"]) == int(ours(reply)["tokens-sent"]) < 7_600

    run(check())


def test_headers_are_forwarded_and_ours_are_not() -> None:
    sent = body(talk(2), "gpt-4o")
    kept = [b"openai-organization: org", b"x-stainless-lang: python", b"accept-encoding: gzip, br", b"cookie: a=b"]
    kept += [b"traceparent: 00-1", b"X-Mixed: Case"]
    mine = [b"x-plimsoll-window: 9000", b"x-plimsoll-mode: fit", b"X-Plimsoll-Ladder: chat", b"x-plimsoll-pin: 0"]
    mine += [b"x-plimsoll-later: 1"]

    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            await proxy.chat(sent, *kept, *mine)
            lines = [line.lower() for line in up.requests[0].head.split(b"\r\n")[1:]]
            assert all(line.lower() in lines for line in (*kept, KEY))
            assert not [line for line in lines if line.startswith(b"x-plimsoll")]
            assert up.requests[0].header(b"content-length") == [b"%d" % len(sent)]

    run(check())


def test_the_query_goes_along_and_other_spellings_of_the_path_pass_through() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            sent = post(body(talk(400)), KEY, target=PATH + b"?api-version=1&x=%20")
            assert (await ask(proxy.port, sent)).status == 200
            odd = post(b"{}", KEY, target=b"/v1/chat%2Fcompletions")
            await ask(proxy.port, odd)
            await ask(proxy.port, get(PATH + b"?limit=2"))
            await ask(proxy.port, get(PATH + b"/chatcmpl-1/messages"))
            assert [r.target for r in up.requests] == [
                PATH + b"?api-version=1&x=%20",
                b"/v1/chat%2Fcompletions",
                PATH + b"?limit=2",
                PATH + b"/chatcmpl-1/messages",
            ]
            assert [o.endpoint for o in proxy.outcomes] == ["chat", "passthrough", "passthrough", "passthrough"]

    run(check())


def test_without_v1_in_the_base_url_it_is_fitted_too() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            bare = PATH.removeprefix(b"/v1")
            reply = await ask(proxy.port, post(body(talk(400)), KEY, target=bare + b"?x=1"))
            assert (reply.status, (await proxy.told()).result) == (200, "fitted")
            await ask(proxy.port, get(bare))
            await ask(proxy.port, post(b"{}", KEY, target=b"/chat%2Fcompletions"))
            assert [o.endpoint for o in proxy.outcomes] == ["chat", "passthrough", "passthrough"]
            assert [r.target.endswith(b"/chat/completions?x=1") for r in up.requests] == [True, False, False]

    run(check())


def test_a_packed_body_that_fits_is_not_touched() -> None:
    sent = gzip.compress(body(talk(2), "gpt-4o"))

    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(sent, b"content-encoding: gzip")
            assert up.requests[0].body == sent
            assert up.requests[0].header(b"content-encoding") == [b"gzip"]
            assert ours(reply)["count"] == "exact"

    run(check())


def test_a_packed_body_that_must_be_cut_is_sent_plain() -> None:
    sent = gzip.compress(body(talk(400)))

    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(sent, b"Content-Encoding: GZIP", b"content-digest: sha-256=:abc=:")
            assert reply.status == 200
            got = up.requests[0]
            assert len(json.loads(got.body)["messages"]) < 402
            assert got.header(b"content-length") == [b"%d" % len(got.body)]
            assert got.header(b"content-encoding") == got.header(b"content-digest") == []
            assert ours(reply)["steps"].startswith("prune_history;-")

    run(check())


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def with_results(count: int, rows: int) -> list[dict[str, Any]]:
    """An agent's run: so many calls, each with a result of so many rows."""
    run = [{"role": "user", "content": "Count the ships."}]
    for i in range(count):
        call = {"id": f"call_{i}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        run.append({"role": "assistant", "content": None, "tool_calls": [call]})  # type: ignore[dict-item]
        result = json.dumps({"total": rows, "ships": [{"name": sentence(j, 6), "place": j} for j in range(rows)]})
        run.append({"role": "tool", "tool_call_id": f"call_{i}", "content": result})
    return run


CHANGES: dict[str, tuple[bytes, dict[str, str], str, str]] = {
    "prune": (body(talk(400)), {}, "prune_history", "prune_history;-"),
    "trim": (body(with_results(3, 200), tools=[TOOL]), {}, "compact_json", "compact_json;-"),
    "clamp": (body(talk(60), max_tokens=6_000), {}, "clamp_output", "clamp_output;6000->"),
    "switch": (
        body(talk(400)),
        {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": "gpt-4o-mini"},
        "switch_model",
        "switch_model;gpt-4->gpt-4o-mini",
    ),
    "excerpt": (
        body([{"role": "user", "content": sentence(0, 20_000)}]),
        {},
        "excerpt_texts",
        "excerpt_texts;-",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_request_that_does_not_fit_is_made_to_and_every_change_is_reported(change: str) -> None:
    sent, environment, step, told = CHANGES[change]

    async def check() -> None:
        windows = {"gpt-4": 8_192, "gpt-4o-mini": 128_000}
        async with before_simulator(SimulatorConfig(windows=windows), **environment) as (up, proxy):
            assert await straight(proxy.services.settings.upstream, sent) == 400
            reply = await proxy.chat(sent)
            assert reply.status == 200
            headers, outcome = ours(reply), await proxy.told()
            assert headers["steps"].startswith(told)
            assert headers["count"] == "exact"
            usage = json.loads(reply.body)["usage"]["prompt_tokens"]
            assert int(headers["tokens-sent"]) == usage == outcome.prompt_sent
            assert int(headers["tokens"]) == outcome.prompt
            got = up.received[-1].json()
            assert headers.get("max-tokens") == (str(got["max_tokens"]) if "max_tokens" in got else None)
            assert headers.get("model") == (None if got["model"] == "gpt-4" else got["model"])
            assert (outcome.result, outcome.notes[0].step) == ("fitted", step)
            assert outcome.usage is not None and outcome.usage.prompt == usage
            assert outcome.prompt_sent + outcome.reply_sent + 100 <= outcome.window if outcome.reply_sent else True

    run(check())


async def straight(url: str, sent: bytes) -> int:
    """The status that the upstream itself answers."""
    port = int(url.rsplit(":", 1)[1].partition("/")[0])
    return (await ask(port, post(sent, KEY, target=PATH))).status


def test_what_a_step_did_not_change_keeps_its_bytes() -> None:
    odd = rb'{"seed":1e2,"model":"gpt-4","x":"\u00e9\/","messages":[%b]}' % b" ,\n".join(
        b'{"content" : "%b", "role":"user"}' % sentence(i).encode() for i in range(400)
    )

    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            await proxy.chat(odd)
            got = up.requests[0].body
            assert got.startswith(rb'{"seed":1e2,"model":"gpt-4","x":"\u00e9\/","messages":[{"content" : "Entry 0')
            assert len(got) < len(odd)
            assert got.endswith(b'{"content" : "%b", "role":"user"}]}' % sentence(399).encode())

    run(check())


def test_what_was_done_shows_in_the_metrics_and_in_the_log() -> None:
    sent = body(talk(400), max_tokens=900)

    async def check() -> None:
        async with before_simulator(SimulatorConfig()) as (_, proxy):
            await proxy.chat(sent)
            outcome = await proxy.told()
            metrics = (await ask(proxy.port, get(b"/metrics"))).body.decode()
            cut = (outcome.prompt or 0) - (outcome.prompt_sent or 0)
            labels = 'endpoint="chat",model="gpt-4",step="prune_history"'
            assert f"plimsoll_cut_tokens_total{{{labels}}} {float(cut)}" in metrics
            assert 'plimsoll_requests_total{endpoint="chat",model="gpt-4",result="fitted",status="200"} 1.0' in metrics
            assert "plimsoll_requests_in_flight 0.0" in metrics
            line = json.loads(json_line(outcome, 1.0))
            assert line["steps"] == f"prune_history;-{cut}"
            assert (line["prompt"], line["window"], line["messages"]) == (outcome.prompt, 8_192, 402)
            assert line["messages_sent"] == outcome.messages_sent < 402
            assert "prune_history" in text_line(outcome, 1.0)
            assert outcome.own_seconds > 0 and outcome.upstream_seconds > 0

    run(check())


# Streams.


def gated(*parts: bytes) -> tuple[Callable[[Request, Peer], Any], asyncio.Semaphore]:
    """A script that sends a stream's parts one by one, each when it is let."""
    gate = asyncio.Semaphore(0)

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS)
        for part in parts:
            await gate.acquire()
            await peer.send(chunk(part))
        await peer.send(chunk(b""))

    return script, gate


@pytest.mark.parametrize("sent", [body(talk(400), stream=True), body(talk(2), "gpt-4o", stream=True)])
def test_a_stream_is_handed_on_chunk_by_chunk(sent: bytes) -> None:
    parts = (ROLE + HI, b": wait\n\n", HI[:20], HI[20:], USAGE + DONE)

    async def check() -> None:
        script, gate = gated(*parts)
        async with recording(script) as up, plimsoll(up.url) as proxy, dialling(proxy.port) as client:
            await client.send(post(sent, KEY, target=PATH))
            for i, part in enumerate(parts):
                gate.release()  # the next part only once the last one was seen
                if i == 0:
                    assert (await client.head()).header(b"content-type") == [b"text/event-stream"]
                assert await client.reader.readexactly(len(chunk(part))) == chunk(part)
            assert await client.reader.readexactly(5) == b"0\r\n\r\n"
            told = await proxy.told()
            assert told.usage is not None and (told.usage.prompt, told.stream) == (1234, True)

    run(check())


def test_the_first_chunk_of_a_short_request_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no content yet is passed on at once too, where the request is far from the line."""
    monkeypatch.setattr(refusal_detection, "FIRST_EVENT_S", 600.0)

    async def check() -> None:
        script, gate = gated(ROLE, HI + DONE)
        async with recording(script) as up, plimsoll(up.url) as proxy, dialling(proxy.port) as client:
            await client.send(post(body(talk(2), "gpt-4o", stream=True), KEY, target=PATH))
            gate.release()
            await client.head()
            assert await client.reader.readexactly(len(chunk(ROLE))) == chunk(ROLE)
            gate.release()

    run(check())


def test_comments_that_bridge_a_wait_reach_the_client_while_nothing_else_comes() -> None:
    bridge = b": PROCESSING\n\n"

    async def check() -> None:
        script, gate = gated(bridge, HI + DONE)
        async with recording(script) as up, plimsoll(up.url) as proxy, dialling(proxy.port) as client:
            await client.send(post(body(talk(400), stream=True), KEY, target=PATH))
            gate.release()
            await client.head()
            assert await client.reader.readexactly(len(chunk(bridge))) == chunk(bridge)
            gate.release()  # only now does the rest come
            assert await client.reader.readexactly(len(chunk(HI + DONE))) == chunk(HI + DONE)

    run(check())


@pytest.mark.parametrize("sent", [body(talk(400)), body(talk(2), "gpt-4o")])
def test_a_client_that_leaves_before_the_head_ends_the_upstreams_work(sent: bytes) -> None:
    async def waits(request: Request, peer: Peer) -> None:
        await peer.gone()

    async def check() -> None:
        async with recording(waits) as up, plimsoll(up.url) as proxy:
            async with dialling(proxy.port) as client:
                await client.send(post(sent, KEY, target=PATH))
                await eventually(lambda: up.requests, 30)
            await eventually(lambda: up.open == 0, 30)
            assert (await proxy.told()).result == "cancelled"

    run(check())


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_a_client_that_leaves_within_a_stream_ends_the_upstreams_work(leave: str) -> None:
    async def streams(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS, chunk(HI))
        await peer.gone()

    async def check() -> None:
        async with recording(streams) as up, plimsoll(up.url) as proxy:
            async with dialling(proxy.port) as client:
                await client.send(post(body(talk(400), stream=True), KEY, target=PATH))
                await client.head()
                if leave == "reset":
                    client.reset()
            await eventually(lambda: up.open == 0, 30)
            told = await proxy.told()
            assert (told.result, told.prompt is not None) == ("cancelled", True)

    run(check())


def test_a_client_that_leaves_while_a_stream_is_looked_at_ends_the_upstreams_work() -> None:
    async def silent(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS, chunk(b": wait\n\n"))
        await peer.gone()

    async def check() -> None:
        async with recording(silent) as up, plimsoll(up.url) as proxy:
            async with dialling(proxy.port) as client:
                await client.send(post(body(talk(400), stream=True), KEY, target=PATH))
                await eventually(lambda: up.requests, 30)
            await eventually(lambda: up.open == 0, 30)

    run(check())


REFUSAL = b'data: {"error":{"message":"This model\'s maximum context length is 4096 tokens.","code":400}}\n\n'


def test_nothing_is_sent_again_once_a_byte_of_content_went_out() -> None:
    async def refuses_late(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS, chunk(HI), chunk(REFUSAL), chunk(DONE), chunk(b""))

    async def check() -> None:
        async with recording(refuses_late) as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(body(talk(100), stream=True))
            assert reply.body == HI + REFUSAL + DONE
            assert len(up.requests) == 1

    run(check())


def test_an_upstream_that_dies_before_its_answer_is_told_and_not_asked_again() -> None:
    async def dies(request: Request, peer: Peer) -> None:
        peer.reset()

    async def check() -> None:
        async with recording(dies) as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(body(talk(400)))
            assert (reply.status, error(reply)["code"]) == (502, "upstream_error")
            assert len(up.requests) == 1
            assert (await proxy.told()).result == "upstream_error"

    run(check())


def test_an_answer_that_breaks_off_is_not_ended() -> None:
    async def breaks(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS, chunk(HI))
        peer.reset()

    async def check() -> None:
        async with recording(breaks) as up, plimsoll(up.url) as proxy, dialling(proxy.port) as client:
            await client.send(post(body(talk(400), stream=True), KEY, target=PATH))
            await client.head()
            rest = await client.rest()
            assert b"upstream_error" in rest and not rest.endswith(b"0\r\n\r\n")
            assert (await proxy.told()).result == "broken_off"

    run(check())


# What a switch heeds.

FALLBACK = {"LLM_FALLBACK_ENABLED": "true"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.invalid/a.png", "detail": "low"}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {}}}}
RIVALS = "chatgpt-4o-latest, gpt-4-turbo, gpt-4o"
NEEDS: dict[str, tuple[dict[str, Any], list[Any], str]] = {
    "nothing": ({}, talk(400), "chatgpt-4o-latest"),
    "tools": ({"tools": [TOOL]}, talk(400), "gpt-4-turbo"),
    "schema": ({"response_format": SCHEMA}, talk(400), "gpt-4o"),
    "vision and tools": (
        {"tools": [TOOL]},
        [*talk(400), {"role": "user", "content": [{"type": "text", "text": "What is this?"}, IMAGE]}],
        "gpt-4-turbo",
    ),
}


@pytest.mark.parametrize("need", NEEDS)
def test_a_switch_keeps_to_models_that_can_do_what_is_needed(need: str) -> None:
    fields, messages, chosen = NEEDS[need]

    async def check() -> None:
        async with recording() as up, plimsoll(up.url, **FALLBACK, LLM_ALLOWED_FALLBACK_MODELS=RIVALS) as proxy:
            reply = await proxy.chat(body(messages, **fields))
            sent = json.loads(up.requests[0].body)
            assert (sent["model"], len(sent["messages"])) == (chosen, len(messages))
            assert ours(reply)["model"] == chosen
            told = await proxy.told()
            assert (told.model, told.model_sent) == ("gpt-4", chosen)

    run(check())


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("model", ["gpt-5", "o3-mini", "gpt-4o"])
def test_a_model_that_was_switched_to_takes_the_limit(model: str, field: str) -> None:
    """Models that think refuse max_tokens, and the simulator with them."""

    async def check() -> None:
        allowed = {**FALLBACK, "LLM_ALLOWED_FALLBACK_MODELS": model}
        async with before_simulator(SimulatorConfig(windows={model: 128_000}), **allowed) as (up, proxy):
            reply = await proxy.chat(body(talk(400), "gpt-4", **{field: 1_000}))
            assert (reply.status, ours(reply)["model"]) == (200, model)
            sent = up.received[-1].json()
            assert len(up.received) == 1 and len(sent["messages"]) == 402
            assert sent["max_completion_tokens" if model != "gpt-4o" else field] == 1_000

    run(check())


def test_models_are_switched_only_where_that_is_enabled() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url, LLM_ALLOWED_FALLBACK_MODELS="gpt-4o") as proxy:
            await proxy.chat(body(talk(400)))
            assert json.loads(up.requests[0].body)["model"] == "gpt-4"

    run(check())


def test_a_conversation_stays_with_the_model_that_it_was_switched_to() -> None:
    async def check() -> None:
        allowed = {**FALLBACK, "LLM_ALLOWED_FALLBACK_MODELS": "gpt-3.5-turbo,gpt-4o"}
        async with recording() as up, plimsoll(up.url, **allowed) as proxy:
            for turns in range(80, 400, 40):
                await proxy.chat(body(talk(turns)))
            models = [json.loads(r.body)["model"] for r in up.requests]
            assert models == sorted(models, key=["gpt-4", "gpt-3.5-turbo", "gpt-4o"].index)
            assert set(models) == {"gpt-4", "gpt-3.5-turbo", "gpt-4o"}

    run(check())


# What cannot fit.


def huge_tools(count: int = 900) -> list[dict[str, Any]]:
    """Tools whose names alone fill a window of 8,192."""
    names = [f"that_does_whatever_it_is_for_{i}" for i in range(count)]
    return [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]


def test_what_cannot_fit_is_refused_with_the_figures_and_what_takes_the_room() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(body(talk(2), tools=huge_tools()))
            told = error(reply)
            assert (reply.status, told["code"], told["type"]) == (
                400,
                "context_length_exceeded",
                "invalid_request_error",
            )
            assert "8192 tokens" in told["message"] and "tools alone take " in told["message"]
            assert "of 8,192" in told["message"]
            assert reply.header(b"x-should-retry") == [b"false"]
            assert up.requests == []
            outcome = await proxy.told()
            assert (outcome.result, outcome.status) == ("unfit", 400)

    run(check())


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 8_500}, "max_tokens": 9_000}, "the reply alone takes 8,501"),
    ],
)
def test_where_no_reply_fits_the_error_names_it_and_no_step_that_was_not_taken(
    fields: dict[str, Any], told: str
) -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(body(talk(100), "gpt-4", **fields))
            assert (reply.status, error(reply)["code"], up.requests) == (400, "context_length_exceeded", [])
            assert told in error(reply)["message"]
            outcome = await proxy.told()
            assert (outcome.notes, outcome.prompt_sent, outcome.attempts) == ((), None, 0), "nothing was sent"
            assert "steps" not in ours(reply) and int(ours(reply)["tokens"]) > 4_000

    run(check())


def test_a_ladder_may_forward_what_cannot_fit(tmp_path: Path) -> None:
    (tmp_path / "ladder.toml").write_text('on_unfit = "forward"\n[[step]]\nname = "prune_history"\n')
    sent = body(talk(400), tools=huge_tools())

    async def check() -> None:
        config = SimulatorConfig()
        async with before_simulator(config, PLIMSOLL_RULES=str(tmp_path)) as (up, proxy):
            reply = await proxy.chat(sent)
            assert reply.status == 400 and b"8192 tokens" in reply.body
            assert "context_length_exceeded" == json.loads(reply.body)["error"]["code"]
            assert [r.body for r in up.received] == [sent]
            assert (await proxy.told()).result == "unfit"
            assert (await proxy.chat(body(talk(100)))).status == 200  # and nothing false was learned of the model
            assert proxy.outcomes[-1].window == 8_192

    run(check())
