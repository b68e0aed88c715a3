"""Each agent's request for a summary of its conversation, in the form in which the agent sends it: past a window that
nobody knows, and past one that is known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import httpx
import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.world import World, world
from tests.makers import words

MODEL, WINDOW, ROUNDS = "house-1", 9_000, 12
NONE: Mapping[str, str] = MappingProxyType({})
SAYS = "the summary does not cover all of the conversation: "
TOOL = {"type": "object", "properties": {"path": {"type": "string"}}}
RULES = "Keep file names, decisions and open tasks. " * 40


@dataclass(frozen=True)
class Asked:
    """A request: its path, its body, and the text in it that must reach the upstream whole."""

    path: str
    body: dict[str, Any]
    prompt: str

    def sent(self, **more: Any) -> bytes:
        return json.dumps({**self.body, **more}).encode()


def result(i: int) -> str:
    """A file's text with a fact at its beginning."""
    return f"The port of service {i} is {4000 + i}.\n" + "\n".join(words(10, f"r{i}x{line}y") for line in range(40))


def said(i: int) -> str:
    return f"I noted that the owner of service {i} is team-{i}."


def asked(i: int) -> str:
    return f"Service {i} must stay in zone-{i}. Read file_{i}.md."


def claude_code() -> Asked:
    """The prompt is the last text of a message that begins with the newest result."""
    prompt = f"CRITICAL: Respond with TEXT ONLY.\n\nYour task is to create a detailed summary of all that was. {RULES}"
    messages: list[dict[str, Any]] = []
    for i in range(ROUNDS):
        call = {"type": "tool_use", "id": f"t{i}", "name": "Read", "input": {"path": f"file_{i}.md"}}
        told = {"type": "tool_result", "tool_use_id": f"t{i}", "content": result(i)}
        messages += [{"role": "user", "content": asked(i)}, {"role": "assistant", "content": [call]}]
        messages += [{"role": "user", "content": [told]}]
        messages += [{"role": "assistant", "content": [{"type": "text", "text": said(i)}]}] if i < ROUNDS - 1 else []
    messages[-1]["content"].append({"type": "text", "text": prompt})
    tools = [{"name": "Read", "description": "Reads a file.", "input_schema": TOOL}]
    system = [{"type": "text", "text": "You are an agent that works on software."}]
    body = {"model": MODEL, "max_tokens": 4_000, "system": system, "tools": tools, "messages": messages}
    return Asked("/messages", body, prompt)


def codex() -> Asked:
    """The prompt is a message of the user behind the items."""
    prompt = f"You are performing a CONTEXT CHECKPOINT COMPACTION. {RULES}"
    items: list[dict[str, Any]] = []
    for i in range(ROUNDS):
        items += [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": asked(i)}]}]
        items += [
            {"type": "function_call", "call_id": f"c{i}", "name": "exec", "arguments": f'{{"cmd":"cat file_{i}.md"}}'}
        ]
        items += [{"type": "function_call_output", "call_id": f"c{i}", "output": result(i)}]
        text = {"type": "output_text", "text": said(i), "annotations": []}
        items += [{"type": "message", "role": "assistant", "content": [text]}]
    items += [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]}]
    return Asked("/responses", {"model": MODEL, "input": items, "tools": [], "store": False}, prompt)


def opencode() -> Asked:
    """The conversation is a text in the last message, and what is asked of the model stands behind it."""
    system = (
        "You are a context summarization agent. You are given a conversation between a user and an agent. Be exact."
    )
    prompt = f"Write the summary in this form. {RULES}"
    entries = [f"[User]: {asked(i)}\n\n[Tool result]: {result(i)}\n\n[Assistant]: {said(i)}" for i in range(ROUNDS)]
    text = (
        "Here is the conversation so far:\n\n<conversation>\n" + "\n\n".join(entries) + f"\n</conversation>\n\n{prompt}"
    )
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return Asked("/chat/completions", {"model": MODEL, "messages": messages, "max_tokens": 1_000}, prompt)


def chat_rounds() -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for i in range(ROUNDS):
        function = {"name": "read_file", "arguments": f'{{"path":"file_{i}.md"}}'}
        call = {"id": f"c{i}", "type": "function", "function": function}
        messages += [
            {"role": "user", "content": asked(i)},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ]
        messages += [{"role": "tool", "tool_call_id": f"c{i}", "content": result(i)}]
        messages += [{"role": "assistant", "content": said(i)}]
    return messages


def qwen_code() -> Asked:
    """Instructions of its own say what is asked; the last message only starts it."""
    prompt = "You are the component that summarizes internal chat history into a given structure. " + RULES
    messages = [{"role": "system", "content": prompt}, *chat_rounds(), {"role": "user", "content": "Now begin."}]
    return Asked("/chat/completions", {"model": MODEL, "messages": messages, "max_tokens": 2_000}, prompt)


def aider() -> Asked:
    """A transcript under instructions of its own."""
    prompt = "*Briefly* summarize this partial conversation about programming. " + RULES
    text = "\n\n".join(f"# USER\n{asked(i)}\n\n{result(i)}\n\n# ASSISTANT\n{said(i)}" for i in range(ROUNDS))
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": text}]
    return Asked("/chat/completions", {"model": MODEL, "messages": messages}, prompt)


