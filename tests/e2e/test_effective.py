"""An effective window: by header, by setting and by a row of a model, on every API of conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.services import KEY, TOO_MUCH, Running, body, error, ours, plimsoll, sentence, talk
from tests.recorder import Peer, Request, answer, recording
from tests.serving import Reply, ask, post, run

JSON = b"content-type: application/json"
WISH = b"x-plimsoll-effective: 3000"
SAID = talk(200)[1:]  # some 9,400 tokens
BODIES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "chat": (b"/v1/chat/completions", {"model": "gpt-4o", "max_tokens": 16_000, "messages": SAID}),
    "completions": (b"/v1/completions", {"model": "gpt-3.5-turbo-instruct", "prompt": sentence(1, 3_300)}),
    "responses": (b"/v1/responses", {"model": "gpt-4o", "input": SAID}),
    "messages": (b"/v1/messages", {"model": "claude-3-5-haiku-latest", "max_tokens": 8_000, "messages": SAID}),
    "ollama": (b"/api/chat", {"model": "llama3.1:8b", "messages": SAID, "options": {"num_ctx": 20_000}}),
    "ollama generate": (
        b"/api/generate",
        {"model": "llama3.1:8b", "prompt": sentence(1, 9_000), "options": {"num_ctx": 20_000}},
    ),
}


async def asked(proxy: Running, path: bytes, fields: Any, *headers: bytes) -> Reply:
    return await ask(proxy.port, post(json.dumps(fields).encode(), JSON, KEY, *headers, target=path))


@pytest.mark.parametrize("how", ["header", "setting", "row", "header over the setting"])
@pytest.mark.parametrize("api", BODIES)
def test_a_longer_prompt_is_cut_to_it_and_its_reply_limit_stays(api: str, how: str, tmp_path: Path) -> None:
    path, fields = BODIES[api]
    headers = (WISH,) if "header" in how else ()
    environment: dict[str, str] = {}
    if "setting" in how:
        environment["PLIMSOLL_EFFECTIVE"] = "3k" if how == "setting" else "100"
    if how == "row":
        (tmp_path / "windows.toml").write_text(f'[[window]]\nmodel = "{fields["model"]}"\neffective = 3000\n')
        environment["PLIMSOLL_RULES"] = str(tmp_path)

    async def check() -> None:
        async with recording() as up, plimsoll(up.url, **environment) as proxy:
            got = await asked(proxy, path, fields, *headers)
            told = ours(got)
            assert got.status == 200 and 1_000 < int(told["tokens-sent"]) <= 3_000 < int(told["tokens"]), told
            sent = json.loads(up.requests[-1].body)
            assert sent.get("max_tokens") == fields.get("max_tokens") and "notice" not in told
            outcome = await proxy.told()
            assert outcome.result == "fitted" and outcome.window > 3_000

    run(check())


@pytest.mark.parametrize("api", BODIES)
def test_what_fits_it_and_what_no_cut_brings_down_to_it_arrive_byte_for_byte(api: str) -> None:
    path, fields = BODIES[api]

    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            sent = json.dumps(fields).encode()
            assert (await asked(proxy, path, fields, b"x-plimsoll-effective: 12000")).status == 200
            got = await asked(proxy, path, fields, b"x-plimsoll-effective: 2")
            assert [r.body for r in up.requests if r.method == b"POST"] == [sent, sent]
            assert "no cut reaches the effective window of 2 tokens" in ours(got)["notice"]

    run(check())


@pytest.mark.parametrize("by", ["header", "setting"])
def test_a_short_request_is_sent_at_once_and_as_it_came(by: str) -> None:
    async def check() -> None:
        sent, headers = body(talk(2), "gpt-4o"), (WISH,) if by == "header" else ()
        environment = {"PLIMSOLL_EFFECTIVE": "5000"} if by == "setting" else {}
        async with recording() as up, plimsoll(up.url, **environment) as proxy:
            await proxy.chat(sent, *headers)
            assert up.requests[-1].body == sent and (await proxy.told()).result == "passed"

    run(check())


def test_a_model_that_nobody_knows_is_cut_to_it_alone() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            got = await proxy.chat(body(SAID, "nobodys-model", max_tokens=50_000), WISH)
            sent = json.loads(up.requests[-1].body)
            assert int(ours(got)["tokens-sent"]) <= 3_000 and sent["max_tokens"] == 50_000
            whole = body(talk(400), "nobodys-model")
            await proxy.chat(whole, b"x-plimsoll-effective: 60000")
            assert up.requests[-1].body == whole

    run(check())


def test_nothing_is_refused_for_it_and_what_is_refused_without_it_is_refused_alike() -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            pinned = body(
                [{"role": "system", "content": sentence(0, 5_000)}, {"role": "user", "content": "Hi"}], "gpt-4"
            )
            assert (await proxy.chat(pinned, WISH, b"x-plimsoll-pin: 0")).status == 200
            assert up.requests[-1].body == pinned
            too_much = body([{"role": "system", "content": sentence(0, 50)}], **TOO_MUCH)
            with_it, without = await proxy.chat(too_much, WISH), await proxy.chat(too_much)
            assert with_it.status == without.status == 400 and error(with_it) == error(without)

    run(check())


def test_a_refusal_is_healed_with_it_as_without() -> None:
    refusal = (
        b'{"error":{"message":"This model\'s maximum context length is 2000 tokens. However, your messages resulted '
    )
    refusal += b'in 2900 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}'

    async def small(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b'{"data":[]}'))
        elif len(request.body) > 12_000:
            await peer.send(answer(refusal, b"400 Bad Request"))
        else:
            await peer.send(answer(b'{"choices":[]}'))

    async def check() -> None:
        async with recording(small) as up, plimsoll(up.url) as proxy:
            got = await proxy.chat(body(SAID, "gpt-4o", max_tokens=100), WISH)
            assert got.status == 200 and int(ours(got)["tokens-sent"]) < 2_000
            assert proxy.learned("gpt-4o").window == 2_000 and (await proxy.told()).result == "healed"

    run(check())


def test_a_compaction_is_not_cut_for_it() -> None:
    fields = {"model": "gpt-4o", "input": SAID}

    async def check() -> None:
        async with recording() as up, plimsoll(up.url, PLIMSOLL_EFFECTIVE="3000") as proxy:
            await asked(proxy, b"/v1/responses/compact", fields)
            assert up.requests[-1].body == json.dumps(fields).encode()

    run(check())


@pytest.mark.parametrize("value", [b"", b"0", b"-3", b"64k", b"1e5", b"3000 tokens", b"9" * 12, b"\xb2", b"3,000"])
def test_a_value_that_is_no_number_of_tokens_is_a_400_in_the_apis_shape(value: bytes) -> None:
    async def check() -> None:
        async with recording() as up, plimsoll(up.url) as proxy:
            got = await proxy.chat(body(SAID), b"x-plimsoll-effective: " + value)
            assert (got.status, error(got)["param"], up.requests) == (400, "x-plimsoll-effective", [])
            path, fields = BODIES["messages"]
            got = await asked(proxy, path, fields, b"x-plimsoll-effective: " + value)
            assert got.status == 400 and json.loads(got.body)["error"]["type"] == "invalid_request_error"

    run(check())
