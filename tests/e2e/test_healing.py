"""Refusals over real sockets: whatever an upstream says when a request was too long, the client gets an answer."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from proxy.http.receiving import Receive, Scope
from proxy.http.relay import Send
from proxy.http.server.port import Asgi
from proxy.model.limits import LearnedLimits
from proxy.simulator.app import SimulatorConfig, simulator
from proxy.simulator.openai_chat.counting import count_prompt
from proxy.simulator.openai_responses.replies import REFUSAL_EVENTS
from proxy.simulator.refusals import PROVIDERS
from tests.e2e.services import KEY, PATH, before_simulator, body, error, ours, plimsoll, talk
from tests.recorder import EVENTS, Peer, Request, answer, chunk, head, recording
from tests.serving import ask, dialling, get, post, run, serving

SMALL = {"gpt-4": 4_096}  # half of what our table says
LONG = talk(100)  # some 4,800 tokens: it fits 8,192, and 4,096 not
DELTA = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'


NAMES_NOTHING = ["openai", "groq", "bedrock", "zai"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_window_smaller_than_we_think_costs_the_client_nothing(provider: str, stream: bool) -> None:
    async def check() -> None:
        config = SimulatorConfig(provider=provider, windows=SMALL)
        async with before_simulator(config) as (up, proxy):
            sent = body(LONG, max_completion_tokens=500, stream=stream)
            reply = await proxy.chat(sent)
            assert reply.status == 200
            assert b"The simulator read" in reply.body or b'"content":" read"' in reply.body
            outcome = await proxy.told()
            assert (outcome.result, outcome.healed, outcome.status) == ("healed", True, 200)
            assert 1 <= len(outcome.refusals) <= 2
            assert len(up.received) == 1 + len(outcome.refusals)
            assert up.received[0].body == sent
            assert ours(reply)["tokens-sent"] == str(outcome.prompt_sent)
            assert (outcome.prompt_sent or 0) < (outcome.prompt or 0)

            before = len(up.received)
            assert (await proxy.chat(body(LONG, max_completion_tokens=500, stream=stream))).status == 200
            outcome = await proxy.told(2)
            if provider == "cerebras":  # a bound in bytes says nothing of a window
                assert outcome.result == "healed"
                assert proxy.learned("gpt-4") == LearnedLimits()
                return
            assert len(up.received) == before + 1  # else the next request knows
            assert (outcome.result, outcome.refusals) == ("fitted", ())
            assert proxy.learned("gpt-4").supposed is (provider in NAMES_NOTHING)
            assert proxy.learned("gpt-4") != LearnedLimits()

    run(check(), 30)


NAMES_ITS_WINDOW = ["openai-old", "anthropic", "mistral", "deepseek", "vllm", "sglang", "llamacpp", "openrouter"]


@pytest.mark.parametrize("provider", NAMES_ITS_WINDOW)
def test_a_window_that_a_refusal_names_is_learned_to_the_token(provider: str) -> None:
    async def check() -> None:
        async with before_simulator(SimulatorConfig(provider=provider, windows=SMALL)) as (_, proxy):
            await proxy.chat(body(LONG, max_completion_tokens=500))
            assert (await proxy.told()).window == 4_096
            metrics = (await ask(proxy.port, get(b"/metrics"))).body.decode()
            assert re.search(r'plimsoll_refusals_total\{healed="true",rule="\w+"\} 1', metrics)

    run(check())


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_upstream_that_counts_more_than_we_do_costs_the_client_nothing(provider: str, stream: bool) -> None:
    def more(sent: bytes) -> int:
        return int(1.3 * count_prompt(sent))

    async def check() -> None:
        config = SimulatorConfig(provider=provider, windows={"gpt-4": 8_192}, count=more)
        async with before_simulator(config) as (up, proxy):
            sent = body(talk(130), max_completion_tokens=500, stream=stream)  # 6,900 by our count, 9,000 by theirs
            reply = await proxy.chat(sent)
            outcome = await proxy.told()
            assert (reply.status, outcome.result) == (200, "healed")
            assert len(up.received) <= 3
            before = len(up.received)
            assert (await proxy.chat(sent)).status == 200
            # The next request begins where the last one ended; an empty 413 may mean bytes, and teaches nothing.
            assert len(up.received) <= before + (2 if provider == "cerebras" else 1)

    run(check(), 30)


NGINX = b"<html><head><title>413 Request Entity Too Large</title></head><body>nginx</body></html>"
USED = b',"usage":{"prompt_tokens":%d,"completion_tokens":1,"total_tokens":%d}}'


@pytest.mark.parametrize("said", [b"", NGINX])
@pytest.mark.parametrize("model", ["gpt-4o", "nobody-knows-it"])
def test_a_body_that_a_gateway_will_not_take_shrinks_no_window_for_others(said: bytes, model: str) -> None:
    whole, answers = body(LONG, model), iter([refusing(said, status=b"413 Content Too Large")])

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(answer(b"{}", b"404 Not Found") if not request.body else next(answers, answer(REPLY)))

    async def check() -> None:
        async with recording(script) as up, plimsoll(up.url) as proxy:
            assert (await proxy.chat(body([*LONG, *talk(200)], model))).status == 200
            assert (await proxy.told()).result == "healed"
            assert proxy.learned(model) == LearnedLimits()
            assert (await proxy.chat(whole)).status == 200
            assert up.requests[-1].body == whole

    run(check())


def test_a_window_that_an_answer_disproves_is_forgotten() -> None:
    """Another replica's lesson, or one from before the provider changed, does not cut for ever."""
    counted = REPLY[:-1] + USED % (4_800, 4_801)

    async def check() -> None:
        async with recording(scripted(refusing(), answer(REPLY), answer(counted))) as up, plimsoll(up.url) as proxy:
            await proxy.chat(body(LONG))
            assert proxy.learned("gpt-4").window == 4_096
            await proxy.chat(body(LONG), b"x-plimsoll-mode: observe")
            await proxy.told(2)
            assert proxy.learned("gpt-4").window is None
            await proxy.chat(body(LONG))
            assert up.requests[-1].body == body(LONG)

    run(check())


