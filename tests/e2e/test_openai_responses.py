"""The openai package's Responses, sync and async: through the proxy they are what they are straight, and they fit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import openai
import pytest

from proxy.model.structs import replace
from proxy.simulator.app import SimulatorConfig
from tests.e2e.test_openai_python import WORDS, Mark, async_client, client
from tests.e2e.world import World, eventually, world

HELLO: list[Any] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "What is a load line? ⚓"},
]


def tool(name: str, description: str = "Looks it up.") -> Any:
    parameters = {"type": "object", "properties": {"ship": {"type": "string"}}, "required": ["ship"]}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


CALL = {"name": "draught", "arguments": "{}"}


def rounds(count: int, words: int = 100) -> list[Any]:
    """A run of an agent: a question, then calls with long results."""
    told: list[Any] = [{"role": "user", "content": "How deep may the ship with the brass bell lie?"}]
    for i in range(count):
        result = f"Entry {i}: " + " ".join(f"crane{i}x{j}" for j in range(words // 3))
        told += [
            {"type": "reasoning", "id": f"rs_s{i}r_0", "summary": [], "encrypted_content": "gAAAA" + "x" * 1000},
            {
                "type": "function_call",
                "id": f"fc_s{i}r_1",
                "call_id": f"call_{i}",
                "name": "draught",
                "arguments": "{}",
            },
            {"type": "function_call_output", "call_id": f"call_{i}", "output": result},
        ]
    return told


FORMAT = {"format": {"type": "json_schema", "name": "mark", "schema": {"type": "object", "properties": {}}}}
TALKS: dict[str, dict[str, Any]] = {
    "text": {"model": "gpt-4o", "input": "Hello"},
    "messages": {"model": "gpt-4o", "instructions": "Be kind.", "input": HELLO},
    "a short reply": {"model": "gpt-4o", "input": "word " * 40, "max_output_tokens": 16},
    "reasoning": {"model": "gpt-5-sim-reasons", "input": HELLO, "include": ["reasoning.encrypted_content"]},
    "a tool": {"model": "gpt-4o-sim-tools", "input": HELLO, "tools": [tool("draught")]},
    "parallel tools": {
        "model": "gpt-5-sim-tools-parallel",
        "input": HELLO,
        "tools": [tool("draught"), tool("freeboard")],
    },
    "results": {"model": "gpt-4o", "input": rounds(2, 9), "store": False, "tools": [tool("draught")]},
    "a schema": {"model": "gpt-4o", "input": HELLO, "text": FORMAT},
}


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world(SimulatorConfig(windows={"gpt-4o": 3000, "unheard-of": 3000}, window_field="")) as made:
        yield made


def answer(url: str, asked: dict[str, Any]) -> Any:
    with client(url) as ai:
        return ai.responses.create(**asked).model_dump()


def stream(url: str, asked: dict[str, Any]) -> Any:
    with client(url) as ai, ai.responses.create(**asked, stream=True) as events:
        return [event.model_dump() for event in events]


def async_answer(url: str, asked: dict[str, Any]) -> Any:
    async def ask() -> Any:
        async with async_client(url) as ai:
            return (await ai.responses.create(**asked)).model_dump()

    return asyncio.run(ask())


@pytest.mark.parametrize("ask", [answer, stream, async_answer])
@pytest.mark.parametrize("talk", TALKS)
def test_a_response_is_the_same_through_the_proxy(here: World, ask: Any, talk: str) -> None:
    straight, through = (ask(url, TALKS[talk]) for url in here.ways)
    assert straight == through
    last = through if isinstance(through, dict) else through[-1]["response"]
    assert last["output"] and last["usage"]["input_tokens"] and last["model"] == TALKS[talk]["model"]


def test_what_fits_reaches_the_upstream_as_it_was_sent_and_is_counted(here: World) -> None:
    for url in here.ways:
        with client(url, "as sent") as ai:
            ai.responses.create(**TALKS["results"], extra_query={"a b": "ü&=/"})
    straight, through = here.seen("as sent")
    assert (through.path, through.query, through.body) == (straight.path, straight.query, straight.body)
    eventually(lambda: any(o.endpoint == "responses" and o.usage for o in here.outcomes), 30)
    with client(here.through) as ai:
        raw = ai.responses.with_raw_response.create(**TALKS["messages"])
    used = raw.parse().usage
    eventually(lambda: any(used and o.prompt == used.input_tokens for o in here.outcomes), 30)


def test_an_answer_is_parsed_into_a_value(here: World) -> None:
    def ask(url: str) -> Any:
        with client(url) as ai:
            return ai.responses.parse(model="gpt-4o", input=HELLO, text_format=Mark).output_parsed

    straight, through = map(ask, here.ways)
    assert straight == through and isinstance(through, Mark)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("model", ["gpt-4o", "unheard-of"])
def test_a_run_far_past_the_window_fails_straight_and_succeeds_through_the_proxy(
    here: World, model: str, streams: bool
) -> None:
    """Of a known model's window the proxy is told; that of the other it learns from the refusal."""
    asked: dict[str, Any] = {"model": model, "input": rounds(14, 2000), "tools": [tool("draught")], "stream": streams}
    with client(here.straight) as ai:
        if streams:
            assert [event.type for event in ai.responses.create(**asked)][-1] == "response.failed"
        else:
            with pytest.raises(openai.BadRequestError) as refused:
                ai.responses.create(**asked)
            assert refused.value.code == "context_length_exceeded" and refused.value.param == "input"
    tag = f"run {model} {streams}"
    with client(here.through, tag, **({"x-plimsoll-window": "3000"} if model == "gpt-4o" else {})) as ai:
        if streams:
            assert [event.type for event in ai.responses.create(**asked)][-1] == "response.completed"
        else:
            assert ai.responses.create(**asked).status == "completed"
    sent = here.seen(tag)[-1].json()
    assert sent["input"][0] == asked["input"][0] and sent["input"][-2:][0]["call_id"] == "call_13"


