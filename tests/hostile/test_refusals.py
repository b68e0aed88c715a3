"""Refusals without figures: an agent goes on past them, pays for few, and nobody is cut by what was not proven."""

from __future__ import annotations

import json
import re
import time
from functools import partial
from typing import Any

import pytest

from tests.hostile.harness import CHAT, Running, eventually, ok, refused, running, upstream
from tests.hostile.test_learning import ATTACKER, VICTIM, sent, size, strict, talk
from tests.recorder import Peer, Recorder, Request, Script, answer
from tests.redis_server import redis_server

SILENT = "Your input exceeds the context window of this model. Please adjust your input and try again."
FILE = " ".join(f"word{i % 7} tide crane cargo" for i in range(250))  # some 1,500 tokens
SYSTEM = "You read files. " + "Be brief and exact. " * 200
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
TOOL = {"type": "object", "properties": {"path": {"type": "string"}}}
ANSWERS: dict[str, dict[str, Any]] = {
    RESPONSES: {"id": "resp_1", "object": "response", "status": "completed", "output": []},
    MESSAGES: {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "ok"}],
        "stop_reason": "end_turn",
    },
}


def words(raw: bytes) -> int:
    """What the scripted upstream counts."""
    return len(re.findall(rb"[a-z]+|\d+", raw))


def silent(window: int) -> Script:
    """An upstream of three APIs that refuses what is over a window, and names no figure."""

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b"{}", b"404 Not Found"))
        elif words(request.body) > window:
            await peer.send(refused(SILENT))
        elif (told := ANSWERS.get(request.target.decode())) is not None:
            await peer.send(answer(json.dumps(told).encode()))
        else:
            await peer.send(ok())

    return script


def reading(path: str, model: str, files: int) -> dict[str, Any]:
    """The request of an agent that has read so many files."""
    task, ids = "Read all files of run " + model, range(files)
    names = [json.dumps({"path": f"src/file_{i}.txt"}) for i in ids]
    if path == RESPONSES:
        told: list[dict[str, Any]] = [{"role": "user", "content": task}]
        for i in ids:
            call: dict[str, Any] = {
                "type": "function_call",
                "call_id": f"call_{i}",
                "name": "read",
                "arguments": names[i],
            }
            told += [call, {"type": "function_call_output", "call_id": f"call_{i}", "output": f"File {i}: {FILE}"}]
        tools = [{"type": "function", "name": "read", "parameters": TOOL}]
        return {"model": model, "instructions": SYSTEM, "input": told, "tools": tools, "store": False}
    told = [{"role": "user", "content": task}]
    if path == MESSAGES:
        for i in ids:
            used = {"type": "tool_use", "id": f"toolu_{i}", "name": "read", "input": json.loads(names[i])}
            result = {"type": "tool_result", "tool_use_id": f"toolu_{i}", "content": f"File {i}: {FILE}"}
            told += [{"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
        given = {"max_tokens": 500, "system": SYSTEM, "tools": [{"name": "read", "input_schema": TOOL}]}
        return {"model": model, "messages": told, **given}
    for i in ids:
        call = {"id": f"call_{i}", "type": "function", "function": {"name": "read", "arguments": names[i]}}
        told.append({"role": "assistant", "content": None, "tool_calls": [call]})
        told.append({"role": "tool", "tool_call_id": f"call_{i}", "content": f"File {i}: {FILE}"})
    tools = [{"type": "function", "function": {"name": "read", "parameters": TOOL}}]
    return {"model": model, "messages": [{"role": "system", "content": SYSTEM}, *told], "tools": tools}


def run(proxy: Running, up: Recorder, path: str, model: str, **headers: str) -> tuple[list[int], int]:
    """The statuses of an agent's run over 40 files, and how many requests were refused first."""
    before = len(sent(up))
    statuses = [proxy.ask(reading(path, model, files), path, headers=headers).status for files in range(41)]
    return statuses, len(sent(up)) - before - len(statuses)


MODELS = {CHAT: "gpt-4o", RESPONSES: "gpt-5.2", MESSAGES: "claude-sonnet-4-5"}


@pytest.mark.parametrize("window", [22_000, 12_000])
@pytest.mark.parametrize("path", MODELS)
def test_W4_an_agent_reads_forty_files_past_a_window_that_no_refusal_names(path: str, window: int) -> None:
    with upstream(silent(window)) as up, running(up.url) as proxy:
        statuses, refusals = run(proxy, up, path, MODELS[path])
        assert set(statuses) == {200} and 1 <= refusals <= 3
        statuses, refusals = run(proxy, up, path, MODELS[path])
        assert set(statuses) == {200} and refusals <= 1, "a probe at most"
        assert max(words(r.body) for r in up.requests[-10:]) > 0.4 * window


def test_W4_what_one_replica_met_the_others_need_not_meet_and_another_tenant_is_not_cut() -> None:
    with redis_server() as redis, upstream(silent(12_000)) as up:
        start = partial(running, up.url, PLIMSOLL_REDIS=redis.url, PLIMSOLL_SECRET="s" * 32)
        with start() as one, start() as two:
            assert run(one, up, RESPONSES, "gpt-5.2", **VICTIM)[1] > 0
            eventually(lambda: any("intervals" in name for name in redis.names()))
            statuses, refusals = run(two, up, RESPONSES, "gpt-5.2", **VICTIM)
            assert set(statuses) == {200} and refusals <= 1
            other, before = reading(RESPONSES, "gpt-5.2", 20), len(sent(up))
            assert two.ask(other, RESPONSES, headers=ATTACKER).status == 200
            assert sent(up)[before] == other


@pytest.mark.parametrize("model", ["gpt-4o", "acme/harbour-9b"])
def test_W4_what_is_refused_whatever_its_length_cuts_nothing_afterwards(model: str, workers: int) -> None:
    """Nothing smaller was answered: the length was not the reason."""
    angry = {"now": True}

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b"{}", b"404 Not Found"))
        else:
            await peer.send(refused(SILENT) if angry["now"] else ok(size(request.body)))

    with upstream(script) as up, running(up.url, workers=workers) as proxy:
        for turns in (150, 150, 90, 40) * workers:
            assert proxy.ask(talk(turns, model)).status == 400
        angry["now"] = False
        for turns in (150, 90, 40) * workers:
            assert proxy.ask(talk(turns, model)).status == 200
            assert sent(up)[-1] == talk(turns, model)