@pytest.mark.parametrize("provider", [s for s in PROVIDERS if not PROVIDERS[s].finish])
def test_a_refusal_as_an_event_in_a_stream_heals(provider: str) -> None:
    async def check() -> None:
        config = SimulatorConfig(provider=provider, windows=SMALL, in_stream=True)
        async with before_simulator(config) as (_, proxy):
            reply = await proxy.chat(body(LONG, max_completion_tokens=500, stream=True))
            if provider != "cerebras":  # which says nothing at all
                assert (await proxy.told()).result == "healed"
                assert b"error" not in reply.body
                assert reply.body.endswith(b"data: [DONE]\n\n")

    run(check())


TOO_LONG = b'{"error":{"message":"This model\'s maximum context length is 4096 tokens. However, your messages resulted '
TOO_LONG += b'in 4800 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}'
REPLY = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}'


def scripted(*answers: bytes) -> Callable[[Request, Peer], Any]:
    """A script that gives one answer after the other, the last one for ever."""
    left = list(answers)

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(left.pop(0) if len(left) > 1 else left[0])

    return script


def refusing(message: bytes = TOO_LONG, *headers: bytes, status: bytes = b"400 Bad Request") -> bytes:
    """A refusal as an answer."""
    return answer(message, status, (b"content-type: application/json", *headers))


ROLES = b'{"object":"error","message":"Conversation roles must alternate user/assistant/user/assistant/...","type":'
ROLES += b'"BadRequestError","param":null,"code":400}'