def fixed(name: str) -> Any:
    """A tool of which no step may shorten anything."""
    choices = {"type": "string", "enum": [f"harbour-{n}" for n in range(60)]}
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {"a": choices}}}


def test_what_nothing_makes_fit_is_refused_where_each_client_looks_for_it(here: World) -> None:
    tools = [fixed(f"tool_{i}") for i in range(60)]
    asked: dict[str, Any] = {"model": "gpt-4", "input": HELLO, "tools": tools}
    with client(here.through, "unfit") as ai:
        with pytest.raises(openai.BadRequestError) as refused:
            ai.responses.create(**asked)
        events = list(ai.responses.create(**asked, stream=True))
    assert refused.value.code == "context_length_exceeded" and refused.value.param == "input"
    assert [event.type for event in events] == ["response.created", "response.failed"]
    failed: Any = events[-1]
    assert failed.response.error.code == "context_length_exceeded" and "tools" in failed.response.error.message
    assert not here.seen("unfit")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"input": [*HELLO, {"type": "function_call_output", "call_id": "call_9", "output": ""}]},
            "No tool call found",
        ),
        ({"input": HELLO, "previous_response_id": "resp_nobody"}, "Previous response with id 'resp_nobody' not found."),
        ({"input": HELLO, "max_output_tokens": 3}, "integer below minimum value"),
    ],
)
def test_what_the_upstream_forbids_is_forbidden_in_its_own_words(here: World, fields: Any, says: str) -> None:
    found = []
    for url in here.ways:
        with client(url) as ai, pytest.raises(openai.BadRequestError) as refused:
            ai.responses.create(model="gpt-4o", **fields)
        found.append((refused.value.code, refused.value.param, refused.value.message))
    assert found[0] == found[1] and says in found[1][2]


def test_a_response_goes_on_from_one_that_is_stored(here: World) -> None:
    for url in here.ways:
        with client(url) as ai:
            first = ai.responses.create(model="gpt-4o", input=HELLO)
            second = ai.responses.create(model="gpt-4o", input="And then?", previous_response_id=first.id)
        assert first.usage and second.usage and second.usage.input_tokens > first.usage.input_tokens


@pytest.mark.parametrize("streams", [False, True])
def test_what_the_upstream_has_stored_is_counted_by_what_it_reported(here: World, streams: bool) -> None:
    tag = f"stored {streams}"
    with client(here.through, tag, **{"x-plimsoll-window": "3000"}) as ai:
        words = f"{streams} " + "word " * 1500
        asked: Any = {"model": "gpt-4o", "input": [*HELLO, {"role": "user", "content": words}]}
        first: Any = ai.responses.create(**asked, stream=streams)
        if streams:
            first = list(first)[-1].response
        eventually(lambda: any(o.usage and o.usage.stored_as == first.id for o in here.outcomes), 30)
        rows = json.dumps([{"name": f"row{i}", "value": i} for i in range(400)])
        brought: Any = {"type": "function_call_output", "call_id": "call_1", "output": rows}
        more: Any = {"input": [brought], "previous_response_id": first.id}
        raw = ai.responses.with_raw_response.create(model="gpt-4o", **more)
    used = first.usage.input_tokens + first.usage.output_tokens
    assert int(raw.headers["x-plimsoll-tokens"]) > 3000 > int(raw.headers["x-plimsoll-tokens-sent"]) > used
    (sent,) = here.seen(tag)[-1].json()["input"]
    assert sent["call_id"] == "call_1" and len(sent["output"]) < len(rows)


def test_what_is_not_known_of_what_is_stored_is_said(here: World) -> None:
    given = {"model": "gpt-4o", "input": "And then?", "previous_response_id": "resp_of_another_day"}
    with client(here.through) as ai:
        url = here.through.removesuffix("/v1") + "/inspect/v1/responses"
        found: Any = ai.post(url, body=given, cast_to=object)
    says = "what the upstream has stored is not known here, and is not counted"
    assert found["notices"] == [says]
    with client(here.straight) as ai:
        first = ai.responses.create(model="gpt-4o", input="Asked past the proxy.")
    with client(here.through) as ai:
        raw = ai.responses.with_raw_response.create(model="gpt-4o", input="And?", previous_response_id=first.id)
        assert raw.headers["x-plimsoll-notice"] == says
        raw = ai.responses.with_raw_response.create(**TALKS["messages"])
        assert "x-plimsoll-notice" not in raw.headers


