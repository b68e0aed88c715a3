"""Threads: a request brings what is new, and the simulator has the rest."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.simulator.anthropic_messages import threads as module
from proxy.simulator.anthropic_messages.answer import PATH
from proxy.simulator.anthropic_messages.threads import Threads, hold
from proxy.simulator.app import Simulator
from proxy.simulator.settings import SimulatorConfig
from tests.simulator.anthropic_messages.test_answer import ASK, HEADERS, TOOL
from tests.simulator.test_app import ResponseReader, exchange

BETA = (b"anthropic-beta", b"message-threads-2026-08-12")


def ask(
    app: Simulator, thread: Any, messages: list[Any], *headers: tuple[bytes, bytes], **fields: Any
) -> ResponseReader:
    base = {"model": "claude-sim-tools", "max_tokens": 50, "messages": messages, "thread": thread, **fields}
    return asyncio.run(exchange(app, "POST", PATH, json.dumps(base).encode(), [*HEADERS, *(headers or (BETA,))]))


def test_a_thread_has_the_whole_conversation_and_its_tools() -> None:
    app = Simulator(SimulatorConfig())
    first = ask(app, {"type": "create"}, [ASK], tools=[TOOL], system="Be brief.").json
    result = {"type": "tool_result", "tool_use_id": first["content"][0]["id"], "content": "word " * 100}
    goes_on = {"type": "continue", "previous_message_id": first["id"]}
    second = ask(app, goes_on, [{"role": "user", "content": [result]}]).json
    assert second["content"][0]["type"] == "text"
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"] + 100
    third = ask(app, {"type": "continue", "previous_message_id": second["id"]}, [ASK]).json
    assert third["usage"]["input_tokens"] > second["usage"]["input_tokens"]


def test_a_thread_that_is_not_held_is_an_error_that_clients_know() -> None:
    lost = ask(Simulator(SimulatorConfig()), {"type": "continue", "previous_message_id": "msg_0"}, [ASK])
    assert (lost.status, lost.json["error"]["details"]) == (404, {"error_code": "thread_not_found"})


def test_a_thread_needs_its_beta() -> None:
    refused = ask(Simulator(SimulatorConfig()), {"type": "create"}, [ASK], (b"x", b"y"))
    assert (refused.status, refused.json["error"]["message"]) == (400, "thread: Extra inputs are not permitted")


def test_not_all_threads_are_held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HELD", 2)
    threads: Threads = {}
    for ident in ("a", "b", "c"):
        hold({"messages": [ASK], "thread": {"type": "create"}}, ident, [], threads)
    hold({"messages": [ASK]}, "d", [], threads)
    assert list(threads) == ["c"]