def test_a_refusal_of_neighbours_that_a_cut_made_is_healed_and_learned() -> None:
    def roles(request: Request) -> list[str]:
        return [m["role"] for m in json.loads(request.body)["messages"][1:]]

    turns = ["user", "assistant"] * len(LONG)

    async def check() -> None:
        async with recording(scripted(refusing(ROLES), answer(REPLY))) as up, plimsoll(up.url) as proxy:
            for asked in (2, 3):
                reply = await proxy.chat(body(LONG, max_tokens=500), b"x-plimsoll-window: 4096")
                assert (reply.status, len(up.requests)) == (200, asked)
            first, *others = map(roles, up.requests)
            assert first != turns[: len(first)] and all(found == turns[: len(found)] for found in others)
            assert proxy.learned("gpt-4") == LearnedLimits(alternates=True)
            assert (await proxy.told(1)).result == "healed"

    run(check())


def test_a_refusal_of_neighbours_that_the_client_sent_goes_to_the_client() -> None:
    async def check() -> None:
        async with recording(scripted(refusing(ROLES))) as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(body([*LONG, LONG[-1]]))
            assert (reply.status, reply.body, len(up.requests)) == (400, ROLES, 1)

    run(check())


def test_keep_alive_comments_before_a_refusal_do_not_hide_it() -> None:
    async def comments_first(request: Request, peer: Peer) -> None:
        if len(request.body) < len(sent):
            await peer.send(EVENTS, chunk(b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'), chunk(b""))
            return
        await peer.send(EVENTS, chunk(b": PROCESSING\r\n\r\n"), chunk(b": PROCESSING\r\n\r\n"))
        await asyncio.sleep(0.05)
        await peer.send(chunk(b"data: " + TOO_LONG + b"\r\n\r\n"), chunk(b""))

    sent = body(LONG, stream=True)

    async def check() -> None:
        async with recording(comments_first) as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(sent)
            assert reply.body == b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
            assert len(up.requests) == 2

    run(check())


def test_an_event_without_content_before_a_refusal_does_not_hide_it() -> None:
    async def role_first(request: Request, peer: Peer) -> None:
        told = b"data: " + TOO_LONG + b"\n\n" if len(request.body) == len(sent) else b"data: [DONE]\n\n"
        await peer.send(EVENTS, chunk(DELTA))
        await asyncio.sleep(0.05)
        await peer.send(chunk(told), chunk(b""))

    sent = body(LONG, stream=True)

    async def check() -> None:
        async with recording(role_first) as up, plimsoll(up.url) as proxy:
            assert (await proxy.chat(sent)).body == DELTA + b"data: [DONE]\n\n"
            assert len(up.requests) == 2

    run(check())


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
def test_an_encoded_refusal_is_understood_and_one_that_we_cannot_read_is_asked_for_plain(coding: str) -> None:
    packed = {"gzip": gzip.compress(TOO_LONG), "deflate": zlib.compress(TOO_LONG), "br": b"\x0b\x02\x80 no brotli"}
    coded = refusing(packed[coding], b"content-encoding: " + coding.encode())

    async def script(request: Request, peer: Peer) -> None:
        if len(request.body) < len(sent):
            await peer.send(answer(REPLY))
        else:
            await peer.send(refusing() if request.header(b"accept-encoding") == [b"identity"] else coded)

    sent = body(LONG)

    async def check() -> None:
        async with recording(script) as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(sent, b"accept-encoding: gzip, br")
            assert (reply.status, reply.body) == (200, REPLY)
            assert (await proxy.told()).result == "healed"
            # once one was unreadable: a further refusal must be read, too, and attempts are few
            last = b"identity" if coding == "br" else b"gzip, br"
            assert up.requests[-1].header(b"accept-encoding") == [last]
            assert len(up.requests) == (3 if coding == "br" else 2)

    run(check())


def test_at_most_two_smaller_requests_follow_and_then_the_last_refusal_is_the_clients() -> None:
    windows = (b"6000", b"5000", b"4000")
    answers = [refusing(TOO_LONG.replace(b"4096", w), b"X-Request-Id: r-" + w, b"retry-after: 7") for w in windows]

    async def check() -> None:
        async with recording(scripted(*answers, answer(REPLY))) as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(body(talk(150)))
            assert [len(r.body) for r in up.requests] == sorted([len(r.body) for r in up.requests], reverse=True)
            assert len(up.requests) == 3
            assert (reply.status, reply.body) == (400, TOO_LONG.replace(b"4096", b"4000"))
            assert reply.header(b"x-request-id") == [b"r-4000"] and reply.header(b"retry-after") == [b"7"]
            outcome = await proxy.told()
            assert (outcome.healed, outcome.status, len(outcome.refusals)) == (False, 400, 3)
            assert outcome.result == "refused"

    run(check())


def test_where_nothing_smaller_is_left_the_refusal_is_the_clients_unchanged() -> None:
    impossible = TOO_LONG.replace(b"4096", b"300")

    async def check() -> None:
        async with recording(scripted(refusing(impossible))) as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(body(talk(4)))
            assert (reply.status, reply.body) == (400, impossible)
            assert len(up.requests) == 1
            assert (await proxy.told()).result == "refused"

    run(check())


UNTOUCHED = {
    "rate": (
        b"429 Too Many Requests",
        b'{"error":{"message":"Rate limit reached for gpt-4 in organization org-x on tokens per min (TPM): Limit '
        b'10000, Used 9000, Requested 4800.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}',
    ),
    "too large for the minute": (
        b"413 Payload Too Large",
        b'{"error":{"message":"Request too large for model `llama` on tokens per minute (TPM): Limit 6000, Requested '
        b'7000, please reduce your message size and try again.","type":"tokens","code":"rate_limit_exceeded"}}',
    ),
    "quota": (
        b"429 Too Many Requests",
        b'{"error":{"message":"You exceeded your current quota, please check your plan.","type":"insufficient_quota",'
        b'"param":null,"code":"insufficient_quota"}}',
    ),
    "a reply that is too long": (
        b"400 Bad Request",
        b'{"error":{"message":"max_tokens is too large: 9000. This model supports at most 4096 completion tokens, '
        b'whereas you provided 9000.","type":"invalid_request_error","param":"max_tokens","code":null}}',
    ),
    "a wrong key": (b"401 Unauthorized", b'{"error":{"message":"Incorrect API key provided: sk-x.","code":"invalid"}}'),
    "overloaded": (b"503 Unavailable", b'{"error":{"message":"The engine is overloaded","type":"server_error"}}'),
    "html": (b"502 Bad Gateway", b"<html><body>Bad gateway</body></html>"),
}


@pytest.mark.parametrize("what", UNTOUCHED)
def test_what_only_looks_like_a_refusal_is_passed_on_untouched(what: str) -> None:
    status, message = UNTOUCHED[what]
    extra = (b"retry-after: 3", b"x-ratelimit-remaining-tokens: 0", b"x-should-retry: true")

    async def check() -> None:
        async with recording(scripted(refusing(message, *extra, status=status))) as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(body(LONG))
            assert (reply.status, reply.body) == (int(status[:3]), message)
            assert len(up.requests) == 1
            for line in extra:
                name, _, value = line.partition(b": ")
                assert reply.header(name) == [value]
            told = await proxy.told()
            assert (told.refusals, told.result) == ((), "passed")
            assert proxy.learned("gpt-4") == LearnedLimits()

    run(check())


def test_a_refusal_of_the_model_that_was_switched_to_teaches_that_one() -> None:
    async def check() -> None:
        windows = {"gpt-4": 8_192, "gpt-4o-mini": 9_000, "gpt-4o": 128_000}
        allowed = {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": "gpt-4o-mini,gpt-4o"}
        async with before_simulator(SimulatorConfig(windows=windows), **allowed) as (up, proxy):
            reply = await proxy.chat(body(talk(400)))
            assert reply.status == 200 and ours(reply)["model"] == "gpt-4o"
            assert [r.json()["model"] for r in up.received] == ["gpt-4o-mini", "gpt-4o"]
            assert all(len(r.json()["messages"]) == 402 for r in up.received)
            assert proxy.learned("gpt-4o-mini").window == 9_000
            assert proxy.learned("gpt-4") == LearnedLimits()
            await proxy.chat(body(talk(400)))
            assert [r.json()["model"] for r in up.received] == ["gpt-4o-mini", "gpt-4o", "gpt-4o"]

    run(check())


IMAGE = {"type": "image_url", "image_url": {"url": "https://example.invalid/a.png"}}


@pytest.mark.parametrize("named", [True, False])
def test_how_we_miscount_a_picture_is_not_held_against_other_requests(named: bool) -> None:
    """What a refusal of a prompt with parts that no count can prove teaches of our counting holds for it alone."""
    told = TOO_LONG.replace(b"4096", b"8192").replace(b"4800", b"12000")
    if not named:
        told = b'{"error":{"message":"Your input exceeds the context window of this model.","code":null}}'
    seen = [*talk(100), {"role": "user", "content": [{"type": "text", "text": "What is this?"}, IMAGE]}]

    async def check() -> None:
        async with recording(scripted(refusing(told), answer(REPLY))) as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(body(seen))
            assert (reply.status, len(up.requests)) == (200, 2)
            learned = proxy.learned("gpt-4")
            assert learned.scale == 1.0 and learned.window in (None, 8_192)

    run(check())


def test_a_refusal_of_a_request_that_bytes_had_proven_to_fit_heals_too() -> None:
    async def check() -> None:
        async with before_simulator(SimulatorConfig(windows={"gpt-4o": 4_096})) as (up, proxy):
            reply = await proxy.chat(body(LONG, "gpt-4o", max_tokens=500))
            assert reply.status == 200
            outcome = await proxy.told()
            assert (outcome.result, outcome.window, len(up.received)) == ("healed", 4_096, 2)

    run(check())


def test_a_packed_request_heals_too() -> None:
    async def check() -> None:
        async with before_simulator(SimulatorConfig(windows=SMALL)) as (up, proxy):
            reply = await proxy.chat(gzip.compress(body(LONG, max_tokens=500)), b"content-encoding: gzip")
            assert reply.status == 200
            assert [r.header(b"content-encoding") for r in up.received] == [b"gzip", None]

    run(check())


def test_a_refusal_is_not_healed_where_nothing_may_be_changed() -> None:
    async def check() -> None:
        async with recording(scripted(refusing())) as up, plimsoll(up.url) as proxy:
            for mode in (b"observe", b"off"):
                reply = await proxy.chat(body(LONG), b"x-plimsoll-mode: " + mode)
                assert (reply.status, reply.body) == (400, TOO_LONG)
            assert len(up.requests) == 2

    run(check())


def test_a_refusal_that_breaks_off_is_told_as_what_it_is() -> None:
    async def breaks(request: Request, peer: Peer) -> None:
        await peer.send(head(b"400 Bad Request", b"content-type: application/json", b"content-length: 900"), TOO_LONG)
        peer.close()

    async def check() -> None:
        async with recording(breaks) as up, plimsoll(up.url) as proxy:
            reply = await proxy.chat(body(LONG))
            assert (reply.status, error(reply)["code"], len(up.requests)) == (502, "upstream_error", 1)

    run(check())


def test_a_long_error_is_passed_on_whole() -> None:
    long = json.dumps({"error": {"message": "x" * 300_000, "code": None}}).encode()

    async def check() -> None:
        async with recording(scripted(refusing(long, status=b"500 Oops"))) as up, plimsoll(up.url) as proxy:
            reply = await ask(proxy.port, post(body(LONG), KEY, target=PATH))
            assert (reply.status, reply.body, len(up.requests)) == (500, long, 1)

    run(check())


def together(app: Asgi, count: int) -> Asgi:
    """An application that gets its first requests when so many are there."""
    arrived, complete = [0], asyncio.Event()

    async def held(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            arrived[0] += 1
            if arrived[0] == count:
                complete.set()
            await complete.wait()
        await app(scope, receive, send)

    return held


@pytest.mark.parametrize("model", ["gpt-4", "gpt-4o"])
def test_requests_that_are_refused_at_the_same_time_all_heal(model: str) -> None:
    async def check() -> None:
        up = simulator(SimulatorConfig(windows={model: 4_096}))
        async with serving(together(up, 8)) as server, plimsoll(f"http://127.0.0.1:{server.ports[0]}/v1") as proxy:
            sent = [body([*LONG, {"role": "user", "content": str(i)}], model, max_tokens=500) for i in range(8)]
            replies = await asyncio.gather(*map(proxy.chat, sent))
            assert [r.status for r in replies] == [200] * 8
            assert len(up.received) == 16
            await proxy.told(8)
            assert all(len(o.refusals) == 1 for o in proxy.outcomes)

    run(check())


def test_a_model_that_once_refused_in_a_stream_that_had_begun_is_healed_from_then_on() -> None:
    """Its window is said to be large, so nothing is held back at first; what it refuses is noticed as it passes."""
    created = b'event: response.created\ndata: {"type":"response.created","response":{"id":"r"}}\n\n'
    failed = b'event: response.failed\ndata: {"type":"response.failed","response":{"status":"failed","error":'
    failed += (
        b'{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}}}\n\n'
    )
    done = b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"r","status":"completed",'
    done += b'"usage":{"input_tokens":9,"output_tokens":1}}}\n\n'

    seen = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS)
        await peer.send(chunk(created))
        await (asyncio.sleep(0.3) if seen.is_set() else seen.wait())
        await peer.send(chunk(failed if len(request.body) > 20_000 else done) + chunk(b""))

    async def answered(port: int, request: bytes, passes: bool) -> bytes:
        """The answer to a request; `passes`: its first event is seen before the upstream says more, however long that
        takes. Else it is held back for longer than the upstream needs."""
        async with dialling(port) as client:
            (seen.clear if passes else seen.set)()
            await client.send(request)
            begun = await client.reader.readuntil(created) if passes else b""
            seen.set()
            return begun + await client.reader.readuntil(chunk(b""))

    async def check() -> None:
        async with recording(script) as upstream, plimsoll(upstream.url) as proxy:
            asked = json.dumps({"model": "gpt-5", "stream": True, "input": LONG}).encode()
            got = []
            for key, passes in ((KEY, True), (KEY, False), (b"authorization: Bearer somebody-else", True)):
                got.append(await answered(proxy.port, post(asked, key, target=b"/v1/responses"), passes))
            assert [failed in one for one in got] == [True, False, True] and done in got[1]
            results = [(await proxy.told(n)).result for n in (1, 2, 3)]
            assert results == ["refused", "healed", "refused"]
            assert (await proxy.told(1)).refusals == (await proxy.told(2)).refusals != ()

    run(check())


def test_a_long_stream_that_nothing_like_it_was_tried_before_is_healed_however_large_its_window_is_said_to_be() -> None:
    """Of a size that was accepted, the first events reach the client at once."""
    created = b'event: response.created\ndata: {"type":"response.created","response":{"id":"r"}}\n\n'
    failed = b'event: response.failed\ndata: {"type":"response.failed","response":{"status":"failed","error":'
    failed += b'{"code":"context_length_exceeded","message":"Your input exceeds the context window."}}}\n\n'
    item = b'event: response.output_item.added\ndata: {"type":"response.output_item.added","item":{}}\n\n'
    done = b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"r","status":"completed",'
    done += b'"usage":{"input_tokens":9,"output_tokens":1}}}\n\n'
    seen = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS)
        await peer.send(chunk(created))
        if len(request.body) > 150_000:
            await peer.send(chunk(failed) + chunk(b""))
            return
        if b"wait" in request.body:
            await asyncio.wait_for(seen.wait(), 30)
        await peer.send(chunk(item) + chunk(done) + chunk(b""))

    def asked(size: int, word: str = "word ") -> bytes:
        told = [{"role": "user", "content": word * (size // 60)} for _ in range(12)]
        return json.dumps({"model": "gpt-5", "stream": True, "input": told}).encode()

    async def check() -> None:
        async with recording(script) as upstream, plimsoll(upstream.url) as proxy:
            reply = await ask(proxy.port, post(asked(200_000), KEY, target=b"/v1/responses"))
            assert failed not in reply.body and done in reply.body
            assert (await proxy.told(1)).result == "healed"
            sizes = [len(request.body) for request in upstream.requests]
            assert len(sizes) == 2 and sizes[0] > 150_000 > sizes[1] > 65_536
            await _sees(proxy.port, post(asked(70_000, "wait "), KEY, target=b"/v1/responses"), created, seen)

    run(check(), 60)


async def _sees(port: int, request: bytes, expected: bytes, seen: asyncio.Event) -> None:
    """Reads an answer until `expected` has come, says so, and reads the rest."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    got = b""
    while expected not in got:
        got += await asyncio.wait_for(reader.read(4096), 8)  # events that wait for content wait ten seconds
    assert b"response.completed" not in got
    seen.set()
    while b"response.completed" not in got:
        got += await asyncio.wait_for(reader.read(4096), 20)
    writer.close()


@pytest.mark.parametrize("event", REFUSAL_EVENTS)
def test_a_refusal_in_any_event_of_a_stream_of_responses_is_healed(event: str) -> None:
    target = b"/v1/responses"
    sent = json.dumps({"model": "gpt-4", "stream": True, "input": talk(110)}).encode()

    async def check() -> None:
        config = SimulatorConfig(provider="openai", windows={"gpt-4": 5_200}, refusal_event=event)
        async with before_simulator(config) as (up, proxy):
            reply = await ask(proxy.port, post(sent, KEY, target=target))
            assert b"event: response.completed" in reply.body and b"context_length_exceeded" not in reply.body
            assert (await proxy.told()).result == "healed" and len(up.received) > 1

    run(check(), 30)


@pytest.mark.parametrize("status", [413, 502])
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_whose_status_a_gateway_changed_is_healed(status: int, stream: bool) -> None:
    async def check() -> None:
        config = SimulatorConfig(provider="openai-old", windows=SMALL, refusal_status=status)
        async with before_simulator(config) as (_, proxy):
            assert (await proxy.chat(body(LONG, max_completion_tokens=500, stream=stream))).status == 200
            assert (await proxy.told()).result == "healed"

    run(check(), 30)


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_a_known_window_that_is_a_tenth_is_found_without_figures_in_two_requests(path: str) -> None:
    target = f"/v1/{path}".encode()
    content = {"messages": LONG * 12} if "chat" in path else {"input": LONG * 12}
    sent = json.dumps({"model": "gpt-4o", **content}).encode()

    async def check() -> None:
        config = SimulatorConfig(provider="openai", windows={"gpt-4o": 12_800})
        async with before_simulator(config) as (up, proxy):
            statuses, sizes = [], []
            for _ in range(3):
                before = len(up.received)
                reply = await ask(proxy.port, post(sent, b"content-type: application/json", KEY, target=target))
                statuses.append(reply.status)
                sizes.append(len(up.received) - before)
            assert statuses[1:] == [200, 200] and sizes[2] == 1
            assert proxy.learned("gpt-4o").supposed

    run(check(), 60)
