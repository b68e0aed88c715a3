"""What recipes say of prompts whose counts were published."""

from collections.abc import Sequence
from typing import Any

import pytest

from proxy.tokens.encodings import encoding
from proxy.tokens.families import BUILT_IN
from proxy.tokens.meter import meter_for
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
TOOL = {
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
