"""What is past its window and left to the client's agent: it gets its provider's own refusal, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.services import KEY, Running, body, error, ours, plimsoll, sentence, talk
from tests.recorder import Peer, Request, Script, answer, chunk, head, recording
from tests.serving import Reply, ask, post, run

JSON = b"content-type: application/json"
LEAVE = b"x-plimsoll-on-full: agent"
SAID = talk(400)[1:]  # some 19,000 tokens
REFUSED = (
    b'{"error":{"message":"This model\'s maximum context length is 8192 tokens. However, your messages resulted in '
)
REFUSED += (
    b'18900 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages",'
)
REFUSED += b'"code":"context_length_exceeded"}}  '
CLAUDE = (
    b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 211000 tokens > 200000 '
)
CLAUDE += b'maximum"}}\n'
LOADED = b'{"error":"the input length exceeds the context length"}'
BODIES: dict[str, tuple[bytes, dict[str, Any], bytes]] = {
    "chat": (b"/v1/chat/completions", {"model": "gpt-4", "messages": SAID}, REFUSED),
    "chat with a guessed window": (b"/v1/chat/completions", {"model": "nobodys", "messages": SAID}, REFUSED),
    "completions": (b"/v1/completions", {"model": "gpt-3.5-turbo-instruct", "prompt": sentence(1, 9_000)}, REFUSED),
    "responses": (b"/v1/responses", {"model": "gpt-4", "input": SAID}, REFUSED),
    "messages": (
        b"/v1/messages",
        {"model": "claude-3-haiku-20240307", "max_tokens": 9, "messages": [*SAID[:-1], *talk(4_600)[1:]]},
        CLAUDE,
    ),
    "ollama": (b"/api/chat", {"model": "llama3", "messages": SAID, "options": {"num_ctx": 4_096}}, LOADED),
}


def refusing(refusal: bytes, over: int = 30_000, stream: bool = False) -> Script:
    """An upstream that refuses bodies of so many bytes."""

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b'{"data":[]}'))
        elif len(request.body) <= over:
            await peer.send(answer(b'{"choices":[]}'))
        elif stream:
            await peer.send(head(b"200 OK", b"content-type: text/event-stream", b"transfer-encoding: chunked"))
            await peer.send(chunk(refusal), b"0\r\n\r\n")
        else:
            await peer.send(answer(refusal, b"400 Bad Request"))

    return script


async def asked(proxy: Running, path: bytes, fields: Any, *headers: bytes) -> Reply:
    return await ask(proxy.port, post(json.dumps(fields).encode(), JSON, KEY, *headers, target=path))


@pytest.mark.parametrize("by", ["header", "setting", "header against the setting"])
@pytest.mark.parametrize("api", BODIES)
def test_past_the_window_the_client_gets_the_refusal_of_its_provider(api: str, by: str) -> None:
    path, fields, refusal = BODIES[api]
    headers = {"header": (LEAVE,), "setting": ()}.get(by, (b"x-plimsoll-on-full: fit",))
    environment = {} if by == "header" else {"PLIMSOLL_ON_FULL": "agent"}

    async def check() -> None:
        async with (
            recording(refusing(refusal, len(json.dumps(fields)) - 9)) as up,
            plimsoll(up.url, **environment) as proxy,
        ):
            got = await asked(proxy, path, fields, *headers)
            sent = [r.body for r in up.requests if r.method == b"POST"]
            outcome = await proxy.told()
            if by == "header against the setting":
                assert got.status == 200 and len(sent[-1]) < len(json.dumps(fields))
                return
            assert (got.status, got.body, outcome.result) == (400, refusal, "refused")
            assert len(sent) == 1 and json.loads(sent[0]) == fields | ({"truncate": False} if api == "ollama" else {})
            if api != "ollama":
                assert sent[0] == json.dumps(fields).encode()
            assert not outcome.notes and "steps" not in ours(got)

    run(check())


def test_a_refusal_in_a_stream_is_relayed_as_it_is() -> None:
    refusal = b"data: " + REFUSED + b"\n\n"

    async def check() -> None:
        async with recording(refusing(refusal, stream=True)) as up, plimsoll(up.url) as proxy:
            got = await proxy.chat(body(SAID, stream=True), LEAVE)
            assert (got.status, got.body, len(up.requests)) == (200, refusal, 1)

    run(check())


def test_what_fits_goes_as_ever_and_no_step_acts_before_the_window_is_full() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            sent = body(talk(154), max_tokens=500)  # over the 0.8 of economy, not over the window
            assert (await proxy.chat(sent, LEAVE, b"x-plimsoll-ladder: economy")).status == 200
            await proxy.chat(body(talk(2)), LEAVE)
            assert [r.body for r in up.requests] == [sent, body(talk(2))]

    run(check())


def test_a_refusal_teaches_all_others_nothing_that_it_would_not_have_taught() -> None:
    async def check() -> None:
        async with recording(refusing(REFUSED)) as up, plimsoll(up.url) as proxy:
            assert (await proxy.chat(body(SAID, "nobodys"), LEAVE)).status == 400
            assert (await proxy.chat(body(SAID, "nobodys"))).status == 200
            assert (await proxy.told(2)).result == "healed"

    run(check())


COMPACT, RESPONSES = b"/v1/responses/compact", b"/v1/responses"


def test_a_compaction_is_fitted_and_once_it_was_refused_all_the_same_its_conversation_is() -> None:
    asks = {"model": "gpt-4", "input": SAID}
    stranger = {"model": "gpt-4", "input": [{"role": "user", "content": "Another."}, *SAID]}
    accepts = [True]

    async def upstream(request: Request, peer: Peer) -> None:
        compacts = request.target.endswith(b"/compact")
        if len(request.body) > 30_000 or (compacts and not accepts[0]):
            await peer.send(answer(REFUSED, b"400 Bad Request"))
        else:
            await peer.send(answer(b'{"object":"response.compaction","output":[]}'))

    async def check() -> None:
        async with recording(upstream) as up, plimsoll(up.url, PLIMSOLL_ON_FULL="agent") as proxy:
            assert (await asked(proxy, RESPONSES, asks)).status == 400
            assert (await asked(proxy, COMPACT, asks)).status == 200  # it was healed
            assert (await asked(proxy, RESPONSES, asks)).status == 400
            accepts[0] = False
            got = await asked(proxy, COMPACT, asks)
            assert (got.status, got.body) == (400, REFUSED)
            fitted = await asked(proxy, RESPONSES, asks)
            assert fitted.status == 200 and int(ours(fitted)["tokens-sent"]) < 8_192
            assert (await asked(proxy, RESPONSES, stranger)).status == 400
            other = post(json.dumps(asks).encode(), JSON, b"authorization: Bearer sk-other", target=RESPONSES)
            assert (await ask(proxy.port, other)).status == 400

    run(check())


def test_an_upstream_that_cuts_in_silence_gets_nothing_and_the_client_a_refusal_in_its_apis_words() -> None:
    async def silent(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b'{"data":[]}'))
            return
        usage = b'"usage":{"prompt_tokens":3000,"completion_tokens":1,"total_tokens":3001}'
        said = b'{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}'
        await peer.send(answer(b'{"id":"c","object":"chat.completion","choices":[%b],%b}' % (said, usage)))

    async def check() -> None:
        async with recording(silent) as up, plimsoll(up.url) as proxy:
            for turns in (300, 320, 345, 370):  # the same figure for several prompts is its limit
                await proxy.chat(body(talk(turns), "gpt-4o"), LEAVE)
            before = len(up.requests)
            got = await proxy.chat(body(talk(400), "gpt-4o"), LEAVE)
            assert (got.status, error(got)["code"]) == (400, "context_length_exceeded") and len(up.requests) == before

    run(check())


@pytest.mark.parametrize("value", [b"", b"AGENT", b"refuse", b"fit, agent", b"\xff"])
def test_another_value_is_a_400_in_the_apis_shape(value: bytes) -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            got = await proxy.chat(body(SAID), b"x-plimsoll-on-full: " + value)
            assert (got.status, error(got)["param"], up.requests) == (400, "x-plimsoll-on-full", [])

    run(check())


def test_the_ladder_refuse_cuts_nothing_and_says_what_is_too_long_before_it_costs_anything() -> None:
    ladder = b"x-plimsoll-ladder: refuse"

    async def check() -> None:
        async with recording(refusing(REFUSED)) as up, plimsoll(up.url) as proxy:
            got = await proxy.chat(body(SAID), ladder)
            assert (got.status, error(got)["code"], up.requests) == (400, "context_length_exceeded", [])
            got = await proxy.chat(body(SAID, "nobodys"), ladder)  # of a window that is a guess the upstream decides
            assert (got.status, got.body) == (400, REFUSED)
            assert (await proxy.chat(body(talk(20)), ladder)).status == 200

    run(check())
