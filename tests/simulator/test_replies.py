"""The script of replies in every API: who calls tools, and what a schema gets."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator.replies import END, called, event, goes_on, json_text, sample, wants_usage


def test_the_models_name_says_whether_two_tools_are_called_at_once() -> None:
    tools = [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    assert called(tools, "sim-tools") == tools[:1] == called(tools, "sim-tools-parallel", parallel=False)
    assert called(tools, "sim-tools-parallel") == tools[:2]
    assert called(tools[:1], "sim-tools-parallel") == tools[:1] * 2
    assert called([], "sim-tools-parallel") == []


def test_a_model_goes_on_until_a_result_says_that_it_was_the_last() -> None:
    assert goes_on("sim-tools-loop", {"content": "1"})
    assert not goes_on("sim-tools-loop", {"content": END})
    assert not goes_on("sim-tools", {"content": "1"})


def test_a_format_that_is_no_json_gets_no_json() -> None:
    assert (json_text("json_object", None), json_text("text", {"type": "string"})) == ("{}", "")
    assert json_text("json_schema", {"type": "string"}) == '"sim"'


@pytest.mark.parametrize(
    ("options", "wants"), [({"include_usage": True}, True), ({"include_usage": 1}, False), ({}, False), (None, False)]
)
def test_a_stream_ends_with_its_usage_where_the_request_says_so(options: Any, wants: bool) -> None:
    assert wants_usage({"stream_options": options}) is wants


def test_an_event_is_one_line_of_data() -> None:
    assert event({"a": "b\nc"}) == b'data: {"a":"b\\nc"}\n\n'


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "sim"),
        ({"type": "number"}, 1.5),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": ["string", "null"]}, "sim"),
        ({"const": 7}, 7),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 1),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        ({"type": "array"}, []),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {}),
        ({"properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"], "$defs": {"A": {"const": 1}}}, {"a": 1}),
        ({"$ref": "#/$defs/gone"}, None),
        ({"$ref": "#"}, None),
        (True, None),
    ],
)
def test_a_sample_is_what_a_schema_requires_and_no_more(schema: Any, value: Any) -> None:
    assert sample(schema) == value


def test_a_schema_without_an_end_has_one_here() -> None:
    endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    assert "None" in str(sample({"$ref": "#/x", "x": endless}))