@pytest.mark.parametrize("path", ["/responses/compact", "/responses"])
def test_a_conversation_that_is_to_be_compacted_gets_through_whatever_its_length(here: World, path: str) -> None:
    trigger = [{"type": "compaction_trigger"}] if path == "/responses" else []
    tools = [tool(f"tool_{i}", f"Finds what number {i} is for. " * 3) for i in range(4)]
    given = {"model": "gpt-4o", "input": [*rounds(20, 900), *trigger], "tools": tools}
    tag = f"compact {path}"
    with client(here.straight) as ai, pytest.raises(openai.BadRequestError):
        ai.post(path, body=given, cast_to=object)
    with client(here.through, tag, **{"x-plimsoll-window": "3000"}) as ai:
        found: Any = ai.post(path, body=given, cast_to=object)
    assert found["output"]
    newest = here.seen(tag)[-1].json()["input"][-1]
    assert (newest["type"], newest.get("call_id")) == (given["input"][-1]["type"], given["input"][-1].get("call_id"))


def test_a_request_to_compact_that_nothing_makes_fit_is_for_the_upstream_to_decide(here: World) -> None:
    tools = [fixed(f"tool_{i}") for i in range(60)]
    given = {"model": "gpt-4", "input": rounds(2, 900), "tools": tools}
    with client(here.through, "compact anyway") as ai:
        with pytest.raises(openai.BadRequestError):
            ai.post("/responses/compact", body=given, cast_to=object)
    assert here.seen("compact anyway")


def test_what_only_counts_is_passed_through(here: World) -> None:
    given = {"model": "gpt-4o", "input": rounds(20, 900)}
    found = []
    for url in here.ways:
        with client(url) as ai:
            found.append(ai.post("/responses/input_tokens", body=given, cast_to=object))
    assert found[0] == found[1]


@pytest.mark.parametrize("way", [0, 1])
def test_a_stream_that_is_closed_ends_the_upstream_too(here: World, way: int) -> None:
    gone = here.simulator.disconnects
    with client(here.ways[way], **{"x-sim-chunk-delay": "0.2", "x-sim-text": WORDS}) as ai:
        with ai.responses.create(**TALKS["messages"], stream=True) as events:
            for _, _event in zip(range(2), events, strict=False):
                pass
        eventually(partial(here.has_lost, gone + 1), 30)


def test_a_stream_that_breaks_ends_with_an_error_and_a_failing_upstream_is_told(here: World) -> None:
    broken = {"x-sim-abort": "6", "x-sim-text": "a b c d e f g h"}
    got: list[Any] = []
    with client(here.through, **broken) as ai, pytest.raises(httpx.RemoteProtocolError):
        for event in ai.responses.create(**TALKS["messages"], stream=True):
            got.append(event)
    assert got[-1].type == "error" and got[-1].code == "upstream_error"
    before = here.simulator.config
    here.simulator.config = replace(before, status=503)
    try:
        with client(here.through).with_options(max_retries=0) as ai, pytest.raises(openai.InternalServerError):
            ai.responses.create(**TALKS["text"])
    finally:
        here.simulator.config = before


def test_a_dry_run_shows_what_would_be_sent(here: World) -> None:
    asked = json.dumps({"model": "gpt-4o", "input": rounds(14, 2000)})
    url = here.through.removesuffix("/v1") + "/inspect/v1/responses"
    with client(here.through, **{"x-plimsoll-window": "3000"}) as ai:
        found: Any = ai.post(url, body=json.loads(asked), cast_to=object)
    assert found["fits"] and found["tokens"]["prompt"] > 3000 >= found["tokens"]["prompt_sent"]
    assert found["request"]["input"][0] == json.loads(asked)["input"][0]


def test_what_the_provider_leaves_out_itself_teaches_nothing_of_our_counts() -> None:
    """It reports fewer tokens than were sent, as the request asked."""
    compacts = [{"type": "compaction", "compact_threshold": 2_000}]
    with world(SimulatorConfig(provider="openai", window=8_000)) as there, client(there.through) as ai:
        for i in range(8):
            long: list[Any] = [{"role": "user", "content": f"word{i} " * 500} for _ in range(12)]
            ai.responses.create(model="gpt-5", input=long, truncation="auto")
            ai.responses.create(model="gpt-5", input=long, extra_body={"context_management": compacts})
        ai.responses.create(model="gpt-5", input="word " * 2_000)
        eventually(lambda: len(there.outcomes) == 17, 30)
        assert not any(outcome.truncated for outcome in there.outcomes)
        last = there.outcomes[-1]
        assert last.usage is not None and last.prompt == last.usage.prompt and last.quality == "exact"
