"""Bodies with more messages, values or tools than are parsed: what becomes of them is told, and pairs stay whole."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.simulator.app import Simulator
from tests.e2e.services import simulating
from tests.hostile.harness import CHAT, Running, eventually, running_anew

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
PATHS = (CHAT, MESSAGES, RESPONSES)
VERSION = {"anthropic-version": "2023-06-01", "anthropic-beta": "context-1m-2025-08-07"}
LEFT_OUT = "messages in the middle are left out and not counted: there are too many to be parsed"
UNMEASURED = "the request was sent as it came, unmeasured: "


@contextlib.contextmanager
def strict() -> Iterator[tuple[Simulator, str]]:
    """A simulator with windows of 8,192 tokens, in a thread with an event loop of its own; and its URL."""
    loop = asyncio.new_event_loop()
    opened: list[tuple[Simulator, str]] = []
    ready, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with simulating() as here:
            opened.append(here)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    if not ready.wait(30):
        raise TimeoutError("the simulator did not start")
    try:
        yield opened[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(30)
        loop.close()


@pytest.fixture(scope="module")
def pair(workers: int) -> Iterator[tuple[Running, Simulator]]:
    """A proxy before a strict simulator."""
    with strict() as (there, url), running_anew(url, workers=workers) as proxy:
        yield proxy, there


def tools(count: int) -> list[dict[str, Any]]:
    """Definitions of tools, each of 13 values."""
    places = {name: {"type": "string", "enum": ["a", "b", "c"]} for name in ("source", "target")}
    return [
        {"type": "function", "function": {"name": f"tool_{n}", "parameters": {"type": "object", "properties": places}}}
        for n in range(count)
    ]


def test_S13_too_many_tools_to_be_parsed_are_told_with_the_reason(pair: tuple[Running, Simulator]) -> None:
    proxy, there = pair
    body = json.dumps({"model": "gpt-4", "messages": [{"role": "user", "content": "hi"}], "tools": tools(8_000)})
    got = proxy.ask(body.encode(), path=CHAT)
    assert got.status == 400 and got.json["error"]["code"] == "context_length_exceeded"
    assert there.received[-1].body == body.encode()
    why = "there are more values in it than we plan with"
    assert got.headers["x-plimsoll-notice"] == UNMEASURED + why
    told = json.loads(proxy.log('"unplanned"')[-1])
    assert (told["result"], told["unplanned"]) == ("not_understood", why)


def body(path: str, told: list[dict[str, Any]], model: str) -> bytes:
    """A request with these messages behind a system prompt and a first question."""
    first = {"role": "user", "content": "Where is the pilot?"}
    if path == RESPONSES:
        return json.dumps({"model": model, "instructions": "Be brief.", "input": [first, *told]}).encode()
    if path == MESSAGES:
        tool = {"name": "look", "input_schema": {"type": "object"}}
        head = {"model": model, "max_tokens": 500, "system": "Be brief.", "tools": [tool]}
        return json.dumps({**head, "messages": [first, *told]}).encode()
    return json.dumps({"model": model, "messages": [{"role": "system", "content": "Be brief."}, first, *told]}).encode()


def rounds(path: str, count: int, words: int = 60) -> list[dict[str, Any]]:
    """So many calls of a tool, each with its result."""
    found: list[dict[str, Any]] = []
    for n in range(count):
        ident, said, text = f"call_{n}", json.dumps({"berth": n, "tide": "low"}), f"{n}: " + "tide crane " * words
        if path == CHAT:
            call = {"id": ident, "type": "function", "function": {"name": "look", "arguments": said}}
            found.append({"role": "assistant", "content": None, "tool_calls": [call]})
            found.append({"role": "tool", "tool_call_id": ident, "content": text})
        elif path == MESSAGES:
            use = {"type": "tool_use", "id": ident, "name": "look", "input": {"berth": n, "tide": "low"}}
            found.append({"role": "assistant", "content": [use]})
            result = {"type": "tool_result", "tool_use_id": ident, "content": text}
            found.append({"role": "user", "content": [result]})
        else:
            found.append({"type": "function_call", "call_id": ident, "name": "look", "arguments": said})
            found.append({"type": "function_call_output", "call_id": ident, "output": text})
    return found


def turns(count: int) -> list[dict[str, Any]]:
    """So many short messages; the user has the last word."""
    return [{"role": ("assistant", "user")[n % 2], "content": f"Entry {n}: crane."} for n in range(count)]


CROWDS = {
    "8,000 rounds": lambda path: rounds(path, 12_000, 30) if path == RESPONSES else rounds(path, 8_000),
    "60,000 messages": lambda path: turns(60_000),
}
MODELS = {CHAT: "gpt-4", MESSAGES: "claude-sonnet-4-5", RESPONSES: "gpt-4"}


def ids(told: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The ids of all calls and of all results."""
    text = json.dumps(told)
    calls = [p.partition('"')[0] for key in ('"id": "', '"call_id": "') for p in text.split(key)[1:]]
    if '"function_call_output"' in text:
        of = [(m["type"], m["call_id"]) for m in told if "call_id" in m]
        return [i for kind, i in of if kind == "function_call"], [i for kind, i in of if kind != "function_call"]
    answers = [p.partition('"')[0] for key in ('"tool_call_id": "', '"tool_use_id": "') for p in text.split(key)[1:]]
    return calls, answers


