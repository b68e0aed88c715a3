"""GET /v1/models over several upstreams, on real sockets."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proxy.upstreams import loaded_models
from tests.e2e.services import Running, body, error, plimsoll, talk
from tests.e2e.test_upstreams import CLIENT, KEYS, MINE, OPERATOR, everything, row, rules
from tests.recorder import Peer, Request, Script, answer, recording
from tests.serving import Reply, ask, get, post, run

ON = {"PLIMSOLL_MODELS_WINDOWS": "true"}


def listing(*names: str, **more: Any) -> Script:
    """An upstream with these models."""
    body = json.dumps({"object": "list", "data": [{"id": n, "object": "model", **more} for n in names]}).encode()

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(answer(body if b"/models" in request.target else b'{"choices":[],"usage":{}}'))

    return script


def status(line: bytes, body: bytes = b'{"error":{"message":"no"}}') -> Script:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(answer(body, line))

    return script


async def models(proxy: Running, *headers: bytes, target: bytes = b"/v1/models") -> Reply:
    return await ask(proxy.port, get(target, *headers))


def names(reply: Reply) -> list[str]:
    assert reply.status == 200, reply
    return [entry["id"] for entry in json.loads(reply.body)["data"]]


LARGE = ('models = ["large-*", "exact-1"]', 'key = "LARGE_KEY"')


def test_each_model_is_listed_by_the_upstream_that_serves_it(tmp_path: Path) -> None:
    async def check() -> None:
        async with recording(listing("gpt-4o", "large-9")) as default, recording(listing("large-1", "gpt-x")) as other:
            given = rules(tmp_path, row("other", other.url, *LARGE))
            async with plimsoll(default.url, PLIMSOLL_RULES=given, **KEYS) as proxy:
                got = await models(proxy, MINE)
                assert names(got) == ["gpt-4o", "large-1", "exact-1"]
                entry = json.loads(got.body)["data"][2]
                assert entry == {"id": "exact-1", "object": "model", "created": 0, "owned_by": "other"}
                assert names(await models(proxy, MINE)) == names(got)
                assert (len(default.requests), len(other.requests)) == (2, 1)  # a row's list is kept
                assert CLIENT.encode() not in everything(other) and OPERATOR.encode() in everything(other)
                assert OPERATOR.encode() not in everything(default) + got.body
                told = await proxy.told()
                assert (told.endpoint, told.result, told.status, told.path) == (
                    "passthrough",
                    "passed",
                    200,
                    "/v1/models",
                )

    run(check())


@pytest.mark.parametrize("down", [status(b"500 Oops"), status(b"200 OK", b"<html>"), status(b"401 Unauthorized")])
def test_an_upstream_that_fails_is_left_out(tmp_path: Path, down: Script) -> None:
    async def check() -> None:
        async with recording(listing("gpt-4o")) as default, recording(down) as other:
            given = rules(
                tmp_path, row("other", other.url, *LARGE), row("gone", "http://127.0.0.1:9/v1", 'models = ["x"]')
            )
            async with plimsoll(default.url, PLIMSOLL_RULES=given, **KEYS) as proxy:
                assert names(await models(proxy)) == ["gpt-4o", "exact-1", "x"]
                await models(proxy)
                assert len(other.requests) == 2  # a failure is not kept

    run(check())


def test_the_default_upstream_may_fail_too(tmp_path: Path) -> None:
    async def check() -> None:
        async with recording(listing("large-1")) as other:
            given = rules(tmp_path, row("other", other.url, *LARGE))
            async with plimsoll("http://127.0.0.1:9/v1", PLIMSOLL_RULES=given, **KEYS) as proxy:
                assert names(await models(proxy)) == ["large-1", "exact-1"]
        async with recording(status(b"500 Oops", b"oops")) as default, recording(listing()) as other:
            given = rules(tmp_path, row("other", other.url))
            async with plimsoll(default.url, PLIMSOLL_RULES=given) as proxy:
                got = await models(proxy)
                assert (got.status, got.body) == (500, b"oops")
            async with plimsoll("http://127.0.0.1:9/v1", PLIMSOLL_RULES=given) as proxy:
                got = await models(proxy)
                assert (got.status, error(got)["code"]) == (502, "upstream_unreachable")
                assert (await proxy.told()).result == "upstream_error"

    run(check())


@pytest.mark.parametrize("refusal", [b"401 Unauthorized", b"403 Forbidden"])
def test_a_client_that_the_default_upstream_refuses_sees_no_list(tmp_path: Path, refusal: bytes) -> None:
    async def check() -> None:
        async with recording(status(refusal)) as default, recording(listing("large-1")) as other:
            given = rules(tmp_path, row("other", other.url, *LARGE))
            async with plimsoll(default.url, PLIMSOLL_RULES=given, **KEYS) as proxy:
                got = await models(proxy)
                assert got.status == int(refusal[:3]) and b"large" not in got.body and b"exact" not in got.body

    run(check())


def test_clients_of_anthropic_get_its_shape_and_its_upstreams(tmp_path: Path) -> None:
    async def check() -> None:
        claude = ('api = "anthropic"', 'models = ["claude-*"]')
        async with recording(listing("claude-y", type="model")) as default, recording(listing("claude-x")) as other:
            given = rules(tmp_path, row("other", other.url, *claude), row("local", default.url, 'models = ["llama"]'))
            async with plimsoll(default.url, PLIMSOLL_RULES=given) as proxy:
                got = json.loads((await models(proxy, b"anthropic-version: 2023-06-01")).body)
                assert (got["first_id"], got["last_id"], got["has_more"]) == ("claude-x", "claude-x", False)
                assert got["data"][0]["display_name"] == "claude-x"
                assert other.requests[0].target == b"/v1/models?limit=1000"
                assert other.requests[0].header(b"anthropic-version") == [b"2023-06-01"]
                assert names(await models(proxy)) == ["claude-y", "llama"]

    run(check())


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_W26_a_model_that_requests_may_be_moved_to_is_listed_where_its_row_has_a_glob(tmp_path: Path, api: str) -> None:
    allowed = {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": "large-1,large-2,gpt-4o,absent-1"}
    sent = (b"anthropic-version: 2023-06-01",) if api == "anthropic" else ()

    async def check() -> None:
        async with recording(listing("gpt-4", type="model")) as default, recording(status(b"404 Not Found")) as other:
            fields = ('models = ["large-*"]', 'serves = ["large-1"]', 'key = "LARGE_KEY"', f'api = "{api}"')
            given = rules(tmp_path, row("other", other.url, *fields))
            async with plimsoll(default.url, PLIMSOLL_RULES=given, **KEYS, **allowed) as proxy:
                assert names(await models(proxy, *sent)) == ["gpt-4", "large-1"]

    run(check())


def test_the_entry_of_one_model_comes_from_its_upstream(tmp_path: Path) -> None:
    async def check() -> None:
        async with recording(listing("gpt-4o")) as default, recording(listing("large-1", "large/2")) as other:
            given = rules(tmp_path, row("other", other.url, 'models = ["large*"]'))
            async with plimsoll(default.url, PLIMSOLL_RULES=given) as proxy:
                assert json.loads((await models(proxy, target=b"/v1/models/large-1")).body)["id"] == "large-1"
                assert json.loads((await models(proxy, target=b"/models/large%2F2")).body)["id"] == "large/2"
                got = await models(proxy, target=b"/v1/models/large-3")
                assert (got.status, error(got)["code"]) == (404, "model_not_found")
                assert not default.requests
                await models(proxy, target=b"/v1/models/gpt-4o")
                assert [r.target for r in default.requests] == [b"/v1/models/gpt-4o"]

    run(check())


@pytest.mark.parametrize(
    "sent", [get(b"/v1/models", b"x-plimsoll-upstream: default"), get(b"/v1/models?after_id=x"), b"HEAD"]
)
def test_one_upstreams_list_and_further_pages_pass_as_they_are(tmp_path: Path, sent: bytes) -> None:
    async def check() -> None:
        async with recording(listing("gpt-4o")) as default, recording(listing("large-1")) as other:
            given = rules(tmp_path, row("other", other.url, *LARGE))
            async with plimsoll(default.url, PLIMSOLL_RULES=given, **KEYS) as proxy:
                if sent == b"HEAD":
                    assert not proxy.services.unfitted.models.serves({"method": "HEAD"})
                    return
                assert names(await ask(proxy.port, sent)) == ["gpt-4o"] and not other.requests

    run(check())


def test_without_rows_and_without_the_setting_the_list_is_the_upstreams_own(tmp_path: Path) -> None:
    async def check() -> None:
        async with recording(listing("gpt-4o")) as default, plimsoll(default.url) as proxy:
            straight = await ask(default.port, get(b"/v1/models"))
            assert (await models(proxy)).body == straight.body

    run(check())


def test_entries_show_the_window_that_is_enforced(tmp_path: Path) -> None:
    async def check() -> None:
        async with recording(listing("gpt-4o", "mystery", context_length=9)) as default:
            async with plimsoll(default.url, CONTEXT_TOTAL_TOKEN_LIMIT="100000", **ON) as proxy:
                known, unknown = json.loads((await models(proxy)).body)["data"]
                assert (known["context_length"], known["max_model_len"], known["max_completion_tokens"]) == (
                    100_000,
                    100_000,
                    16_384,
                )
                assert unknown == {"id": "mystery", "object": "model", "context_length": 9} or (
                    unknown["context_length"] == 100_000  # the operator's limit stands for an unknown window
                )

    run(check())


def test_the_window_stands_under_every_name_that_clients_read_and_no_learned_one_is_shown() -> None:
    refusal = (
        b'{"error":{"message":"This model\'s maximum context length is 4000 tokens. However, your messages resulted '
    )
    refusal += b'in 9000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}'

    async def small(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await listing("gpt-4o", "mystery")(request, peer)
        elif len(request.body) > 20_000:
            await peer.send(answer(refusal, b"400 Bad Request"))
        else:
            await peer.send(answer(b'{"choices":[]}'))

    async def check() -> None:
        async with recording(small) as default, plimsoll(default.url, **ON) as proxy:
            for model in ("gpt-4o", "mystery"):
                assert (await proxy.chat(body(talk(200), model))).status == 200
                assert proxy.learned(model).window == 4_000
            known, unknown = json.loads((await models(proxy)).body)["data"]
            shown = ("context_window", "context_length", "max_model_len", "max_context_length")
            assert [known[name] for name in shown] == [128_000] * 4
            assert unknown == {"id": "mystery", "object": "model"}

    run(check())


def test_a_window_that_some_client_has_had_loaded_is_shown_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_models, "WAIT_S", 30.0)  # however busy the machine is

    async def ollama(request: Request, peer: Peer) -> None:
        if request.target == b"/api/ps":
            await peer.send(answer(b'{"models":[{"name":"mine:7b","context_length":600}]}'))
        else:
            await listing("mine:7b")(request, peer)

    async def check() -> None:
        talk = {"model": "mine:7b", "stream": False, "messages": [{"role": "user", "content": "load " * 500}]}
        async with recording(ollama) as default, plimsoll(default.url, **ON) as proxy:
            await ask(proxy.port, post(json.dumps(talk).encode(), target=b"/api/chat"))
            assert b"/api/ps" in [request.target for request in default.requests]
            (entry,) = json.loads((await models(proxy)).body)["data"]
            assert entry == {"id": "mine:7b", "object": "model"}

    run(check())


def test_requests_at_the_same_time_share_one_fetch(tmp_path: Path) -> None:
    async def check() -> None:
        async with recording(listing("gpt-4o")) as default, recording(listing("large-1")) as other:
            given = rules(tmp_path, row("other", other.url, *LARGE))
            async with plimsoll(default.url, PLIMSOLL_RULES=given, **KEYS) as proxy:
                got = await asyncio.gather(*(models(proxy) for _ in range(5)))
                assert {tuple(names(one)) for one in got} == {("gpt-4o", "large-1", "exact-1")}
                assert len(other.requests) == 1

    run(check())


def test_a_long_list_is_merged_all_the_same(tmp_path: Path) -> None:
    async def check() -> None:
        many = [f"model-{i}" for i in range(3_000)]
        async with recording(listing(*many)) as default, recording(listing("large-1")) as other:
            given = rules(tmp_path, row("other", other.url, 'models = ["large*"]'))
            async with plimsoll(default.url, PLIMSOLL_RULES=given) as proxy:
                assert names(await models(proxy)) == [*many, "large-1"]

    run(check())
