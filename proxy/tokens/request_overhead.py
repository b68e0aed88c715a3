"""The head of a request: what tools, forced choices and response schemas add to a prompt besides its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy.model.lenient_json import Json, compact, mapping, read, string
from proxy.tokens import schema as schemas
from proxy.tokens import tools as toolbox
from proxy.tokens.messages import Counting

PARTS = ("base", "tools", "tool_choice", "schema")  # what takes it, in the order of `fixed_costs`
# What they add is not in the request: OpenAI's search and predictions; the searches of xAI, OpenRouter and DashScope.
HIDDEN = ("web_search_options", "prediction", "search_parameters", "plugins", "enable_search")
NOTHING = (b"null", b"false", b"[]")
KEYS = ("tools", "functions", "tool_choice", "function_call", "response_format", *HIDDEN)  # what it depends on
SCHEMA_JOINT = "\n\n"  # between instructions and the schema of the answer


def fixed_costs(head: Mapping[str, bytes], system: str | None, how: Counting) -> tuple[int, int, int, int]:
    """Tokens of the encoding by `PARTS`. `system` is the text of the first instructions, None where there are none."""
    functions = functions_in(head)
    tools = _tools(functions, system, how) if functions else 0
    choice = _choice(head, how) if functions else 0
    return how.recipe.base, tools, choice, _schema(head, system, bool(functions), how)


def fixed_as_text(head: Mapping[str, bytes], how: Counting) -> tuple[int, int, int, int]:
    """The same for a head that nests too deep to be understood: every field as the text it is."""
    tools, schema = (how.count(head.get(key, b"").decode("utf-8", "replace")) for key in ("tools", "response_format"))
    return how.recipe.base, how.recipe.tools + tools, 0, schema


def has_schema(head: Mapping[str, bytes]) -> bool:
    """Whether the request asks for an answer by a schema."""
    return b"json_schema" in head.get("response_format", b"")


def is_certain(head: Mapping[str, bytes], how: Counting) -> bool:
    """Whether nothing in it adds what the request does not show: searches, predictions, tools that the host runs."""
    if not how.recipe.searches and any(head.get(key, NOTHING[0]) not in NOTHING for key in HIDDEN):
        return False
    return all(isinstance(mapping(tool).get("function"), dict) for tool in _list(head, "tools"))


def functions_in(head: Mapping[str, bytes]) -> list[Mapping[str, Json]]:
    """The functions that a request offers; tools of other kinds stand as they are, to be counted as JSON at least."""
    tools = [_function(mapping(tool)) for tool in _list(head, "tools")]
    return tools or [mapping(function) for function in _list(head, "functions")]


def _list(head: Mapping[str, bytes], key: str) -> list[Json]:
    found = read(head.get(key, b"null"))
    return found if isinstance(found, list) else []


def _function(tool: Mapping[str, Json]) -> Mapping[str, Json]:
    """A tool's function; one without (custom, hosted) as a function that says all it has as its description."""
    function = tool.get("function")
    if isinstance(function, dict):
        return function
    return {"name": tool.get("type", ""), "description": compact(tool)}


def _tools(functions: Sequence[Mapping[str, Json]], system: str | None, how: Counting) -> int:
    recipe = how.recipe
    if recipe.weight:
        return recipe.tools + round(recipe.weight * how.count(compact(functions)))
    total = recipe.tools + how.count(toolbox.render(functions, recipe.old))
    if not any(function.get("description") for function in functions):
        total += recipe.silent
    return total + (0 if system is None else recipe.with_system + joined(system, recipe.joint, how))


def joined(system: str, joint: str, how: Counting) -> int:
    """What a joint costs behind instructions: nothing where it melts into their last token."""
    return how.count(system + joint) - how.count(system)


def _choice(head: Mapping[str, bytes], how: Counting) -> int:
    choice = read(head.get("tool_choice", head.get("function_call", b"null")))
    if choice == "none":
        return how.recipe.no_choice
    found = mapping(choice)
    name = string((mapping(found.get("function")) or found).get("name"))
    return how.recipe.choice + how.count(f"functions.{name}") if name and how.recipe.choice is not None else 0


def _schema(head: Mapping[str, bytes], system: str | None, tools: bool, how: Counting) -> int:
    wanted = mapping(read(head.get("response_format", b"null")))
    found = mapping(wanted.get("json_schema"))
    if not found or wanted.get("type") != "json_schema":
        return 0
    alone, instructed, with_tools = how.recipe.schema
    name, about = string(found.get("name")), string(found.get("description"))
    total = how.count(schemas.seen(found.get("schema", {}))) + how.count(f" {name}") + how.count(name)
    total += how.count(f"// {about}\n") if about else 0
    if tools:
        return total + with_tools
    return total + (alone if system is None else instructed + joined(system, SCHEMA_JOINT, how))