@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.parametrize("path", PATHS)
def test_S13_a_crowded_conversation_is_cut_with_its_pairs_whole(
    pair: tuple[Running, Simulator], path: str, crowd: str
) -> None:
    proxy, there = pair
    told = CROWDS[crowd](path)
    sent = body(path, told, MODELS[path])
    before = len(proxy.log('"result":"fitted"', 0))
    got = proxy.ask(sent, path=path, headers={"x-plimsoll-window": "8192", **VERSION})
    assert got.status == 200, got.body[:500]
    seen = json.loads(there.received[-1].body)
    kept = seen["input" if path == RESPONSES else "messages"]
    assert len(kept) < len(told) / 10 and kept[-1] == told[-1], "the newest stays"
    assert any(m.get("content") == "Where is the pilot?" for m in kept[:2]), "the first question stays"
    assert "Be brief." in json.dumps(seen)[:400]
    calls, answers = ids(kept)
    assert calls == answers and (len(calls) > 3) == (crowd == "8,000 rounds")
    assert LEFT_OUT in got.headers["x-plimsoll-notice"]
    left_out = int(got.headers["x-plimsoll-notice"].split()[0].replace(",", ""))
    assert len(told) / 8 < left_out < len(told)
    assert int(got.headers["x-plimsoll-tokens-sent"]) < 8_192 < int(got.headers["x-plimsoll-tokens"])
    eventually(lambda: len(proxy.log('"result":"fitted"', 0)) > before)
    line = json.loads(proxy.log('"result":"fitted"')[-1])
    assert line["model"] == MODELS[path] and line["messages"] in (len(told) + 1, len(told) + 2)


@pytest.mark.parametrize("path", PATHS)
def test_S13_a_crowded_conversation_that_may_fit_goes_byte_for_byte(pair: tuple[Running, Simulator], path: str) -> None:
    proxy, there = pair
    sent = body(path, turns(60_000), "gpt-4.1" if path != MESSAGES else "claude-sonnet-4-6")
    got = proxy.ask(sent, path=path, headers={"x-sim-window": "5000000", **VERSION})
    assert got.status == 200 and there.received[-1].body == sent
    assert got.headers["x-plimsoll-notice"].startswith(UNMEASURED + "there are more messages")


def test_S13_what_may_not_be_left_out_unread_goes_as_it_came(pair: tuple[Running, Simulator]) -> None:
    proxy, there = pair
    sent = body(CHAT, turns(60_000), "gpt-4")
    got = proxy.ask(sent, headers={"x-plimsoll-pin": "30000"})
    assert (got.status, there.received[-1].body) == (400, sent)
    assert got.headers["x-plimsoll-notice"].startswith(UNMEASURED)


def test_S13_instructions_in_the_middle_stay(pair: tuple[Running, Simulator]) -> None:
    proxy, there = pair
    told = turns(60_000)
    told.insert(30_000, {"role": "system", "content": "Never name the harbour."})
    assert proxy.ask(body(CHAT, told, "gpt-4")).status == 200
    assert told[30_000] in json.loads(there.received[-1].body)["messages"]


def test_S13_a_crowd_takes_memory_in_proportion_to_its_bytes(pair: tuple[Running, Simulator]) -> None:
    proxy, _ = pair
    sent = body(CHAT, rounds(CHAT, 8_000), "gpt-4")
    for _ in range(3):
        assert proxy.ask(sent).status == 200
    idle = proxy.settled_mb()
    for _ in range(3):
        assert proxy.ask(sent).status == 200
    assert proxy.memory_mb(peak=True) - idle < 32 + 12 * len(sent) / 2**20