AGENTS = {"Claude Code": claude_code, "Codex": codex, "opencode": opencode, "Qwen Code": qwen_code, "aider": aider}
PROVIDERS = {"/messages": "anthropic", "/responses": "openai", "/chat/completions": "vllm"}
every_agent = pytest.mark.parametrize("agent", AGENTS)


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world(SimulatorConfig(window=WINDOW)) as made:
        yield made


def post(url: str, asked: Asked, tag: str, body: bytes = b"", headers: Mapping[str, str] = NONE) -> httpx.Response:
    own = {"x-api-key": "k", "authorization": "Bearer k", "anthropic-version": "2023-06-01", "x-scenario": tag}
    own |= {"content-type": "application/json", "x-sim-provider": PROVIDERS.get(asked.path, "openai")}
    return httpx.post(url + asked.path, content=body or asked.sent(), headers={**own, **headers}, timeout=60)


@every_agent
def test_an_agents_compaction_cannot_fail_for_its_length(here: World, agent: str) -> None:
    """Nobody knows the window: the refusal teaches it. All that is short reaches the summary; the instruction is whole,
    and what the summary does not cover is named."""
    request = AGENTS[agent]()
    assert post(here.straight, request, f"straight {agent}").status_code == 400
    answer = post(here.through, request, f"through {agent}")
    assert answer.status_code == 200, answer.text
    received = here.seen(f"through {agent}")[-1].json()
    text = json.dumps(received)
    assert json.dumps(request.prompt)[1:-1] in text
    assert answer.headers["x-plimsoll-notice"].startswith(SAYS)
    assert all(said(i) in text for i in range(ROUNDS - 1)) and all(asked(i) in text for i in range(ROUNDS))
    assert sum(f"is {4000 + i}." in text for i in range(ROUNDS)) >= ROUNDS - 1


@every_agent
def test_past_a_known_window_it_is_cut_before_it_is_refused(here: World, agent: str) -> None:
    request, tag = AGENTS[agent](), f"known {agent}"
    answer = post(here.through, request, tag, headers={"x-plimsoll-window": "7000"})
    assert answer.status_code == 200 and answer.headers["x-plimsoll-notice"].startswith(SAYS)
    (received,) = here.seen(tag)
    assert json.dumps(request.prompt)[1:-1] in json.dumps(received.json())
    assert int(answer.headers["x-plimsoll-tokens-sent"]) <= 7_000


@every_agent
def test_where_it_fits_no_byte_changes(here: World, agent: str) -> None:
    """Also close to the window."""
    request, tag = AGENTS[agent](), f"fits {agent}"
    request.body["model"] = "house-2"  # of which nobody has learned anything
    tokens = int(post(here.through, request, tag, headers={"x-sim-window": "100000"}).headers["x-plimsoll-tokens"])
    for window in (100_000, int(tokens * 1.26) + 4_400):
        sizes = {"x-sim-window": str(window), "x-plimsoll-window": str(window)}
        answer = post(here.through, request, tag, headers=sizes)
        assert answer.status_code == 200 and "x-plimsoll-notice" not in answer.headers
    assert {r.body for r in here.seen(tag)} == {request.sent()}


def test_what_the_provider_compacts_itself_goes_out_as_it_came_and_is_cut_after_a_refusal(here: World) -> None:
    one = claude_code()
    one.body["messages"][-1]["content"].pop()
    body = one.sent(compaction={"type": "summarize"})
    beta = {"anthropic-beta": "compact-2026-09-04", "x-plimsoll-window": "7000"}
    assert post(here.straight, one, "beta straight", body, beta).status_code == 400
    answer = post(here.through, one, "beta", body, beta)
    first, last = here.seen("beta")
    assert answer.status_code == 200 and first.body == body and last.json()["compaction"] == {"type": "summarize"}
    assert answer.headers["x-plimsoll-notice"].startswith(SAYS)
    items = Asked("/responses/compact", {"model": MODEL, "input": codex().body["input"][:-1]}, "")
    answer = post(here.through, items, "items", headers={"x-plimsoll-window": "7000"})
    assert answer.status_code == 200 and here.seen("items")[0].body == items.sent()


def test_a_prompt_that_is_quoted_in_a_conversation_changes_nothing(here: World) -> None:
    """In a result, in what a user pasted earlier, and within what he asks now."""
    request = qwen_code()
    quoted = codex().prompt
    plain = [{"role": "system", "content": "Be kind."}, *chat_rounds(), {"role": "user", "content": "Which port?"}]
    for place, text in ((4, f"{quoted}"), (3, quoted), (-1, f"What does this do? {quoted}")):
        messages = [dict(m) for m in plain]
        messages[place if place != 4 else 5]["content"] = text
        body = json.dumps({"model": MODEL, "messages": messages, "max_tokens": 500}).encode()
        answer = post(here.through, request, f"quoted {place}", body, headers={"x-plimsoll-window": "6000"})
        assert answer.status_code == 200 and "summary" not in answer.headers.get("x-plimsoll-notice", "")


def test_a_ladder_that_the_client_names_is_used(here: World) -> None:
    headers = {"x-plimsoll-window": "6000", "x-plimsoll-ladder": "agent"}
    answer = post(here.through, codex(), "named", headers=headers)
    assert answer.status_code == 200 and "prune_history" in answer.headers["x-plimsoll-steps"]
    text = json.dumps(here.seen("named")[-1].json())
    assert codex().prompt in text and said(0) not in text
