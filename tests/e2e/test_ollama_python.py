"""The ollama package: whatever it is asked, it gets the same through the proxy as straight; and nothing is dropped
without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from proxy.model.outcome import Outcome
from proxy.simulator.app import SimulatorConfig
from tests.e2e.world import World, eventually, world

ollama: Any = pytest.importorskip("ollama", reason="of the dev group: make sure that it is installed")

MODEL = "llama3.2"
CLIENTS: list[Any] = []  # that a test opened
HOPS = (b"host", b"connection")  # they speak of one connection and its two ends
HELLO = [{"role": "user", "content": "What is a load line? ⚓"}]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}
TALKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "a short reply": {"options": {"num_predict": 2}},
    "a tool": {"model": "sim-tools", "tools": [TOOL]},
    "parallel tools": {"model": "sim-tools-parallel", "tools": [TOOL]},
    "thinking": {"think": True},
    "an image": {"messages": [{**HELLO[0], "images": [PNG]}]},
    "a schema": {"format": TOOL["function"]["parameters"]},  # type: ignore[index]
}


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world(SimulatorConfig(window=4096)) as running:
        yield running


def client(url: str, tag: str = "", **headers: str) -> Any:
    """A client at the address that its users configure: without a path."""
    opened = ollama.Client(host=url.removesuffix("/v1"), headers={"x-scenario": tag, **headers}, timeout=60)
    CLIENTS.append(opened)
    return opened


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while CLIENTS:
        CLIENTS.pop().close()


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": HELLO, **fields}


def answer(url: str, talk: dict[str, Any]) -> Any:
    return client(url).chat(**talk).model_dump()


def stream(url: str, talk: dict[str, Any]) -> Any:
    return [part.model_dump() for part in client(url).chat(**talk, stream=True)]


@pytest.mark.parametrize("ask", [answer, stream])
@pytest.mark.parametrize("talk", TALKS)
def test_an_answer_is_the_same_through_the_proxy(here: World, ask: Any, talk: str) -> None:
    straight, through = (ask(url, asked(**TALKS[talk])) for url in here.ways)
    assert straight == through
    last = through if isinstance(through, dict) else through[-1]
    assert last["done"] and last["prompt_eval_count"] > 0


def test_what_reaches_the_upstream_is_what_was_sent(here: World) -> None:
    for url in here.ways:
        client(url, "as sent").chat(**asked(options={"num_ctx": 8192, "temperature": 0.5}, keep_alive="5m"))
    straight, through = here.seen("as sent")
    assert (through.method, through.path, through.body) == (straight.method, "/api/chat", straight.body)
    ours = {k: v for k, v in through.headers if k not in HOPS}
    assert ours == {k: v for k, v in straight.headers if k not in HOPS}


def test_other_paths_reach_the_server_beside_its_v1(here: World) -> None:
    assert client(here.through).ps().model_dump() == client(here.straight).ps().model_dump()


def words(count: int, name: str = "word") -> str:
    return " ".join(f"{name}{i}" for i in range(count))


def long(rounds: int) -> list[dict[str, Any]]:
    """An agent's run: a task, then rounds of a call with its result, the last one to be answered."""
    told: list[dict[str, Any]] = [{"role": "user", "content": "Find the draught of the ship in the files."}]
    for i in range(rounds):
        call = {"function": {"name": "read_file", "arguments": {"path": f"src/part_{i}.txt"}}}
        told.append({"role": "assistant", "content": f"I read part {i}.", "tool_calls": [call]})
        told.append({"role": "tool", "tool_name": "read_file", "content": words(60, f"part_{i}_line_")})
    return told


def newest(here: World, model: str) -> Outcome:
    eventually(lambda: any(o.model == model for o in here.outcomes), 30)
    return [o for o in here.outcomes if o.model == model][-1]


@pytest.mark.parametrize("streams", [False, True])
def test_a_run_of_tools_past_what_is_loaded_is_cut_by_us_and_not_in_silence(here: World, streams: bool) -> None:
    """Nothing but the server knows its window: the model's own is 128,000 tokens."""
    tag = f"run {streams}"
    for rounds in (4, 8, 12, 16):
        talk = asked(messages=long(rounds), tools=[TOOL])
        got = list(client(here.through, tag).chat(**talk, stream=True))[-1] if streams else None
        got = got or client(here.through, tag).chat(**talk)
        assert got.done_reason == "stop" and got.prompt_eval_count <= 4096
    sent = here.seen(tag)[-1].json()
    assert sent["truncate"] is False and sent["messages"][-1] == long(16)[-1]
    assert 3 < len(sent["messages"]) < 33 and sent["messages"][0] == long(1)[0]
    for place, message in enumerate(sent["messages"]):
        if message["role"] == "tool":
            assert sent["messages"][place - 1].get("tool_calls")


