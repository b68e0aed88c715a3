"""The openai package, sync and async: whatever it is asked, it gets the same through the proxy as straight."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel

from proxy.cli.demo import conversation
from proxy.model.structs import replace
from tests.e2e.world import World, eventually, world

KEY = "sk-canary"
HOPS = (b"host", b"connection")  # they speak of one connection and its two ends
WORDS = " ".join(["aye"] * 200)
HELLO: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is a load line? ⚓"},
]
LONG: Any = conversation()  # 7,793 tokens: with a reply of 3,000 too many for gpt-4's 8,192


class Mark(BaseModel):
    """An answer that is asked for as a value."""

    name: str
    freeboard: float
    certified: bool


def tool(name: str, description: str = "Looks it up.") -> Any:
    parameters = {"type": "object", "properties": {"ship": {"type": "string"}}, "required": ["ship"]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "mark", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}
TALKS: dict[str, dict[str, Any]] = {
    "chat": {"model": "gpt-4o", "messages": HELLO},
    "two answers": {"model": "gpt-4o", "messages": HELLO, "n": 2, "temperature": 0.5, "seed": 7},
    "a short reply": {"model": "gpt-4o", "messages": HELLO, "max_tokens": 3},
    "a reasoning model": {"model": "o3-mini", "messages": HELLO, "max_completion_tokens": 600},
    "a tool": {"model": "gpt-4o-sim-tools", "messages": HELLO, "tools": [tool("draught")]},
    "parallel tools": {
        "model": "gpt-4o-sim-tools-parallel",
        "messages": HELLO,
        "tools": [tool("draught"), tool("freeboard")],
    },
    "a named tool": {
        "model": "gpt-4o",
        "messages": HELLO,
        "tools": [tool("draught"), tool("freeboard")],
        "tool_choice": {"type": "function", "function": {"name": "freeboard"}},
    },
    "JSON": {"model": "gpt-4o", "messages": HELLO, "response_format": {"type": "json_object"}},
    "a schema": {"model": "gpt-4o", "messages": HELLO, "response_format": SCHEMA},
}
ROUND: list[Any] = [
    {"role": "user", "content": "How deep?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"call_{i}", "type": "function", "function": {"name": "draught", "arguments": '{"ship":"a"}'}}
            for i in range(2)
        ],
    },
    *({"role": "tool", "tool_call_id": f"call_{i}", "content": json.dumps({"metres": i})} for i in range(2)),
]
TALKS["results of tools"] = {"model": "gpt-4o-sim-tools", "messages": ROUND, "tools": [tool("draught")]}


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world() as made:
        yield made


def client(url: str, tag: str = "", **headers: str) -> OpenAI:
    """The package's client as it is, but that it does not read the world's certificates first: it meets none here."""
    bare = openai.DefaultHttpxClient(verify=False)
    return OpenAI(base_url=url, api_key=KEY, default_headers={"x-scenario": tag, **headers}, http_client=bare)


def async_client(url: str, tag: str = "", **headers: str) -> AsyncOpenAI:
    bare = openai.DefaultAsyncHttpxClient(verify=False)
    return AsyncOpenAI(base_url=url, api_key=KEY, default_headers={"x-scenario": tag, **headers}, http_client=bare)


def sync_answer(url: str, asked: dict[str, Any]) -> Any:
    with client(url) as ai:
        return ai.chat.completions.create(**asked).model_dump()


def sync_stream(url: str, asked: dict[str, Any]) -> Any:
    with client(url) as ai, ai.chat.completions.create(**asked, stream=True) as stream:
        return [chunk.model_dump() for chunk in stream]


def async_answer(url: str, asked: dict[str, Any]) -> Any:
    async def ask() -> Any:
        async with async_client(url) as ai:
            return (await ai.chat.completions.create(**asked)).model_dump()

    return asyncio.run(ask())


def async_stream(url: str, asked: dict[str, Any]) -> Any:
    async def ask() -> Any:
        async with async_client(url) as ai, await ai.chat.completions.create(**asked, stream=True) as stream:
            return [chunk.model_dump() async for chunk in stream]

    return asyncio.run(ask())


WAYS_TO_ASK = (sync_answer, sync_stream, async_answer, async_stream)


@pytest.mark.parametrize("ask", WAYS_TO_ASK)
@pytest.mark.parametrize("talk", TALKS)
def test_an_answer_is_the_same_through_the_proxy(here: World, ask: Callable[..., Any], talk: str) -> None:
    straight, through = (ask(url, TALKS[talk]) for url in here.ways)
    assert straight == through
    answer = through if isinstance(through, dict) else through[0]
    assert answer["choices"] and answer["model"] == TALKS[talk]["model"]


@pytest.mark.parametrize("ask", [sync_stream, async_stream])
def test_a_stream_with_usage_ends_with_it_both_ways(here: World, ask: Callable[..., Any]) -> None:
    asked = {**TALKS["chat"], "stream_options": {"include_usage": True}}
    straight, through = (ask(url, asked) for url in here.ways)
    assert straight == through
    assert [chunk["usage"] is not None for chunk in through][-2:] == [False, True]
    assert through[-1]["choices"] == []


def test_what_reaches_the_upstream_is_what_was_sent(here: World) -> None:
    for url in here.ways:
        with client(url, "as sent", **{"x-request-of": "mine", "OpenAI-Organization": "org"}) as ai:
            ai.chat.completions.create(**TALKS["parallel tools"], extra_query={"a b": "ü&=/"})
    straight, through = here.seen("as sent")
    assert (through.method, through.path, through.query) == (straight.method, straight.path, straight.query)
    assert through.body == straight.body
    ours = {k: v for k, v in through.headers if k not in HOPS}
    assert ours == {k: v for k, v in straight.headers if k not in HOPS}
    assert ours[b"authorization"] == f"Bearer {KEY}".encode()


def test_an_answer_is_parsed_into_a_value(here: World) -> None:
    def ask(url: str) -> Any:
        with client(url) as ai:
            answer = ai.chat.completions.parse(model="gpt-4o", messages=HELLO, response_format=Mark)
            return answer.choices[0].message.parsed

    straight, through = map(ask, here.ways)
    assert straight == through
    assert isinstance(through, Mark)


def test_a_stream_is_parsed_into_a_value(here: World) -> None:
    def ask(url: str) -> Any:
        with (
            client(url) as ai,
            ai.chat.completions.stream(model="gpt-4o", messages=HELLO, response_format=Mark) as stream,
        ):
            kinds = [event.type for event in stream]
            return kinds, stream.get_final_completion().choices[0].message.parsed

    straight, through = map(ask, here.ways)
    assert straight == through
    assert isinstance(through[1], Mark)


def test_an_answer_that_was_cut_short_breaks_parsing_the_same_way(here: World) -> None:
    for url in here.ways:
        with client(url) as ai, pytest.raises(openai.LengthFinishReasonError):
            ai.chat.completions.parse(model="gpt-4o", messages=HELLO, max_tokens=2)


def test_what_is_not_fitted_is_the_same_too(here: World) -> None:
    def ask(url: str) -> Any:
        with client(url) as ai:
            models = [model.model_dump() for model in ai.models.list()]
            embedding = ai.embeddings.create(model="text-embedding-3-small", input="depth").model_dump()  # in base64
            with pytest.raises(openai.NotFoundError) as missing:
                ai.moderations.create(input="depth")
            return models, embedding, str(missing.value), missing.value.request_id

    straight, through = map(ask, here.ways)
    assert straight == through


def failure(ai: OpenAI, **asked: Any) -> tuple[Any, ...]:
    """What a program sees of a failure."""
    with pytest.raises(openai.APIError) as caught:
        ai.chat.completions.create(**asked)
    error = caught.value
    return type(error), getattr(error, "status_code", None), error.code, error.type, error.param, error.body


@pytest.mark.parametrize(
    ("status", "kind", "tries", "retries"),
    [
        (401, openai.AuthenticationError, 1, 2),
        (403, openai.PermissionDeniedError, 1, 2),
        (422, openai.UnprocessableEntityError, 1, 2),
        (429, openai.RateLimitError, 3, 2),
        (500, openai.InternalServerError, 2, 1),
        (503, openai.InternalServerError, 2, 1),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_is_the_same_and_is_tried_as_often(
    here: World, status: int, kind: type[openai.APIStatusError], tries: int, retries: int, stream: bool
) -> None:
    found = []
    for way, url in enumerate(here.ways):
        tag = f"{status} {stream} {way}"
        with client(url, tag, **{"x-sim-status": str(status)}).with_options(max_retries=retries) as ai:
            failed = failure(ai, **TALKS["chat"], stream=stream)
        found.append((failed, len(here.seen(tag))))
    assert found[0] == found[1]
    assert found[1][0][0] is kind
    assert found[1][1] == tries


def test_a_request_that_is_tried_again_succeeds(here: World) -> None:
    """The client is told to wait 10 ms; every try goes upstream, the proxy adds none."""
    before = here.simulator.config
    for way, url in enumerate(here.ways):
        here.simulator.config, here.simulator.failures = replace(before, fail_first=2), 0
        try:
            with client(url, f"again {way}") as ai:
                assert ai.chat.completions.create(**TALKS["chat"]).choices[0].finish_reason == "stop"
        finally:
            here.simulator.config = before
        assert [r.header(b"x-stainless-retry-count") for r in here.seen(f"again {way}")] == [b"0", b"1", b"2"]


def fixed(name: str) -> Any:
    """A tool of which no step may shorten anything."""
    choices = {"type": "string", "enum": [f"harbour-{n}" for n in range(60)]}
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {"a": choices}}},
    }


@pytest.mark.parametrize("stream", [False, True])
def test_what_nothing_makes_fit_fails_the_same_way_and_costs_nothing(here: World, stream: bool) -> None:
    tools = [fixed(f"tool_{i}") for i in range(60)]
    found = []
    for way, url in enumerate(here.ways):
        with client(url, f"unfit {stream} {way}") as ai:
            failed = failure(ai, model="gpt-4", messages=HELLO, tools=tools, stream=stream)
        found.append(failed[:5])
    assert found[0] == found[1]
    assert found[1][:3] == (openai.BadRequestError, 400, "context_length_exceeded")
    assert [len(here.seen(f"unfit {stream} {way}")) for way in (0, 1)] == [1, 0]


def test_what_the_upstream_forbids_is_forbidden_in_its_own_words(here: World) -> None:
    found = []
    for url in here.ways:
        with client(url) as ai:
            orphan: Any = [*HELLO, {"role": "tool", "tool_call_id": "call_9", "content": "?"}]
            found.append(failure(ai, model="gpt-4o", messages=orphan))
    assert found[0] == found[1]
    assert found[1][0] is openai.BadRequestError


def test_too_long_a_conversation_fails_straight_and_succeeds_through_the_proxy(here: World) -> None:
    asked: Any = {"model": "gpt-4", "max_tokens": 3000, "messages": LONG}
    with client(here.straight) as ai:
        assert failure(ai, **asked)[:3] == (
            openai.BadRequestError,
            400,
            "context_length_exceeded",
        )
    with client(here.through, "long") as ai:
        raw = ai.chat.completions.with_raw_response.create(**asked)
        answer = raw.parse()
    assert answer.choices[0].finish_reason == "stop"
    assert raw.headers["x-plimsoll-steps"].startswith("prune_history;-")
    assert raw.headers["x-plimsoll-tokens"] == "7793"
    assert answer.usage is not None
    assert raw.headers["x-plimsoll-tokens-sent"] == str(answer.usage.prompt_tokens)
    sent = here.seen("long")[0].json()
    assert sent["messages"][0] == LONG[0] and sent["messages"][-1] == LONG[-1]
    assert {k: v for k, v in sent.items() if k != "messages"} == {"model": "gpt-4", "max_tokens": 3000}


def test_too_long_a_conversation_is_streamed_too(here: World) -> None:
    chunks = sync_stream(here.through, {"model": "gpt-4", "max_tokens": 3000, "messages": LONG})
    assert chunks == async_stream(here.through, {"model": "gpt-4", "max_tokens": 3000, "messages": LONG})
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_refusal_that_nobody_could_foresee_is_healed(here: World) -> None:
    """The upstream's window is half of what every table says: the client sees nothing but its answer."""
    asked: Any = {"model": "gpt-4-0613", "max_tokens": 400, "messages": LONG[:60]}
    half = {"x-sim-window": "2500"}
    with client(here.straight, **half) as ai:
        assert failure(ai, **asked)[0] is openai.BadRequestError
    with client(here.through, "healed", **half) as ai:
        assert ai.chat.completions.create(**asked).choices[0].finish_reason == "stop"
    assert len(here.seen("healed")) == 2
    eventually(lambda: any(o.healed for o in here.outcomes))


