"""Counts what a prompt costs besides its messages: tools, a forced tool choice and the response schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy.model.lenient_json import Json, compact, mapping, read, string
from proxy.tokens import schema as schemas
from proxy.tokens import tools as toolbox
from proxy.tokens.anthropic_messages import schema_cost
from proxy.tokens.messages import CountingRules

PARTS = ("base", "tools", "tool_choice", "schema")  # the names of the figures of `fixed_costs`
# Fields that add tokens which the request does not contain: web search and predictions of OpenAI, web search of xAI,
# OpenRouter and DashScope.
HIDDEN = ("web_search_options", "prediction", "search_parameters", "plugins", "enable_search")
ABSENT = (b"null", b"false", b"[]")
KEYS = (
    "tools",
    "functions",
    "tool_choice",
    "function_call",
    "response_format",
    *HIDDEN,
)  # the fields that the figures depend on
SCHEMA_SEPARATOR = "\n\n"  # between a system message and the response schema


def chat_costs(head: Mapping[str, bytes], system: str | None, rules: CountingRules) -> tuple[int, int, int, int]:
    """`fixed_costs` of a chat request: where no system message begins it, some chat templates add their own."""
    base, tools, choice, schema = fixed_costs(head, system, rules)
    return base + (rules.recipe.no_system if system is None else 0), tools, choice, schema


def fixed_costs(head: Mapping[str, bytes], system: str | None, rules: CountingRules) -> tuple[int, int, int, int]:
    """Tokens of the encoding, in the order of `PARTS`. `head` are the body's fields as raw JSON; `system` is the text
    of the system message at the start, None if there is none."""
    functions = functions_in(head)
    tools = _tools(functions, system, rules) if functions else 0
    choice = _choice(head, functions, rules) if functions else 0
    return rules.recipe.base, tools, choice, _schema(head, system, bool(functions), rules)


def fixed_as_text(head: Mapping[str, bytes], rules: CountingRules) -> tuple[int, int, int, int]:
    """The same for JSON that nests too deep to parse: every field counts as text."""
    tools, schema = (rules.count(head.get(key, b"").decode("utf-8", "replace")) for key in ("tools", "response_format"))
    return rules.recipe.base, rules.recipe.tools + tools, 0, schema


def has_schema(head: Mapping[str, bytes]) -> bool:
    """Whether the request has a response schema."""
    return b"json_schema" in head.get("response_format", b"")


def is_certain(head: Mapping[str, bytes], rules: CountingRules) -> bool:
    """Whether the request contains all that it costs: no web search, no prediction, no tools that the provider runs."""
    if not rules.recipe.hidden_search and any(head.get(key, ABSENT[0]) not in ABSENT for key in HIDDEN):
        return False
    return all(isinstance(mapping(tool).get("function"), dict) for tool in _list(head, "tools"))


def functions_in(head: Mapping[str, bytes]) -> list[Mapping[str, Json]]:
    """The functions of a request. A tool of another kind becomes a function with its JSON as description."""
    tools = [_function(mapping(tool)) for tool in _list(head, "tools")]
    return tools or [mapping(function) for function in _list(head, "functions")]


def _list(head: Mapping[str, bytes], key: str) -> list[Json]:
    found = read(head.get(key, b"null"))
    return found if isinstance(found, list) else []


def _function(tool: Mapping[str, Json]) -> Mapping[str, Json]:
    """A tool's function; for any other tool (custom, hosted) a function with the tool's JSON as description."""
    function = tool.get("function")
    if isinstance(function, dict):
        return function
    return {"name": tool.get("type", ""), "description": compact(tool)}


def _tools(functions: Sequence[Mapping[str, Json]], system: str | None, rules: CountingRules) -> int:
    recipe = rules.recipe
    if recipe.tool_json:
        return recipe.tools + round(recipe.tool_json * rules.count(compact(functions)))
    total = recipe.tools + rules.count(toolbox.render(functions, recipe.legacy_tools))
    if not any(function.get("description") for function in functions):
        total += recipe.undescribed_tools
    return total + (
        0 if system is None else recipe.tools_after_system + separator_cost(system, recipe.tools_separator, rules)
    )


def separator_cost(system: str, separator: str, rules: CountingRules) -> int:
    """Tokens of a separator after a system message; 0 where it merges with the last token."""
    return rules.count(system + separator) - rules.count(system)


def _choice(head: Mapping[str, bytes], functions: Sequence[Mapping[str, Json]], rules: CountingRules) -> int:
    choice = read(head.get("tool_choice", head.get("function_call", b"null")))
    if choice == "none":
        return rules.recipe.choice_none
    if choice == "required":
        return rules.recipe.required_alone if len(functions) == 1 else 0
    found = mapping(choice)
    name = string((mapping(found.get("function")) or found).get("name"))
    return (
        rules.recipe.forced_choice + rules.count(f"functions.{name}")
        if name and rules.recipe.forced_choice is not None
        else 0
    )


def _schema(head: Mapping[str, bytes], system: str | None, tools: bool, rules: CountingRules) -> int:
    response_format = mapping(read(head.get("response_format", b"null")))
    found = mapping(response_format.get("json_schema"))
    if not found or response_format.get("type") != "json_schema":
        return 0
    if rules.recipe.schema_as_messages:
        return schema_cost(found.get("schema", {}), rules)
    alone, with_system, with_tools = rules.recipe.response_schema
    name, about = string(found.get("name")), string(found.get("description"))
    total = rules.count(schemas.render(found.get("schema", {}))) + rules.count(f" {name}") + rules.count(name)
    total += rules.count(f"// {about}\n") if about else 0
    total = round(rules.recipe.schema_text * total)
    if tools:
        return total + with_tools
    return total + (alone if system is None else with_system + separator_cost(system, SCHEMA_SEPARATOR, rules))
