"""The anthropic package: whatever it is asked, it gets the same through the proxy as straight; and past any window."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.client_scripts import CALLS, RESULTS
from tests.e2e.world import World, eventually, world

anthropic: Any = pytest.importorskip("anthropic", reason="of the dev group: make sure that it is installed")

pytestmark = pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")
KEY = "sk-ant-canary"
MODEL = "claude-sonnet-4-5"
HOPS = (b"host", b"connection")  # they speak of one connection and its two ends
HELLO = [{"role": "user", "content": "What is a load line? ⚓"}]
TOOL = {
    "name": "read_file",
    "description": "Reads a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
FORM = {"type": "json_schema", "schema": TOOL["input_schema"]}
TALKS: dict[str, dict[str, Any]] = {
    "plain": {"system": "Be brief."},
    "a short reply": {"max_tokens": 2},
    "blocks": {"system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
    "a tool": {"model": "claude-sim-tools", "tools": [TOOL]},
    "parallel tools": {"model": "claude-sim-tools-parallel", "tools": [TOOL, {**TOOL, "name": "list_files"}]},
    "a forced tool": {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "read_file"}},
    "thinking": {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}},
    "a schema": {"output_config": {"format": FORM}},
}


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world(SimulatorConfig(window=200_000)) as running:
        yield running


def client(url: str, tag: str = "", **headers: str) -> Any:
    """A client at the address that its users configure: without /v1."""
    return anthropic.Anthropic(
        api_key=KEY,
        base_url=url.removesuffix("/v1"),
        max_retries=0,
        timeout=60,
        default_headers={"x-scenario": tag, **headers},
    )


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 300, "messages": HELLO, **fields}


def answer(url: str, talk: dict[str, Any]) -> Any:
    with client(url) as ai:
        return ai.messages.create(**talk).model_dump()


def stream(url: str, talk: dict[str, Any]) -> Any:
    with client(url) as ai, ai.messages.stream(**talk) as events:
        return [event.model_dump() for event in events], events.get_final_message().model_dump()


@pytest.mark.parametrize("ask", [answer, stream])
@pytest.mark.parametrize("talk", TALKS)
def test_an_answer_is_the_same_through_the_proxy(here: World, ask: Any, talk: str) -> None:
    straight, through = (ask(url, asked(**TALKS[talk])) for url in here.ways)
    assert straight == through
    whole = through if isinstance(through, dict) else through[1]
    assert whole["content"] and whole["usage"]["input_tokens"] > 0


def test_what_reaches_the_upstream_is_what_was_sent(here: World) -> None:
    for url in here.ways:
        own = {"anthropic-beta": "context-management-2025-06-27", "x-api-key": "sk-ant-other"}
        with client(url, "as sent", **own) as ai:
            kept = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
            more = asked(**TALKS["thinking"])
            ai.messages.create(**more, extra_query={"beta": "true"}, extra_body={"context_management": kept})
    straight, through = here.seen("as sent")
    assert (through.method, through.path, through.query) == (straight.method, straight.path, b"beta=true")
    assert through.body == straight.body
    ours = {k: v for k, v in through.headers if k not in HOPS}
    assert ours == {k: v for k, v in straight.headers if k not in HOPS}
    assert ours[b"x-api-key"] == b"sk-ant-other" and ours[b"anthropic-version"] and ours[b"anthropic-beta"]


def test_tokens_are_counted_by_the_upstream_of_the_clients_own_body(here: World) -> None:
    long = [{"role": "user", "content": "word " * 3000}]

    def count(url: str) -> Any:
        with client(url, **{"x-plimsoll-window": "1000"}) as ai:
            return ai.messages.count_tokens(model=MODEL, messages=long).input_tokens

    straight, through = map(count, here.ways)
    assert straight == through > 3000


def failure(url: str, tag: str = "", headers: dict[str, str] | None = None, **fields: Any) -> tuple[Any, ...]:
    """What a program sees of a failure."""
    with client(url, tag, **(headers or {})) as ai, pytest.raises(anthropic.APIStatusError) as caught:
        ai.messages.create(**asked(**fields))
    return type(caught.value), caught.value.status_code, caught.value.body


@pytest.mark.parametrize("status", [401, 429, 500, 529])
def test_an_error_is_the_same(here: World, status: int) -> None:
    straight, through = (failure(url, headers={"x-sim-status": str(status)}) for url in here.ways)
    assert straight == through and through[1] == status and through[2]["type"] == "error"


def test_what_the_upstream_forbids_is_forbidden_in_its_own_words(here: World) -> None:
    orphan = [*HELLO, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_9", "content": "?"}]}]
    straight, through = (failure(url, messages=orphan, tools=[TOOL]) for url in here.ways)
    assert straight == through
    assert through[0] is anthropic.BadRequestError and "unexpected `tool_use_id`" in through[2]["error"]["message"]


def test_what_nothing_makes_fit_is_refused_in_anthropics_words_and_costs_nothing(here: World) -> None:
    tools = [{**TOOL, "name": f"tool_{i}_finds_what_this_number_is_for"} for i in range(300)]
    window = {"x-plimsoll-window": "4000"}
    for fields in ({}, {"stream": True}):
        kind, status, body = failure(here.through, "unfit", window, tools=tools, **fields)
        error = body["error"]
        assert (kind, status, error["type"]) == (anthropic.BadRequestError, 400, "invalid_request_error")
        assert error["message"].startswith("prompt is too long: ") and error["message"].endswith(
            " tokens > 4000 maximum"
        )
    assert here.seen("unfit") == []


def test_a_large_reply_limit_cuts_nothing_where_it_does_not_count(here: World) -> None:
    long = [{"role": "user", "content": "word " * 3000}]
    for model, steps in (("claude-opus-4-5", None), ("claude-opus-4-1", "clamp_output;60000->")):
        with client(here.through, model, **{"x-plimsoll-window": "9000"}) as ai:
            raw = ai.messages.with_raw_response.create(**asked(model=model, messages=long, max_tokens=60_000))
        told = raw.headers.get("x-plimsoll-steps")
        assert told is None if steps is None else told.startswith(steps)
        assert (here.seen(model)[0].json()["max_tokens"] == 60_000) is (steps is None)


def test_the_beta_of_a_million_tokens_makes_the_window_longer_for_the_request_that_asks_for_it(here: World) -> None:
    beta = {"anthropic-beta": "context-1m-2025-08-07"}
    long = [{"role": "user", "content": "The draught is 9 m."}, *run(140, 1_200)[1:]]  # past 200,000 tokens
    talk = asked(tools=[TOOL], messages=long)

    def steps(tag: str, **headers: str) -> str | None:
        with client(here.through, tag, **headers) as ai:
            raw = ai.messages.with_raw_response.create(**talk)
            found: str | None = raw.headers.get("x-plimsoll-steps")
            return found

    assert steps("a million", **beta) is None
    assert here.seen("a million")[0].json()["messages"] == long
    healed = steps("narrower", **beta, **{"x-sim-window": "30000"})  # 150,000 with the beta: an account that has less
    assert healed is not None and len(here.seen("narrower")) == 2
    assert steps("a million again", **beta) is None
    assert (cut := steps("without it")) is not None and "prune_history" in cut and len(here.seen("without it")) == 1


def run(rounds: int, size: int = 400) -> list[dict[str, Any]]:
    """An agent's run: a task, then rounds of calls with their results, the last one to be answered."""
    told: list[dict[str, Any]] = [{"role": "user", "content": "Find the draught of the ship in the files."}]
    for i in range(rounds):
        use = {"type": "tool_use", "id": f"toolu_{i}", "name": "read_file", "input": {"path": f"src/part_{i}.txt"}}
        said = " ".join(f"part_{i}_line_{n}" for n in range(size // 4))
        result: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": f"toolu_{i}",
            "content": [{"type": "text", "text": said}],
        }
        if i == rounds - 1:
            result["cache_control"] = {"type": "ephemeral"}
        told += [
            {"role": "assistant", "content": [{"type": "text", "text": f"I read part {i}."}, use]},
            {"role": "user", "content": [result]},
        ]
    return told


@pytest.mark.parametrize("streams", [False, True])
def test_a_run_of_tools_far_past_a_window_that_nobody_knew_goes_on(here: World, streams: bool) -> None:
    tag = f"run {streams}"
    window = {"x-sim-window": "9000"}
    with client(here.through, tag, **window) as ai:
        for rounds in (10, 20, 30, 40):
            talk = asked(system="You are an agent.", tools=[TOOL], messages=run(rounds), max_tokens=1000)
            if streams:
                with ai.messages.stream(**talk) as events:
                    done = events.get_final_message()
            else:
                done = ai.messages.create(**talk)
            assert done.stop_reason == "end_turn"
    assert failure(here.straight, headers=window, tools=[TOOL], messages=run(40))[1] == 400
    sent = here.seen(tag)[-1].json()
    assert sent["messages"][0]["role"] == "user" and sent["messages"][-1] == run(40)[-1]
    assert len(sent["messages"]) < 81 and sent["system"] == "You are an agent."


def runner(url: str, tag: str, **fields: Any) -> tuple[int, Any]:
    """The package's own loop: it calls the function and asks again. The number of calls, and its last message."""
    calls: list[str] = []

    def read_file(path: str) -> str:
        """Reads a file."""
        calls.append(path)
        return RESULTS[len(calls) - 1]

    headers = {"x-sim-window": "7000"} if fields else {}
    with client(url, tag, **headers) as ai:
        talk: Any = {"model": f"{MODEL}-sim-tools-loop", "max_tokens": 1000, "messages": HELLO, **fields}
        last = ai.beta.messages.tool_runner(tools=[anthropic.beta_tool(read_file)], **talk).until_done()
    return len(calls), last.model_dump()


def test_the_packages_own_loop_goes_on_past_a_window_that_nobody_knew(here: World) -> None:
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        runner(here.straight, "loop", thread=False)
    calls, last = runner(here.through, "loop", thread=False)
    assert (calls, last["stop_reason"]) == (CALLS, "end_turn") and last["usage"]["input_tokens"] < 7000


def test_a_conversation_that_the_upstream_holds_is_the_same_through_the_proxy(here: World) -> None:
    """Unless it is told otherwise, the loop sends what is new and names the answer that it goes on from."""
    straight, through = (runner(url, f"held {way}") for way, url in enumerate(here.ways))
    assert straight == through and through[0] == CALLS
    sent = [[(r.path, r.query, r.body) for r in here.seen(f"held {way}")] for way in (0, 1)]
    assert sent[0] == sent[1]
    assert here.seen("held 1")[-1].json()["thread"]["previous_message_id"].startswith("msg_")


def test_the_marks_of_caching_are_never_more_than_four(here: World) -> None:
    told: list[dict[str, Any]] = []
    for i in range(40):
        mark = {"cache_control": {"type": "ephemeral"}} if i in (9, 19, 29, 39) else {}
        told.append({"role": "user", "content": [{"type": "text", "text": f"entry {i} " + "word " * 200, **mark}]})
        told.append({"role": "assistant", "content": f"noted {i}"})
    with client(here.through, "marks", **{"x-plimsoll-window": "6000"}) as ai:
        ai.messages.create(**asked(messages=[*told, *HELLO]))
    marks = [m for m in here.seen("marks")[0].json()["messages"] if "cache_control" in json.dumps(m)]
    assert 1 <= len(marks) <= 4


def thoughts(url: str, model: str, tag: str, turns: int, **headers: str) -> Sequence[str]:
    """The stop reasons of a conversation whose answers, with their thinking, go back as they came."""
    told: list[dict[str, Any]] = []
    found = []
    with client(url, tag, **headers) as ai:
        for i in range(turns):
            told.append({"role": "user", "content": f"Entry {i}: " + " ".join(f"w{i}x{n}" for n in range(150))})
            talk = asked(model=model, messages=told, max_tokens=2000, thinking={"type": "adaptive"})
            got = ai.messages.create(**talk).model_dump(exclude_none=True)
            told.append({"role": "assistant", "content": got["content"]})
            found.append(got["stop_reason"])
    return found


@pytest.mark.parametrize("model", ["claude-fable-5-1", "claude-sim-binding"], ids=["known", "taught by a refusal"])
def test_thinking_that_is_bound_to_what_was_cut_is_left_out(here: World, model: str) -> None:
    assert set(thoughts(here.through, model, model, 12, **{"x-sim-window": "5000"})) == {"end_turn"}
    last = here.seen(model)[-1].json()["messages"]
    kept = [m for m in last if "signature" in json.dumps(m)]
    assert len(kept) < sum(m["role"] == "assistant" for m in last)
    eventually(lambda: any(o.healed and o.model == model for o in here.outcomes), 30)


def test_thinking_that_nothing_was_cut_before_stays(here: World) -> None:
    thoughts(here.through, "claude-fable-5-1", "whole", 4)
    last = here.seen("whole")[-1].json()["messages"]
    assert sum("signature" in json.dumps(m) for m in last) == 3


@pytest.mark.parametrize("way", [0, 1])
def test_a_stream_that_is_closed_ends_the_upstream_too(here: World, way: int) -> None:
    gone = here.simulator.disconnects
    words = " ".join(["aye"] * 200)
    with client(here.ways[way], **{"x-sim-chunk-delay": "0.2", "x-sim-text": words}) as ai:
        with ai.messages.create(**asked(stream=True)) as events:
            for _, _event in zip(range(4), events, strict=False):
                pass
        eventually(partial(here.has_lost, gone + 1), 30)


def test_a_plan_is_inspected(here: World) -> None:
    import httpx

    talk = asked(system="You are an agent.", tools=[TOOL], messages=run(40), max_tokens=1000)
    url = here.through.removesuffix("/v1") + "/inspect/v1/messages"
    plan = httpx.post(url, json=talk, headers={"x-plimsoll-window": "9000"}, timeout=60).json()
    assert plan["fits"] and plan["messages"]["in"] == 82 and plan["tokens"]["prompt_sent"] < 9000
    assert plan["request"]["messages"][-1] == talk["messages"][-1]
    wrong = httpx.post(url, content=b"{}").json()
    assert wrong["type"] == "error" and wrong["error"]["type"] == "invalid_request_error"