@pytest.mark.parametrize("way", [0, 1])
def test_a_stream_that_is_closed_ends_the_upstream_too(here: World, way: int) -> None:
    gone = here.simulator.disconnects
    with client(here.ways[way], **{"x-sim-chunk-delay": "0.2", "x-sim-text": WORDS}) as ai:
        with ai.chat.completions.create(**TALKS["chat"], stream=True) as stream:
            for _, _chunk in zip(range(2), stream, strict=False):
                pass
        eventually(partial(here.has_lost, gone + 1), 30)
    eventually(lambda: here.simulator.in_flight == 0, 30)


@pytest.mark.parametrize("way", [0, 1])
@pytest.mark.parametrize("delay", ["x-sim-delay", "x-sim-chunk-delay"])
def test_a_task_that_is_cancelled_ends_the_upstream_too(here: World, way: int, delay: str) -> None:
    """Before the answer's head, and in the middle of a stream."""
    gone, begun = here.simulator.disconnects, threading.Event()

    async def read(ai: AsyncOpenAI) -> None:
        if delay == "x-sim-delay":
            begun.set()
        async with await ai.chat.completions.create(**TALKS["chat"], stream=True) as stream:
            async for _ in stream:
                begun.set()

    async def check() -> None:
        slow = {delay: "20" if delay == "x-sim-delay" else "0.2", "x-sim-text": WORDS}
        async with async_client(here.ways[way], f"cancel {delay} {way}", **slow) as ai:
            task = asyncio.create_task(read(ai))
            async with asyncio.timeout(30):
                while not (begun.is_set() and here.seen(f"cancel {delay} {way}")):
                    await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(eventually, partial(here.has_lost, gone + 1), 30)

    asyncio.run(check())


def test_a_client_that_does_not_wait_gets_its_timeout_and_the_upstream_is_let_go(here: World) -> None:
    for gone, url in enumerate(here.ways, here.simulator.disconnects + 1):
        hasty = httpx.Timeout(30, read=1)  # what it sends has reached the upstream long before
        with client(url, **{"x-sim-delay": "60"}).with_options(timeout=hasty, max_retries=0) as ai:
            with pytest.raises(openai.APITimeoutError):
                ai.chat.completions.create(**TALKS["chat"])
        eventually(partial(here.has_lost, gone), 30)


def test_a_stream_that_the_upstream_breaks_off_is_an_error_and_no_end(here: World) -> None:
    """Straight it is an error of the transport; the proxy tells it as one of the API, which programs expect."""
    broken = {"x-sim-abort": "3", "x-sim-text": "a b c d e f g h"}
    for url, kind in zip(here.ways, (httpx.RemoteProtocolError, openai.APIError), strict=True):
        got = []
        with client(url, **broken) as ai, pytest.raises(kind):
            for chunk in ai.chat.completions.create(**TALKS["chat"], stream=True):
                got.append(chunk)
        assert len(got) == 3