def test_W4_refusals_at_random_do_not_add_up() -> None:
    """Each first attempt is refused, each second one is answered: what was answered before bounds what is believed."""
    odd = {"now": False}

    async def script(request: Request, peer: Peer) -> None:
        if request.method == b"GET":
            await peer.send(answer(b"{}", b"404 Not Found"))
            return
        odd["now"] = not odd["now"]
        await peer.send(refused(SILENT) if odd["now"] else ok(size(request.body)))

    long = talk(150)
    with upstream(script) as up, running(up.url) as proxy:
        for _ in range(6):
            assert proxy.ask(long).status == 200
        # What the third answer's usage teaches of the count may move a word.
        assert len(sent(up)[-2]) == pytest.approx(len(sent(up)[2]), rel=0.01), "each starts where the second did"


def test_W4_no_error_of_ours_rests_on_it() -> None:
    """What no plan fits goes out, and what the upstream says of it goes to the client."""
    window = {"tokens": 3_000}

    async def script(request: Request, peer: Peer) -> None:
        await silent(window["tokens"])(request, peer)

    with upstream(script) as up, running(up.url) as proxy:
        assert proxy.ask(talk(90)).status == 200
        window["tokens"] = 5
        pinned = {"model": "gpt-4o", "messages": [{"role": "user", "content": "tide crane " * 3_000}]}
        for _ in range(2):
            before = len(sent(up))
            told = proxy.ask(pinned, headers={"x-plimsoll-ladder": "lossless"})
            assert told.status == 400 and SILENT.encode() in told.body
            assert len(sent(up)) > before


def test_W30_a_probe_that_is_refused_doubles_the_wait_for_the_next() -> None:
    long = talk(80)
    with upstream(strict(lambda _: 2_048)) as up, running(up.url, PLIMSOLL_PROBE_AFTER="1") as proxy:
        assert proxy.ask(long).status == 200
        probes, ends = 0, time.monotonic() + 12
        while time.monotonic() < ends:
            before = len(sent(up))
            assert proxy.ask(long).status == 200
            probes += len(sent(up)) - before - 1
            time.sleep(0.1)
        assert 1 <= probes <= 4, "after 1, 3 and 7 seconds; every second before"
