"""The openai package's completions: through the proxy they are what they are straight, and they fit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.test_openai_python import async_client, client
from tests.e2e.world import World, eventually, world

MODEL = "gpt-3.5-turbo-instruct"
LINES = "\n".join(f"Line {i}: vessel {i} carried {i * 7} tons of grain to port {i % 13}." for i in range(600))
QUESTION = "\n\nQuestion: What did vessel number 333 carry?\nAnswer:"
CODE = "\n".join(f"def f{i}(x):\n    return x + {i}" for i in range(600))
ASKED: dict[str, dict[str, Any]] = {
    "text": {"prompt": "Hello"},
    "several texts": {"prompt": ["Hello", "How deep?"], "n": 2, "max_tokens": 5},
    "token ids": {"prompt": [9906, 1917], "echo": True},
    "several lists of ids": {"prompt": [[9906], [1917, 0]]},
    "a gap": {"prompt": "def f(", "suffix": "return x", "max_tokens": 9},
}


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world(SimulatorConfig(window=4097, windows={"unheard-of": 3000}, window_field="")) as made:
        yield made


def answer(url: str, asked: dict[str, Any]) -> Any:
    with client(url) as ai:
        return ai.completions.create(model=MODEL, **asked).model_dump()


def stream(url: str, asked: dict[str, Any]) -> Any:
    with client(url) as ai:
        return [
            chunk.model_dump()
            for chunk in ai.completions.create(
                model=MODEL, **asked, stream=True, stream_options={"include_usage": True}
            )
        ]


def async_answer(url: str, asked: dict[str, Any]) -> Any:
    async def ask() -> Any:
        async with async_client(url) as ai:
            return (await ai.completions.create(model=MODEL, **asked)).model_dump()

    return asyncio.run(ask())


@pytest.mark.parametrize("ask", [answer, stream, async_answer])
@pytest.mark.parametrize("name", ASKED)
def test_a_completion_is_the_same_through_the_proxy(here: World, ask: Any, name: str) -> None:
    straight, through = (ask(url, ASKED[name]) for url in here.ways)
    assert straight == through


@pytest.mark.parametrize("name", ASKED)
def test_what_fits_reaches_the_upstream_as_it_was_sent_and_is_counted(here: World, name: str) -> None:
    used = []
    for url in here.ways:
        with client(url, f"sent {name}") as ai:
            used.append(ai.completions.create(model=MODEL, **ASKED[name]).usage)
    straight, through = here.seen(f"sent {name}")
    assert (through.path, through.query, through.body) == (straight.path, straight.query, straight.body)
    tokens = used[1].prompt_tokens if used[1] else 0
    eventually(lambda: any(o.endpoint == "completions" and o.prompt == tokens for o in here.outcomes), 30)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("model", [MODEL, "unheard-of"])
@pytest.mark.parametrize(
    "asked",
    [
        {"prompt": LINES + QUESTION, "max_tokens": 100},
        {"prompt": [LINES, "Hello", CODE], "max_tokens": 100},
        {"prompt": CODE, "suffix": CODE, "max_tokens": 64},
        {"prompt": "word " * 2000, "max_tokens": 4000},
    ],
    ids=["text", "several", "gap", "limit"],
)
def test_what_is_too_long_fails_straight_and_succeeds_through_the_proxy(
    here: World, asked: dict[str, Any], model: str, streams: bool
) -> None:
    """Of the instruct model the proxy knows the window; that of the other it learns from the refusal."""
    with client(here.straight) as ai, pytest.raises(openai.BadRequestError):
        ai.completions.create(model=model, **asked)
    with client(here.through) as ai:
        found: Any = ai.completions.create(model=model, **asked, stream=streams)
        texts = [chunk.choices[0].text for chunk in found] if streams else [found.choices[0].text]
    assert "".join(texts).startswith(" the simulator read")


def test_token_ids_are_refused_by_us_with_figures_or_cut_where_a_rule_asks_for_it(here: World, tmp_path: Any) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": list(range(5000)), "max_tokens": 100}
    with client(here.through, "ids") as ai, pytest.raises(openai.BadRequestError) as refused:
        ai.completions.create(**asked)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "prompt")
    assert "4097" in refused.value.message and "5000 in the prompt" in refused.value.message and not here.seen("ids")
    (tmp_path / "ladder.toml").write_text('[[step]]\nname = "truncate_inputs"\n')
    with world(SimulatorConfig(window=4097), PLIMSOLL_RULES=str(tmp_path)) as there:
        with client(there.through, "cut") as ai:
            raw = ai.completions.with_raw_response.create(**asked)
        sent = there.seen("cut")[-1].json()["prompt"]
    assert sent == asked["prompt"][-len(sent) :] and 3800 < len(sent) < 4000
    assert raw.headers["x-plimsoll-steps"].startswith("truncate_inputs;-")
