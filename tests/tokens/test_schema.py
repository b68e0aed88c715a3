"""The schema of an answer, as the models see it."""

from proxy.tokens.schema import render


def test_keywords_that_only_bind_the_answer_are_not_render() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "T",
        "additionalProperties": False,
        "required": ["n"],
        "properties": {"n": {"type": "integer", "minimum": 1, "default": 2, "description": "N."}},
    }
    assert render(schema) == ('{"type":"object","title":"T","properties":{"n":{"type":"integer","description":"N."}}}')


def test_properties_that_are_called_like_keywords_stay() -> None:
    schema = {"properties": {"default": {"type": "string"}}, "$defs": {"required": {"enum": ["default"]}}}
    assert render(schema) == '{"properties":{"default":{"type":"string"}},"$defs":{"required":{"enum":["default"]}}}'


def test_values_are_left_as_they_are() -> None:
    assert (
        render({"enum": [{"default": 1}], "const": {"required": 2}})
        == '{"enum":[{"default":1}],"const":{"required":2}}'
    )


def test_choices_are_stripped_too_and_what_is_no_schema_is_kept() -> None:
    assert (
        render({"anyOf": [{"default": 1, "type": "null"}, True], "properties": 5})
        == '{"anyOf":[{"type":"null"},true],"properties":5}'
    )


def test_the_format_of_a_text_is_seen_and_that_of_a_number_is_not() -> None:
    assert render({"type": "string", "format": "date"}) == '{"type":"string","format":"date"}'
    assert render({"type": "integer", "format": "uint8"}) == '{"type":"integer"}'
    assert render({"type": ["integer", "null"], "format": "uint8"}) == '{"type":["integer","null"],"format":"uint8"}'


def test_all_but_ascii_is_escaped() -> None:
    assert render({"description": "a — b"}) == '{"description":"a \\u2014 b"}'
