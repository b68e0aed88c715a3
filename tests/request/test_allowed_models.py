"""A caller whose rule says which models it may use sees no others, in every shape of a list, on real sockets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.request.callers import hash_of
from tests.e2e.services import Running, plimsoll
from tests.e2e.test_upstreams import KEYS, row
from tests.recorder import Peer, Recorder, Request, Script, answer, recording
from tests.serving import Reply, ask, get, run

SECRET = "a secret of the tests"
HELD = "sk-held-0123456789"
MINE, OTHER = f"authorization: Bearer {HELD}".encode(), b"authorization: Bearer sk-other"
CALLERS = f"""
[[caller]]
name = "held"
match = "{hash_of(SECRET.encode(), HELD.encode())}"
models = ["gpt-4o*", "claude-haiku*", "llama3*", "gemini-2.5-flash*"]
{{more}}
"""
OPENAI = {"object": "list", "data": [{"id": name, "object": "model"} for name in ("gpt-4o", "o3", "gpt-4o-mini")]}
CLAUDES = [f"claude-{name}" for name in ("opus-4-1", "haiku-4-5", "sonnet-4-5")]
ANTHROPIC = {
    "data": [{"type": "model", "id": name, "display_name": name} for name in CLAUDES],
    "has_more": False,
    "first_id": CLAUDES[0],
    "last_id": CLAUDES[-1],
}
TAGS = {"models": [{"name": name, "model": name, "size": 1} for name in ("llama3.2:latest", "qwen3:8b", "LLaMA3:70b")]}
GEMINI = {
    "models": [{"name": f"models/gemini-2.5-{size}", "inputTokenLimit": 1} for size in ("pro", "flash", "flash-lite")],
    "nextPageToken": "abc",
}
SHAPES: dict[str, tuple[Any, list[str]]] = {
    "/v1/models": (OPENAI, ["gpt-4o", "gpt-4o-mini"]),
    "/v1/models?limit=20": (ANTHROPIC, ["claude-haiku-4-5"]),
    "/api/tags": (TAGS, ["llama3.2:latest", "LLaMA3:70b"]),
    "/api/ps": (TAGS, ["llama3.2:latest", "LLaMA3:70b"]),
    "/v1beta/models?pageSize=3": (GEMINI, ["models/gemini-2.5-flash", "models/gemini-2.5-flash-lite"]),
    "/v1/%6dodels": (OPENAI, ["gpt-4o", "gpt-4o-mini"]),
    "/v1/x/../models": (OPENAI, ["gpt-4o", "gpt-4o-mini"]),
}


def saying(body: bytes, line: bytes = b"200 OK", headers: tuple[bytes, ...] = ()) -> Script:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(answer(body, line, headers))

    return script


def names(reply: Reply) -> list[str]:
    found = json.loads(reply.body)
    return [entry.get("id") or entry["name"] for entry in found.get("data", found.get("models"))]


def ruled(folder: Path, more: str = "", *rows: str) -> dict[str, str]:
    """The settings with the rule, and rows of upstreams."""
    (folder / "callers.toml").write_text(CALLERS.replace("{more}", more))
    if rows:
        (folder / "upstreams.toml").write_text("\n".join(f"[[upstream]]\n{one}" for one in rows))
    return {"PLIMSOLL_RULES": str(folder), "PLIMSOLL_SECRET": SECRET, **KEYS}


async def asked(proxy: Running, target: str, *headers: bytes) -> Reply:
    return await ask(proxy.port, get(target.encode(), *headers))


@pytest.mark.parametrize("target", SHAPES)
def test_a_caller_sees_what_it_may_use_and_whoever_has_no_such_rule_sees_the_same_bytes_as_before(
    tmp_path: Path, target: str
) -> None:
    listed, allowed = SHAPES[target]

    async def check() -> None:
        body = json.dumps(listed, indent=1).encode()
        async with recording(saying(body)) as upstream, plimsoll(upstream.url, **ruled(tmp_path)) as proxy:
            got = await asked(proxy, target, MINE, b"accept-encoding: gzip", b'if-none-match: "x"')
            assert names(got) == allowed
            entries = next(key for key in ("data", "models") if key in listed)
            assert json.loads(got.body)[entries] == [
                entry for entry in listed[entries] if (entry.get("id") or entry["name"]) in allowed
            ]
            sent = upstream.requests[-1]
            assert not sent.header(b"accept-encoding") == [b"gzip"] and not sent.header(b"if-none-match")
            assert sent.header(b"authorization") == [MINE.partition(b": ")[2]]
            told = await proxy.told()
            assert (told.endpoint, told.result, told.caller, told.status) == ("passthrough", "passed", "held", 200)
            assert (await asked(proxy, target, OTHER)).body == body

    run(check())


def test_a_list_names_no_first_or_last_model_that_is_not_in_it_unless_it_goes_on(tmp_path: Path) -> None:
    async def check() -> None:
        for more, ends in ((False, ["claude-haiku-4-5"] * 2), (True, [CLAUDES[0], CLAUDES[-1]])):
            body = json.dumps({**ANTHROPIC, "has_more": more}).encode()
            async with recording(saying(body)) as upstream, plimsoll(upstream.url, **ruled(tmp_path)) as proxy:
                found = json.loads((await asked(proxy, "/v1/models", MINE)).body)
                assert [found["first_id"], found["last_id"]] == ends and found["has_more"] is more

    run(check())


@pytest.mark.parametrize("target", ["/v1/models/o3", "/v1/models/%6f3", "/v1beta/models/gemini-2.5-pro", "/models/o3"])
def test_the_entry_of_a_model_that_a_caller_may_not_use_is_not_found(tmp_path: Path, target: str) -> None:
    async def check() -> None:
        async with recording(saying(b'{"id":"x"}')) as upstream, plimsoll(upstream.url, **ruled(tmp_path)) as proxy:
            got = await asked(proxy, target, MINE)
            assert got.status == 404 and b"model_not_found" in got.body and not upstream.requests
            assert (await asked(proxy, target, OTHER)).body == b'{"id":"x"}'
            assert (await asked(proxy, "/v1/models/gpt-4o", MINE)).body == b'{"id":"x"}'

    run(check())


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data":{}}', b'{"error":{"message":"no"}}', b""])
def test_what_is_no_list_is_answered_as_it_is(tmp_path: Path, body: bytes) -> None:
    async def check() -> None:
        async with recording(saying(body)) as upstream, plimsoll(upstream.url, **ruled(tmp_path)) as proxy:
            assert (await asked(proxy, "/v1/models", MINE)).body == body
        async with recording(saying(body, b"401 No")) as upstream, plimsoll(upstream.url, **ruled(tmp_path)) as proxy:
            got = await asked(proxy, "/v1/models", MINE)
            assert (got.status, got.body) == (401, body)

    run(check())


def test_a_list_that_cannot_be_read_shows_nothing(tmp_path: Path) -> None:
    async def check() -> None:
        packed = saying(b"\x1f\x8b gzip of o3", headers=(b"content-encoding: gzip",))
        async with recording(packed) as upstream, plimsoll(upstream.url, **ruled(tmp_path)) as proxy:
            got = await asked(proxy, "/v1/models", MINE)
            assert got.status == 502 and b"o3" not in got.body
        async with plimsoll("http://127.0.0.1:9/v1", **ruled(tmp_path)) as proxy:
            assert (await asked(proxy, "/v1/models", MINE)).status == 502

    run(check())


def test_of_several_upstreams_a_caller_sees_what_it_may_use_and_of_its_own_upstream_nothing_else(
    tmp_path: Path,
) -> None:
    async def check(default: Recorder, other: Recorder) -> None:
        rows = row("other", other.url, 'models = ["gpt-4o-mini", "large-*"]')
        async with plimsoll(default.url, **ruled(tmp_path, "", rows)) as proxy:
            assert names(await asked(proxy, "/v1/models", MINE)) == ["gpt-4o", "gpt-4o-mini"]
            assert "large-1" in names(await asked(proxy, "/v1/models", OTHER))
            assert (await asked(proxy, "/v1/models/large-1", MINE)).status == 404
            assert (await asked(proxy, "/v1/models/large-1", OTHER)).status == 200
        async with plimsoll(default.url, **ruled(tmp_path, 'upstream = "other"', rows)) as proxy:
            assert names(await asked(proxy, "/v1/models", MINE)) == ["gpt-4o-mini"]

    async def both() -> None:
        others = {"object": "list", "data": [{"id": name} for name in ("gpt-4o-mini", "large-1")]}
        async with (
            recording(saying(json.dumps({**OPENAI, "data": OPENAI["data"][:2]}).encode())) as default,
            recording(saying(json.dumps(others).encode())) as other,
        ):
            await check(default, other)

    run(both())
