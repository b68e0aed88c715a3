"""What the head of a request adds, counted in characters."""

import json
from typing import Any

import pytest

from proxy.model.conversation import Prompt
from proxy.model.structs import replace
from proxy.tokens.images import Tiles
from proxy.tokens.messages import CountingRules
from proxy.tokens.meter import meter_for
from proxy.tokens.recipes import APART, AUDIO, CHANNELS, CLASSIC, HARMONY, JUNE_2023, SEARCH, WRAPPING, Recipe
from proxy.tokens.request_overhead import fixed_as_text, fixed_costs, functions_in, has_schema, is_certain
from proxy.tokens.schema import render as render_schema
from proxy.tokens.tools import render
from tests.tokens.remembering import Remembering

HOW = CountingRules(len, CLASSIC, Tiles(85, 170))
F = {"name": "find", "description": "Finds.", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": F}]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
WANTED = {"type": "json_schema", "json_schema": {"name": "num", "schema": SCHEMA}}
SEEN = len(render_schema(SCHEMA)) + len(" num") + len("num")
PROMPTED = "Be brief."


def head(**fields: Any) -> dict[str, bytes]:
    return {key: json.dumps(value).encode() for key, value in fields.items()}


def fixed(system: str | None = None, recipe: Recipe = CLASSIC, **fields: Any) -> tuple[int, int, int, int]:
    return fixed_costs(head(**fields), system, replace(HOW, recipe=recipe))


def melting(text: str) -> int:
    """Characters, where a line break after a full stop melts into it."""
    return len(text.replace(".\n", "."))


def test_a_plain_request_costs_its_base() -> None:
    assert fixed(temperature=1) == (3, 0, 0, 0)


def test_tools_cost_a_frame_and_the_functions_as_they_are_written() -> None:
    assert fixed(tools=TOOLS) == (3, 9 + len(render([F])), 0, 0) == fixed(functions=[F])


def test_tools_behind_instructions_share_a_frame_and_are_joined_to_them() -> None:
    assert fixed(PROMPTED, tools=TOOLS)[1] == 9 + len(render([F])) - 4 + len("\n")
    rules = replace(HOW, count=melting)
    assert fixed_costs(head(tools=TOOLS), PROMPTED, rules)[1] == 9 + len(render([F]).replace(".\n", ".")) - 4


def test_tools_of_later_models_bring_hidden_instructions() -> None:
    silent = {"type": "function", "function": {"name": "find"}}
    assert fixed(recipe=HARMONY, tools=TOOLS)[1] == 9 + 82 + len(render([F]))
    assert fixed(recipe=HARMONY, tools=[silent])[1] == 9 + 82 + len(render([{"name": "find"}])) - 1
    assert fixed(PROMPTED, recipe=HARMONY, tools=TOOLS)[1] == 9 + 82 + len(render([F])) - 1 + len("\n\n")


def test_W19_tools_of_o4_mini_stand_apart_from_the_instructions_since_2026() -> None:
    assert fixed(PROMPTED, recipe=APART, tools=TOOLS)[1] == fixed(recipe=APART, tools=TOOLS)[1] == 10 + len(render([F]))
    assert fixed(PROMPTED, recipe=CHANNELS, tools=TOOLS)[1] == 10 + len(render([F])) - 4 + len("\n")


def test_W19_gpt_audio_pays_three_for_a_prompt_twelve_for_tools_and_one_where_its_only_tool_is_required() -> None:
    assert fixed(recipe=AUDIO, tools=TOOLS, tool_choice="required") == (3, 12 + len(render([F])), 1, 0)
    assert fixed(recipe=AUDIO, tools=TOOLS * 2, tool_choice="required")[2] == 0
    assert fixed(recipe=AUDIO, tools=TOOLS)[2] == 0


def test_where_only_a_weight_is_known_tools_cost_their_json_times_it() -> None:
    rough = replace(CLASSIC, tool_json=1.5, tools=100)
    assert fixed(recipe=rough, tools=TOOLS)[1] == 100 + round(1.5 * len(json.dumps([F], separators=(",", ":"))))


@pytest.mark.parametrize(
    ("choice", "recipe", "tokens"),
    [
        ("auto", CLASSIC, 0),
        ("required", CLASSIC, 0),
        ("none", CLASSIC, 1),
        ({"type": "function", "function": {"name": "find"}}, CLASSIC, 6 + len("functions.find")),
        ({"type": "function", "function": {"name": "find"}}, JUNE_2023, 3 + len("functions.find")),
        ({"type": "function", "function": {"name": "find"}}, HARMONY, 0),
        ({"type": "allowed_tools", "allowed_tools": {}}, CLASSIC, 0),
        (5, CLASSIC, 0),
    ],
)
def test_a_forced_choice_costs_its_name(choice: Any, recipe: Recipe, tokens: int) -> None:
    assert fixed(recipe=recipe, tools=TOOLS, tool_choice=choice)[2] == tokens


def test_a_forced_choice_of_the_old_kind_costs_the_same_and_without_tools_none_does() -> None:
    assert fixed(functions=[F], function_call={"name": "find"})[2] == 6 + len("functions.find")
    assert fixed(tool_choice="none") == (3, 0, 0, 0)


def test_a_schema_costs_what_is_seen_of_it_and_its_name_twice() -> None:
    assert fixed(response_format=WANTED)[3] == SEEN + 12
    assert fixed(PROMPTED, response_format=WANTED)[3] == SEEN + 8 + len("\n\n")
    assert fixed(PROMPTED, tools=TOOLS, response_format=WANTED)[3] == SEEN + 5


@pytest.mark.parametrize(("recipe", "frame"), [(HARMONY, 9), (WRAPPING, 9), (CHANNELS, 9), (APART, 9)])
def test_W19_a_schema_alone_costs_models_that_reason_nine(recipe: Recipe, frame: int) -> None:
    assert fixed(recipe=recipe, response_format=WANTED)[3] == SEEN + frame


def test_a_schema_that_is_rendered_twice_and_more_costs_its_text_as_often() -> None:
    twice = replace(CLASSIC, schema_text=2.5)
    assert fixed(recipe=twice, response_format=WANTED)[3] == round(2.5 * SEEN) + 12


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-sonnet-4-6", "claude-opus-4-8", "claude-sonnet-5"])
def test_W20_a_schema_costs_a_claude_on_chat_what_it_does_on_messages(model: str) -> None:
    schema = json.dumps(SCHEMA).encode()
    chat = Prompt(model, (), {"response_format": json.dumps(WANTED).encode()})
    messages = Prompt(model, (), {"output_format": b'{"type":"json_schema","schema":%b}' % schema}, api="messages")
    found, there = (meter_for(one, model, Remembering()).fixed["schema"] for one in (chat, messages))
    assert found == pytest.approx(there, abs=2) and found > 93 + 2.1 * 9


def test_a_schemas_own_description_is_a_comment() -> None:
    wanted = {"type": "json_schema", "json_schema": {**WANTED["json_schema"], "description": "A num."}}  # type: ignore[dict-item]
    assert fixed(response_format=wanted)[3] == SEEN + 12 + len("// A num.\n")


@pytest.mark.parametrize("wanted", [{"type": "json_object"}, {"type": "text"}, {"type": "json_schema"}, "x", None])
def test_other_formats_of_the_answer_cost_nothing(wanted: Any) -> None:
    assert fixed(response_format=wanted)[3] == 0


def test_whether_an_answer_has_a_schema_is_told_without_parsing() -> None:
    assert has_schema(head(response_format=WANTED))
    assert not has_schema(head(response_format={"type": "json_object"})) and not has_schema({})


def test_what_a_host_does_by_itself_is_not_certain() -> None:
    assert is_certain(head(tools=TOOLS), HOW) and is_certain({}, HOW) and is_certain({"prediction": b"null"}, HOW)
    assert not is_certain(head(tools=[*TOOLS, {"type": "web_search"}]), HOW)
    assert not is_certain(head(prediction={"type": "content", "content": "x"}), HOW)
    assert not is_certain(head(web_search_options={}), HOW)
    assert is_certain(head(web_search_options={}), replace(HOW, recipe=SEARCH))


def test_a_tool_that_is_no_function_is_counted_as_the_json_it_is() -> None:
    (custom,) = functions_in(head(tools=[{"type": "custom", "custom": {"name": "sql"}}]))
    assert custom == {"name": "custom", "description": '{"type":"custom","custom":{"name":"sql"}}'}


@pytest.mark.parametrize("raw", [b"5", b"{}", b"[]", b"null", b"not json"])
def test_tools_that_are_no_list_are_none(raw: bytes) -> None:
    assert fixed_costs({"tools": raw, "functions": raw}, None, HOW) == (3, 0, 0, 0)


def test_what_nests_too_deep_can_be_counted_as_text() -> None:
    assert fixed_as_text({"tools": b"[[]]", "response_format": b"{}"}, HOW) == (3, 9 + 4, 0, 2)