def test_straight_the_same_run_is_cut_in_silence(here: World) -> None:
    got = client(here.straight).chat(**asked(messages=long(30), tools=[TOOL]))
    assert got.done_reason == "stop" and got.prompt_eval_count <= 4096


def test_the_window_that_a_request_asks_for_is_the_one_it_is_fitted_to(here: World) -> None:
    talk = asked(model="qwen3:8b", messages=[{"role": "user", "content": words(3000)}])
    client(here.through, "wide").chat(**talk, options={"num_ctx": 32_768})
    assert here.seen("wide")[0].json()["messages"] == talk["messages"]
    assert "truncate" not in here.seen("wide")[0].json()
    client(here.through, "narrow").chat(**talk, options={"num_ctx": 2048})
    sent = here.seen("narrow")[-1].json()
    assert len(sent["messages"][0]["content"]) < len(words(3000)) and sent["truncate"] is False
    client(here.through, "wide again").chat(**talk, options={"num_ctx": 32_768})
    assert here.seen("wide again")[0].json()["messages"] == talk["messages"]  # the narrow one taught nothing


def test_what_is_loaded_is_asked_of_the_server(here: World) -> None:
    talk = asked(model="mistral:7b", messages=[{"role": "user", "content": words(2000)}])
    client(here.through, "unloaded").chat(**talk)
    assert any(r.path == "/api/ps" for r in here.simulator.received)
    healed = newest(here, "mistral:7b")
    assert healed.healed and healed.refusals


def test_the_window_that_one_client_has_loaded_cuts_nothing_of_anothers() -> None:
    """The server loads its own window again for a request that asks for none."""
    with world(SimulatorConfig(window=4096)) as here:
        talk = asked(messages=[{"role": "user", "content": words(600)}])
        client(here.straight, "small").chat(**asked(), options={"num_ctx": 600})  # not through this process
        client(here.through, "another's").chat(**talk)
        assert any(r.path == "/api/ps" for r in here.simulator.received)
        assert here.seen("another's")[-1].json()["messages"] == talk["messages"]


def test_the_window_that_one_client_has_loaded_lets_nothing_of_anothers_go_in_silence() -> None:
    with world(SimulatorConfig(window=4096)) as here:
        client(here.through, "wide").chat(**asked(), options={"num_ctx": 131_072})
        client(here.through, "another's").chat(**asked(messages=long(30), tools=[TOOL]))
        whole, healed = (r.json() for r in here.seen("another's") if r.path == "/api/chat")
        assert whole["messages"] == long(30) and whole["truncate"] is False
        assert len(healed["messages"]) < len(long(30))


def test_what_the_client_says_of_truncation_is_left_to_it(here: World) -> None:
    talk = {**asked(model="phi3:mini", messages=long(30)), "truncate": True, "stream": False}
    url = here.through.removesuffix("/v1") + "/api/chat"
    got = httpx.post(url, json=talk, timeout=60, headers={"x-scenario": "own"})
    (sent,) = (r for r in here.seen("own") if r.path == "/api/chat")  # and the list of what is loaded, at times
    assert got.status_code == 200 and sent.json()["truncate"] is True


def test_a_change_of_what_a_server_does_is_told(here: World) -> None:
    url = here.through.removesuffix("/v1") + "/api/chat"
    talk = {**asked(model="gemma3:4b", messages=[{"role": "user", "content": words(700)}]), "stream": False}
    got = httpx.post(url, json=talk, timeout=60, headers={"x-scenario": "told"})
    assert "refuse" in got.headers["x-plimsoll-notice"]
    (sent,) = (r for r in here.seen("told") if r.path == "/api/chat")
    assert sent.json() == {**talk, "truncate": False}


@pytest.mark.parametrize("status", [401, 429, 500])
def test_an_error_is_the_same(here: World, status: int) -> None:
    def fails(url: str) -> tuple[int, str]:
        with pytest.raises(ollama.ResponseError) as caught:
            client(url, **{"x-sim-status": str(status)}).chat(**asked())
        return caught.value.status_code, caught.value.error

    straight, through = map(fails, here.ways)
    assert straight == through and through[0] == status


def test_what_nothing_makes_fit_is_refused_in_ollamas_shape_and_costs_nothing(here: World) -> None:
    tools = [{**TOOL, "function": {"name": f"tool_{i}_finds_what_this_number_is_for"}} for i in range(400)]
    for streams in (False, True):
        with pytest.raises(ollama.ResponseError) as caught:
            list(client(here.through, "unfit").chat(**asked(tools=tools, options={"num_ctx": 4096}), stream=streams))
        assert (caught.value.status_code == 400 and "4,096" in caught.value.error) or "4096" in caught.value.error
    assert here.seen("unfit") == []


