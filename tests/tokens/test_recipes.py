"""What recipes say of prompts whose counts were published."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.tokens.encodings import encoding
from proxy.tokens.families import BUILT_IN
from proxy.tokens.meter import meter_for, prompt_tokens
from tests import makers
from tests.tokens.remembering import Remembering

JARGON = (
    (
        "system",
        "",
        "You are a helpful, pattern-following assistant that translates corporate jargon into plain English.",
    ),
    ("system", "example_user", "New synergies will help drive top-line growth."),
    ("system", "example_assistant", "Things working well together will increase revenue."),
    (
        "system",
        "example_user",
        "Let's circle back when we have more bandwidth to touch base on opportunities for increased leverage.",
    ),
    ("system", "example_assistant", "Let's talk later when we're less busy about how to do better."),
    ("user", "", "This late pivot means we don't have time to boil the ocean for the client deliverable."),
)
WEATHER: list[dict[str, Any]] = [
    {"role": "system", "content": "You are a helpful assistant that can answer to questions about the weather."},
    {"role": "user", "content": "What's the weather like in San Francisco?"},
]
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "Get the current weather in a given location",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
                "unit": {
                    "type": "string",
                    "description": "The unit of temperature to return",
                    "enum": ["celsius", "fahrenheit"],
                },
            },
            "required": ["location"],
        },
    },
}


def counted(messages: Sequence[dict[str, Any]], model: str, **fields: Any) -> int:
    prompt = makers.prompt(messages, **fields)
    meter = meter_for(prompt, model, Remembering())
    return sum(meter.fixed.values()) + sum(sum(meter.costs((message,))) for message in prompt.messages)


@pytest.mark.parametrize(("model", "tokens"), [("gpt-3.5-turbo", 129), ("gpt-4-0613", 129), ("gpt-4o", 124)])
def test_messages_with_names_cost_what_openais_cookbook_recorded(model: str, tokens: int) -> None:
    messages = [{"role": r, "content": text, **({"name": name} if name else {})} for r, name, text in JARGON]
    assert counted(messages, model) == tokens


@pytest.mark.parametrize(("model", "tokens"), [("gpt-3.5-turbo", 105), ("gpt-4", 105), ("gpt-4o", 101)])
def test_tools_cost_what_openais_cookbook_recorded(model: str, tokens: int) -> None:
    assert counted(WEATHER, model, tools=[TOOL]) == tokens


@pytest.mark.parametrize(("model", "base"), [("gpt-4o", 7), ("o1", 6), ("gpt-5", 6), ("gpt-4o-search-preview", 0)])
def test_a_prompt_of_one_message_costs_its_text_and_the_frame(model: str, base: int) -> None:
    text = encoding(BUILT_IN.find(model).encoding).count("Say hello to everybody.")
    assert counted([{"role": "user", "content": "Say hello to everybody."}], model) == base + text


def test_W19_tools_join_the_instructions_only_where_these_come_first() -> None:
    late = [WEATHER[1], WEATHER[0]]
    alone = counted(late, "gpt-4.1", tools=[TOOL]) - counted(late, "gpt-4.1")
    assert alone == counted(WEATHER[1:], "gpt-4.1", tools=[TOOL]) - counted(WEATHER[1:], "gpt-4.1")
    assert alone == counted(WEATHER, "gpt-4.1", tools=[TOOL]) - counted(WEATHER, "gpt-4.1") + 4


def test_W19_gpt_5_wraps_parallel_calls_of_chat_in_two_tokens_less_than_its_successors() -> None:
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in "ab"]
    results = [{"role": "tool", "tool_call_id": i, "content": "sunny"} for i in "ab"]
    asked: list[dict[str, Any]] = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "tool_calls": calls}]

    def in_blocks(model: str) -> int:
        meter = meter_for(prompt := makers.prompt([*asked, *results]), model, Remembering())
        return sum(meter.costs(prompt.messages[1:]))

    assert in_blocks("gpt-5") == in_blocks("gpt-5.4") - 2
    assert in_blocks("gpt-5-nano") not in (in_blocks("gpt-5"), in_blocks("gpt-5.4"))


def test_W21_mimo_brings_a_system_prompt_of_its_own_and_less_for_tools() -> None:
    said = [{"role": "user", "content": "Hi"}]
    assert counted(said, "mimo-v2.5") - counted(said, "unheard-of") == pytest.approx(232 - 10, abs=3)
    with_tools = [counted(said, model, tools=[TOOL]) for model in ("mimo-v2.5", "unheard-of")]
    assert with_tools[0] - with_tools[1] == pytest.approx(100, abs=3)


def test_W21_gemma_4_costs_nine_more_a_prompt_and_reads_a_schema_two_and_a_half_times() -> None:
    said = [{"role": "user", "content": "Hi"}]
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": TOOL["function"]["parameters"]}}

    def schema(model: str) -> int:
        return counted(said, model, response_format=wanted) - counted(said, model)

    assert counted(said, "gemma-4-31b") - counted(said, "gemma-3-27b-it") == pytest.approx(9, abs=2)
    assert schema("gemma-4-31b") - 22 == pytest.approx(2.5 * (schema("gemma-3-27b-it") - 22), abs=3)


def test_W21_tools_of_large_agents_cost_deepseek_one_tenth_more_than_their_json() -> None:
    said, many = [{"role": "user", "content": "Hi"}], [TOOL] * 100
    count = encoding("o200k_base").count
    text = json.dumps([TOOL["function"]] * 100, separators=(",", ":"))
    more = counted(said, "deepseek-v4-flash", tools=many) - counted(said, "deepseek-v4-flash")
    assert more == pytest.approx(230 + 1.1 * count(text), rel=0.001)
    found = counted(said, "deepseek-v3.1", tools=[TOOL]) - counted(said, "deepseek-v3.1")
    assert found == pytest.approx(90 + 1.4 * count(json.dumps([TOOL["function"]], separators=(",", ":"))), abs=2)


@pytest.mark.parametrize(("model", "added"), [("mistral-small-3.2", 540), ("minimax-m1", 500), ("mistral-large", 0)])
def test_W16_a_template_that_has_a_system_prompt_of_its_own_costs_it_where_the_client_sends_none(
    model: str, added: int
) -> None:
    told, said = (("system", b'{"role":"system","content":"Hi"}'), ("user", b'{"role":"user","content":"Hi"}'))
    one, two, led = (prompt_tokens(model, {}, [[m] for m in found]) for found in ([said], [said, said], [told, said]))
    assert two - led == pytest.approx(added, abs=2) and two > one
