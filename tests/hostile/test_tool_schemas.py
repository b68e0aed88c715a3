"""Tool definitions that somebody wrote to break what reads them: a plan comes, and what is sent stays valid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from proxy.apis.openai_chat import request
from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.model.bounded import Bounded
from proxy.model.limits import Window
from proxy.model.plan import Facts, Plan
from proxy.tokens.meter import meter_for
from tests.makers import body, tool_round, user, words

LADDER = load_rules(None).ladders["default"]


def planned(tools: Any, window: int = 8_192, **fields: Any) -> tuple[Plan, dict[str, Any]]:
    """The plan of a request with these tools, and the body that is sent."""
    asked = request.parse(body([user("go"), *tool_round("a", words(300), "used"), user("on?")], tools=tools, **fields))
    facts = Facts(Window(window, source="test"), meter_for(asked, "gpt-4o", Bounded(100_000)))
    made = plan(asked, LADDER, facts)
    sent: dict[str, Any] = json.loads(request.render(asked, made))
    return made, sent


def tool(name: Any, description: Any = "", parameters: Any = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters or {}}}


def names(found: Mapping[str, Any]) -> list[Any]:
    return [each["function"]["name"] for each in found["tools"]]


def test_ten_thousand_tools_are_refused_with_their_figures() -> None:
    tools = [tool(f"tool_{i}", "It does it. " * 20) for i in range(10_000)]
    made, sent = planned(tools)
    assert not made.possible and len(sent["tools"]) == 10_000
    assert made.draft.fixed < made.before.fixed / 3  # what was tried


def test_ten_thousand_tools_fit_a_large_window_in_short() -> None:
    tools = [tool(f"tool_{i}", "It does it. " * 20) for i in range(10_000)]
    made, sent = planned(tools, window=250_000)
    assert made.fits and names(sent) == names({"tools": tools})


@pytest.mark.parametrize("size", [1_000_000, 6_000_000])
def test_a_description_of_megabytes_becomes_its_first_sentence(size: int) -> None:
    made, sent = planned([tool("a", "Does it all. " + "X " * (size // 2))])
    assert made.fits and sent["tools"][0]["function"]["description"] == "Does it all."


def test_schemas_that_nest_deep_are_planned() -> None:
    schema: Any = {"type": "string", "description": words(50)}
    for _ in range(300):
        schema = {"type": "object", "description": words(40), "properties": {"p": schema}}
    made, sent = planned([tool("a", words(4_000), schema)])
    assert made.fits and names(sent) == ["a"]


@pytest.mark.parametrize("told", [None, 7, 1.5, True, ["x"], {"description": "y"}, {"text": "z"}])
def test_a_description_that_is_no_text_stays(told: Any) -> None:
    parameters = {"type": "object", "properties": {"p": {"type": "string", "description": told}}}
    _, sent = planned([tool("a", told, parameters), tool("b", words(7_000))])
    assert sent["tools"][0]["function"] == {"name": "a", "description": told, "parameters": parameters}
    assert len(sent["tools"][1]["function"]["description"]) < 200


def test_tools_of_the_same_name_are_all_sent_and_whole_if_one_was_called() -> None:
    tools = [tool("used", words(50)), tool("used", words(60)), tool("b", words(7_000))]
    made, sent = planned(tools)
    assert made.fits and sent["tools"][:2] == tools[:2] and names(sent) == ["used", "used", "b"]


@pytest.mark.parametrize("name", ["__class__", "__init__", "", "None", "description", "a" * 5_000, "é\u2028", 7, None])
def test_a_name_is_only_a_name(name: Any) -> None:
    tools = [tool(name, words(7_000), {"properties": {"__proto__": {"description": words(50)}}})]
    made, sent = planned(tools)
    assert made.fits and names(sent) == [name]
    assert [*sent["tools"][0]["function"]["parameters"]["properties"]] == ["__proto__"]


def test_a_tool_that_the_choice_names_is_sent() -> None:
    choice = {"type": "function", "function": {"name": "b"}}
    made, sent = planned([tool("a", words(7_000)), tool("b", words(2_000))], tool_choice=choice)
    assert made.fits and names(sent) == ["a", "b"] and sent["tool_choice"] == choice


@pytest.mark.parametrize("tools", [7, {}, "tools", [7], [[]], [None], [{"function": 7}], [{"type": "function"}]])
def test_tools_of_another_shape_are_sent_as_they_came(tools: Any) -> None:
    _, sent = planned(tools, window=400)
    assert sent["tools"] == tools


def test_what_a_text_says_of_keys_and_brackets_changes_nothing_around_it() -> None:
    nasty = '"},"name":"evil","x":{"' + "\\" * 50 + '\u0000"]} ' + words(7_000)
    tools = [tool("a", nasty, {"properties": {'"]}': {"description": nasty}}})]
    made, sent = planned(tools)
    assert made.fits and names(sent) == ["a"] and [*sent["tools"][0]["function"]["parameters"]["properties"]] == ['"]}']