@pytest.mark.parametrize("way", [0, 1])
def test_a_stream_that_is_closed_ends_the_upstream_too(here: World, way: int) -> None:
    gone = here.simulator.disconnects
    slow = {"x-sim-chunk-delay": "0.2", "x-sim-text": " ".join(["aye"] * 200)}
    parts = client(here.ways[way], **slow).chat(**asked(), stream=True)
    for _, _part in zip(range(4), parts, strict=False):
        pass
    parts.close()
    eventually(partial(here.has_lost, gone + 1), 30)


def test_a_stream_that_breaks_ends_with_a_line_that_says_so(here: World) -> None:
    with pytest.raises((ollama.ResponseError, httpx.HTTPError)) as caught:
        list(client(here.through, **{"x-sim-abort": "3"}).chat(**asked(), stream=True))
    assert isinstance(caught.value, ollama.ResponseError)


def test_a_plan_is_inspected(here: World) -> None:
    url = here.through.removesuffix("/v1") + "/inspect/api/chat"
    talk = asked(messages=long(40), tools=[TOOL], options={"num_ctx": 6000, "num_predict": 300})
    plan = httpx.post(url, json=talk, timeout=60).json()
    assert plan["fits"] and plan["window"] == 6000 and plan["window_source"] == "request"
    assert plan["tokens"]["prompt_sent"] < 6000 and plan["request"]["truncate"] is False
    assert plan["request"]["messages"][-1] == talk["messages"][-1]
    assert json.loads(httpx.post(url, content=b"{}").content).keys() == {"error"}


GENERATED: dict[str, dict[str, Any]] = {
    "plain": {},
    "a short reply": {"options": {"num_predict": 2}},
    "a suffix": {"suffix": "return x"},
    "a system prompt": {"system": "Be brief.", "context": [1, 2, 3]},
    "raw": {"raw": True},
    "a schema": {"format": TOOL["function"]["parameters"]},  # type: ignore[index]
    "an image": {"images": [PNG]},
}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("talk", GENERATED)
def test_a_text_is_continued_the_same_through_the_proxy(here: World, talk: str, streams: bool) -> None:
    def said(url: str) -> Any:
        got = client(url).generate(MODEL, "What is a load line? ⚓", **GENERATED[talk], stream=streams)
        return [part.model_dump() for part in got] if streams else got.model_dump()

    straight, through = map(said, here.ways)
    assert straight == through


@pytest.mark.parametrize("streams", [False, True])
def test_a_text_past_what_is_loaded_is_cut_by_us_and_not_in_silence(here: World, streams: bool) -> None:
    tag = f"text {streams}"
    for size in (1000, 9000):
        got = client(here.through, tag).generate(MODEL, words(size) + "\n\nHow long is it?", stream=streams)
        last = list(got)[-1] if streams else got
        assert last.done_reason == "stop" and last.prompt_eval_count <= 4096
    sent = here.seen(tag)[-1].json()
    assert sent["truncate"] is False and sent["prompt"].endswith("How long is it?")
    assert len(sent["prompt"]) < len(words(9000))


def test_of_a_context_that_is_too_long_the_oldest_tokens_go(here: World) -> None:
    got = client(here.through, "context").generate("llama3.1:8b", "Go on.", context=list(range(9000)))
    sent = here.seen("context")[-1].json()
    assert got.done_reason == "stop" and sent["prompt"] == "Go on." and sent["truncate"] is False
    assert 1000 < len(sent["context"]) < 9000 and sent["context"][-1] == 8999


def test_a_model_is_loaded_through_the_proxy(here: World) -> None:
    assert client(here.through).generate("phi3:medium", "").done_reason == "load"
    assert "phi3:medium" in here.simulator.held["loaded"]


@pytest.mark.parametrize("truncate", [None, True, False])
def test_embeddings_are_passed_through_as_they_are(here: World, truncate: bool | None) -> None:
    """The client says whether a text that is too long is cut: its silence is a consent that most clients rely on."""

    def told(url: str) -> Any:
        try:
            return client(url, f"embed {truncate}").embed("nomic", ["Hello", words(9000)], truncate).model_dump()
        except ollama.ResponseError as error:
            return error.status_code, error.error

    straight, through = map(told, here.ways)
    assert straight == through
    assert (through == (400, "the input length exceeds the context length")) is (truncate is False)
    first, second = here.seen(f"embed {truncate}")
    assert (first.path, first.body) == (second.path, second.body) == ("/api/embed", second.body)
