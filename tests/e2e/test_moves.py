"""Moves to another provider: what an agent sends must be valid there, too. Each simulator is as strict as its
provider."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.simulator.app import Simulator, SimulatorConfig
from tests.e2e.services import KEY, PATH, Running, ours, plimsoll, sentence, simulating
from tests.serving import ask, post, run

CLAUDE, GEMINI = "claude-sonnet-4-5", "gemini-2.5-pro"
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


def agent(calls: int, tokens: int = 12_000) -> list[dict[str, Any]]:
    """A run of an agent with so many calls, each in a turn of its own, of about so many tokens in total."""
    said: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Mend it."}]
    for number in range(calls):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"src/{number}.py"})}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = " ".join(sentence(50 * number + i) for i in range(tokens // (45 * calls)))
        said.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    return said


@contextlib.asynccontextmanager
async def movable(
    folder: Path, provider: str, model: str, api: str = "litellm", **environment: str
) -> AsyncIterator[tuple[Simulator, Running]]:
    """A local model with a window of 8,192, the simulator of a provider, behind litellm or with the same API, and a
    proxy before both."""
    async with (
        simulating(SimulatorConfig(window=8_192)) as (_, here),
        simulating(SimulatorConfig(window=200_000, api_key="canary-operator-3141")) as (there, url),
    ):
        root = url.removesuffix("/v1") + ("/v1beta" if provider == "gemini" else "")
        fields = {"name": "far", "url": url, "api": api, "key": "FAR_KEY", "callers": "any"}
        if api == "litellm":
            fields |= {"url": root, "provider": provider}
        elif api == "anthropic":
            fields["key_header"] = "x-api-key"
        lines = [f'{name} = "{value}"' for name, value in fields.items()]
        (folder / "upstreams.toml").write_text("\n".join(("[[upstream]]", f'models = ["{model}"]', *lines)))
        (folder / "windows.toml").write_text('[[window]]\nmodel = "local-1"\ntokens = 8192\n')
        allowed = {"LLM_FALLBACK_ENABLED": "true", "LLM_ALLOWED_FALLBACK_MODELS": model}
        settings = {"PLIMSOLL_RULES": str(folder), "FAR_KEY": "canary-operator-3141", **allowed, **environment}
        async with plimsoll(here, **settings) as proxy:
            yield there, proxy


@pytest.mark.parametrize(("provider", "model"), [("anthropic", CLAUDE), ("gemini", GEMINI)])
def test_W9_an_agent_with_reasoning_effort_moves_to_a_provider_behind_litellm(
    tmp_path: Path, provider: str, model: str
) -> None:
    async def check() -> None:
        async with movable(tmp_path, provider, model) as (there, proxy):
            moved = 0
            for calls in (2, 9, 30):
                for stream in (False, True):
                    sent = {"model": "local-1", "messages": agent(calls), "tools": [TOOL], "stream": stream}
                    effort = {"reasoning_effort": "high", "max_completion_tokens": 2_000 if calls == 9 else 6_000}
                    got = await ask(proxy.port, post(json.dumps({**sent, **effort}).encode(), KEY, target=PATH))
                    told = ours(got)
                    assert (got.status, told.get("upstream")) == (200, "far"), (calls, stream, got.body[:300])
                    assert f"switch_model;local-1->{model}" in told["steps"]
                    assert told["model"] == model and len(there.received) == (moved := moved + 1)
                    assert sentence(0).encode() in there.received[-1].body  # all of it went

    run(check(), seconds=120)


def of_messages(calls: int) -> dict[str, Any]:
    """The run as a request of Messages."""
    said: list[dict[str, Any]] = [{"role": "user", "content": "Mend it."}]
    for turn in agent(calls)[2:]:
        if turn["role"] == "tool":
            result = {"type": "tool_result", "tool_use_id": turn["tool_call_id"], "content": turn["content"]}
            said.append({"role": "user", "content": [result]})
            continue
        (call,) = turn["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        use = {"type": "tool_use", "id": call["id"], "name": "read_file", "input": arguments}
        said.append({"role": "assistant", "content": [use]})
    function = TOOL["function"]
    assert isinstance(function, dict)
    tool = {"name": "read_file", "description": "Reads a file.", "input_schema": function["parameters"]}
    return {"system": "Be brief.", "messages": said, "tools": [tool], "max_tokens": 6_000}


def of_responses(calls: int) -> dict[str, Any]:
    """The run as a request of Responses."""
    items: list[dict[str, Any]] = [{"role": "user", "content": "Mend it."}]
    for turn in agent(calls)[2:]:
        if turn["role"] == "tool":
            items.append({"type": "function_call_output", "call_id": turn["tool_call_id"], "output": turn["content"]})
            continue
        (call,) = turn["tool_calls"]
        items.append({"type": "function_call", "call_id": call["id"], **call["function"]})
    function = TOOL["function"]
    assert isinstance(function, dict)
    tool = {"type": "function", **function}
    return {"instructions": "Be brief.", "input": items, "tools": [tool], "max_output_tokens": 6_000, "store": False}


THINKING = {"thinking": {"type": "enabled", "budget_tokens": 4_096}}
EFFORT = {"reasoning": {"effort": "high"}}


@pytest.mark.parametrize("asks", [True, False], ids=["thinking", "not"])
@pytest.mark.parametrize(("target", "model"), [(b"/v1/messages", CLAUDE), (b"/v1/responses", "gpt-5")])
def test_W26_an_agent_on_messages_or_responses_moves_as_one_on_chat_does(
    tmp_path: Path, target: bytes, model: str, asks: bool
) -> None:
    messages = target == b"/v1/messages"

    async def check() -> None:
        async with movable(tmp_path, "", model, "anthropic" if messages else "openai") as (there, proxy):
            moved = 0
            for calls in (2, 9, 30):
                for stream in (False, True):
                    run_ = of_messages(calls) if messages else of_responses(calls)
                    more = (THINKING if messages else EFFORT) if asks else {}
                    sent = {"model": "local-1", **run_, "stream": stream, **more}
                    got = await ask(
                        proxy.port,
                        post(json.dumps(sent).encode(), KEY, b"anthropic-version: 2023-06-01", target=target),
                    )
                    told = ours(got)
                    assert (got.status, told.get("upstream")) == (200, "far"), (calls, stream, told, got.body[:300])
                    assert told["steps"] == f"switch_model;local-1->{model}"
                    assert told["model"] == model and len(there.received) == (moved := moved + 1)
                    assert sentence(0).encode() in there.received[-1].body  # all of it went

    run(check(), seconds=120)
