"""Tools are written the way the models see them."""

import pytest

from proxy.model.lenient_json import Json
from proxy.tokens.tools import render


def written(parameters: Json, old: bool = False, **function: Json) -> str:
    """What stands between the frame of the namespace for one function `f`."""
    text = render([{"name": "f", "parameters": parameters, **function}], old)
    return text.removeprefix("namespace functions {\n\n").removesuffix("\n\n} // namespace functions")


def of_one(schema: Json, old: bool = False) -> str:
    """How one optional property `a` is written."""
    return written({"type": "object", "properties": {"a": schema}}, old).removeprefix("type f = (_: ")[
        : -len(") => any;")
    ]


def test_no_functions_are_an_empty_namespace() -> None:
    assert render([]) == "namespace functions {\n\n} // namespace functions"


def test_a_function_without_parameters_takes_nothing() -> None:
    assert render([{"name": "now", "description": "The time."}]) == (
        "namespace functions {\n\n// The time.\ntype now = () => any;\n\n} // namespace functions"
    )


def test_the_published_example_looks_as_published() -> None:
    location = {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
    unit = {"type": "string", "enum": ["celsius", "fahrenheit"]}
    parameters = {"type": "object", "properties": {"location": location, "unit": unit}, "required": ["location"]}
    assert written(parameters, description="Get the weather") == (
        "// Get the weather\ntype f = (_: {\n// The city and state, e.g. San Francisco, CA\nlocation: string,\n"
        'unit?: "celsius" | "fahrenheit",\n}) => any;'
    )


def test_properties_with_nothing_to_tell_stand_on_one_line() -> None:
    parameters = {"properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["b"]}
    assert written(parameters) == "type f = (_: { a?: number, b: boolean }) => any;"


def test_until_june_2023_every_object_stood_on_lines_of_its_own_without_titles_and_bounds() -> None:
    schema = {"type": "integer", "title": "A", "description": "An a.", "minimum": 1}
    assert of_one(schema, old=True) == "{\n// An a.\na?: number,\n}"
    assert of_one({"type": "string"}, old=True) == "{\na?: string,\n}"
    assert of_one(schema) == "{\n// A\n//\n// An a.\na?: number, // minimum: 1\n}"


def test_the_schemas_title_stands_before_the_functions_description_and_its_description_behind() -> None:
    parameters = {"title": "Args", "description": "What f takes.", "properties": {"a": {}}}
    assert written(parameters, description="Does f.") == (
        "// Args\n//\n// Does f.\n// What f takes.\ntype f = (_: { a?: any }) => any;"
    )
    assert written({"title": "Args"}).startswith("// Args\n//\ntype f = ()")


def test_comments_lose_the_blanks_around_their_lines_and_keep_empty_lines_between() -> None:
    assert written({}, description="\n  one \n\n\ttwo\n\n") == "// one\n//\n// two\ntype f = () => any;"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "number"}, "number"),
        ({"type": "null"}, "null"),
        ({}, "any"),
        (True, "any"),
        ({"type": "unheard of"}, "any"),
        ({"type": 7}, "any"),
        ({"const": "x"}, '"x"'),
        ({"enum": ["a", 1, None, "é"]}, '"a" | 1 | null | "é"'),
        ({"type": ["string", "null"]}, "string | null"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"oneOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]}, "number | string[]"),
        ({"type": "array"}, "any[]"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, "number[][]"),
        ({"type": "object"}, "object"),
        ({"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}, "{ b: string }"),
        ({"properties": {"b": {"type": "string"}}, "required": 5}, "{ b?: string }"),
        ({"allOf": [{"properties": {"b": {}}}, {"properties": {"c": {}}, "type": "object"}]}, "{ b?: any, c?: any }"),
        ({"type": "number", "format": "double"}, "number"),
    ],
)
def test_types_are_written_in_a_line(schema: Json, text: str) -> None:
    assert of_one(schema) == f"{{ a?: {text} }}"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string", "default": "é"}, 'a?: string, // default: "é"'),
        ({"type": "string", "default": None, "minLength": 1}, "a?: string, // default: null, minLength: 1"),
        ({"type": "string", "format": "date"}, 'a?: string, // format: "date"'),
        ({"type": "integer", "minimum": 0, "maximum": 9}, "a?: number, // minimum: 0, maximum: 9"),
        ({"type": "array", "items": {}, "maxItems": 3}, "a?: any[], // maxItems: 3"),
    ],
)
def test_what_bounds_a_value_is_told_after_it(schema: Json, text: str) -> None:
    assert of_one(schema) == f"{{\n{text}\n}}"


def test_a_choice_of_types_with_a_description_repeats_it_for_each() -> None:
    schema = {"type": ["string", "null"], "description": "Or none."}
    assert of_one(schema) == "{\n// Or none.\na?:\n// Or none.\n| string\n// Or none.\n| null\n,\n}"


def test_a_choice_with_something_to_tell_stands_on_lines_of_its_own() -> None:
    schema = {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}
    assert of_one(schema) == '{\na?:\n| string // format: "date"\n| null\n,\n}'


def test_items_with_something_to_tell_stand_in_an_array_of_lines() -> None:
    schema = {"type": "array", "items": {"type": "string", "description": "One."}}
    assert of_one(schema) == "{\na?: Array<\n// One.\nstring\n>,\n}"


def test_inner_objects_are_not_indented() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "string", "description": "B."}}}
    assert of_one(inner) == "{\na?: {\n// B.\nb?: string,\n},\n}"


def test_a_reference_is_written_out_with_what_stands_beside_it() -> None:
    parameters = {
        "$defs": {"Unit": {"type": "string", "enum": ["c"], "description": "Theirs."}},
        "properties": {"a": {"$ref": "#/$defs/Unit", "description": "Ours."}, "b": {"$ref": "#/nowhere/at/all"}},
    }
    assert written(parameters) == 'type f = (_: {\n// Ours.\na?: "c",\nb?: any,\n}) => any;'


def test_a_schema_that_refers_to_itself_ends() -> None:
    parameters = {"properties": {"child": {"$ref": "#"}, "loop": {"$ref": "#/properties/loop"}}}
    assert 10 < written(parameters).count("child") < 30


def test_a_schema_that_refers_to_parts_that_refer_to_parts_does_not_grow_without_bound() -> None:
    def level(n: int) -> Json:
        return {"properties": {key: {"$ref": f"#/$defs/{n}", "description": "x" * 500} for key in "abcdefgh"}}

    defs = {str(n): level(n + 1) for n in range(10)}
    assert len(written({"$defs": defs, "properties": {"a": {"$ref": "#/$defs/0"}}})) < 5_000_000


def test_what_is_no_schema_at_all_is_written_all_the_same() -> None:
    assert written([]) == "type f = () => any;"
    assert written({"properties": {"a": 5}}) == "type f = (_: { a?: any }) => any;"
    assert render([{}]) == "namespace functions {\n\ntype  = () => any;\n\n} // namespace functions"
