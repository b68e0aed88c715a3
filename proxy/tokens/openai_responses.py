"""Counts requests of the Responses API, from recorded requests and the usage that OpenAI reported for them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from proxy.model.conversation import Message
from proxy.model.lenient_json import Json, compact, mapping, read, read_text, string
from proxy.tokens import schema as schemas
from proxy.tokens import tools as toolbox
from proxy.tokens.content_parts import Cost, cost_of_part, text_of_part, unshown
from proxy.tokens.messages import CountingRules
from proxy.tokens.recipes import Recipe

Fields = Mapping[str, Json]
Costs = tuple[int, int, int, int]

# Fields whose content the request does not contain.
STORED = ("previous_response_id", "conversation", "prompt")
MANAGED = ("context_management", "truncation")  # where the provider itself leaves something out
KEYS = ("tools", "text", "tool_choice", "parallel_tool_calls", "reasoning", *STORED, *MANAGED)
ABSENT = (b"null", b"", b'""', b"[]", b"{}")
TOOLBOX_END = "} // namespace functions"

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
OUTPUTS = {"function_call_output": "output", "custom_tool_call_output": "output"}
# Other calls and answers, and the field that holds what they say.
OTHER_CALLS = {
    **dict.fromkeys(("local_shell_call", "shell_call", "computer_call"), "action"),
    **{"apply_patch_call": "operation", "program": "code", "mcp_approval_request": "arguments"},
}
OTHER_OUTPUTS = {
    **dict.fromkeys(("local_shell_call_output", "shell_call_output", "apply_patch_call_output"), "output"),
    **{"computer_call_output": "output", "program_output": "result", "mcp_approval_response": "reason"},
}
REASONING, COMPACTION = "reasoning", "compaction"
# Items with a cost of their own, as recorded: a search in the history cost 27 to 33 tokens.
FIXED_ITEMS = {"web_search_call": 30, "configuration_update": 0, "compaction_trigger": 0, "item_reference": 100}
TOOL_ITEMS = {"additional_tools": 93, "tool_search_output": 120}  # besides the tools in them, written as tools are
SEARCH = "tool_search_call"
LISTED = "mcp_list_tools"  # its JSON costs a tenth more than its text
LISTED_SHARE = 1.1
# Tools that the provider runs, beside none, as recorded; the models of the classic recipe, and the others.
HOSTED: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("web_search", "web_search_preview"), (294, 412)),
    **{"image_generation": (745, 345), "code_interpreter": (740, 740), "file_search": (850, 850)},
    **{"apply_patch": (623, 623), "tool_search": (553, 553), "mcp": (170, 170)},
}
CLIENT_SEARCH = 41  # a search for tools that the client executes, besides its parameters
PRO = 1_990  # what the mode `pro` of reasoning was seen to add, at most
MAX_DATA = 1 << 16  # characters of an item's JSON above which it is data (base64) and no text


@dataclass(frozen=True, slots=True)
class Figures:
    """What a request costs besides its texts, in tokens of the encoding. `answer`: a message of the assistant, besides
    `message`.

    A call that stands alone costs `call` besides its name and arguments; `stored_call` if it has an id, `made_call` if
    it also has a status, as the provider made it. Calls in parallel are one JSON object, which costs `parallel`, where
    that is not 0; then each answer costs `parallel_output` instead of `output`.

    `tools`: once. `undescribed`: more if no tool has a description. `serial`: more if calls in parallel are forbidden.
    `forced`, `none`: a function that must be called, besides its name; none may be called (None and 0: free). `schema`:
    of the reply, besides its texts. `tool_json`: tokens per token of the tools' JSON, where the encoding is not public.
    """

    base: int = 3
    message: int = 4
    answer: int = 0
    call: int = 2
    stored_call: int = 2
    made_call: int = 5
    parallel: int = 0
    output: int = 8
    parallel_output: int = 6
    tools: int = 3
    undescribed: int = 0
    serial: int = 0
    forced: int | None = 6
    none: int = 1
    schema: int = 7
    legacy_tools: bool = False
    tool_json: float = 0.0
    reasons: bool = False


CLASSIC = Figures()
REASONS = Figures(base=2, tools=7, undescribed=-1, forced=None, none=0, schema=6, reasons=True)
CHANNELS = replace(REASONS, answer=2)
APART = replace(CHANNELS, tools=6, call=8, stored_call=8, made_call=11)  # o4-mini, recorded in June 2026
GPT_5 = replace(CHANNELS, call=8, stored_call=11, made_call=11, tools=9, serial=78)
WRAPPING = replace(GPT_5, parallel=16)
NEWEST = replace(WRAPPING, call=11)
BY_RECIPE = {
    "reasoning": REASONS,
    "channels": CHANNELS,
    "apart": APART,
    "harmony": GPT_5,
    "wrapping-chat": GPT_5,
    "wrapping": WRAPPING,
    "june-2023": replace(CLASSIC, legacy_tools=True),
}
# Models that differ from others of their recipe; the first match wins.
BY_MODEL: Sequence[tuple[re.Pattern[str], Figures]] = (
    (re.compile(r"gpt-5(\.\d)?-chat"), CLASSIC),
    (re.compile(r"gpt-5(\.1)?-codex"), replace(GPT_5, tools=12)),
    (re.compile(r"gpt-5\.[23](-|$)"), WRAPPING),
    (re.compile(r"gpt-5\.5(-|$)"), WRAPPING),
    (re.compile(r"gpt-(5\.[46-9]|5\.\d\d|[6-9])"), NEWEST),
)


def figures_for(rules: CountingRules) -> Figures:
    """The figures of a model."""
    return _figures(rules.recipe, rules.model)


@lru_cache(maxsize=1024)
def _figures(recipe: Recipe, model: str) -> Figures:
    if recipe.name.startswith(("approximate", "own-")):
        return Figures(
            base=recipe.base,
            message=recipe.message,
            output=recipe.result,
            tools=recipe.tools,
            tool_json=recipe.tool_json,
            forced=None,
            none=0,
        )
    name = model.lower().rsplit("/", 1)[-1].removeprefix("ft:")
    found = next((figures for pattern, figures in BY_MODEL if pattern.match(name)), None)
    return found or BY_RECIPE.get(recipe.name, CLASSIC)


def costs(messages: Sequence[Message], rules: CountingRules) -> tuple[int, ...]:
    """Tokens of the encoding that each item of one block adds to the prompt. The sum is exact."""
    items = [read(message.raw) for message in messages]
    return tuple(_Block(items, rules).costs())


def certain(message: Message, rules: CountingRules) -> bool:
    """Whether the cost of an item is known, not assumed."""
    item = read(message.raw)
    if not isinstance(item, dict):
        return isinstance(item, str)
    kind = _type(item)
    if kind != "message" and kind not in CALLS and kind not in OUTPUTS:
        return kind in (REASONING, "configuration_update")
    content = item.get(OUTPUTS.get(kind, "content"))
    return all(_media_cost(part, rules).certain for part in _media_in(content))


def assumed(message: Message, rules: CountingRules) -> tuple[Cost, ...]:
    """The costs of an item's parts that its body does not show."""
    item = read(message.raw)
    if not isinstance(item, dict):
        return ()
    kind = _type(item)
    content = item.get(OUTPUTS.get(kind, OTHER_OUTPUTS.get(kind, "content")))
    listed = [content] if kind == "computer_call_output" else content
    return unshown(_media_cost(part, rules) for part in _media_in(listed))


class _Block:
    """The items of one block, and what their costs depend on."""

    def __init__(self, items: Sequence[Json], rules: CountingRules) -> None:
        self.items, self.rules, self.figures = items, rules, figures_for(rules)
        self.count: Callable[[str], int] = rules.count
        self.names: dict[str, str] = {}
        self.wrapped: dict[int, list[Fields]] = {}  # calls in parallel, by the place of the first
        self.parallel: set[str] = set()  # ids of calls in parallel
        self.alone: set[int] = set()  # places of calls without others beside them
        self._group()

    def costs(self) -> list[int]:
        """The cost of each item."""
        return [self._cost(item, place) for place, item in enumerate(self.items)]

    def _group(self) -> None:
        """Finds the calls that are next to each other, with only reasoning between."""
        run: list[tuple[int, Fields]] = []
        for place, item in enumerate((*self.items, None)):
            kind = _type(item) if isinstance(item, dict) else ""
            if kind in CALLS:
                run.append((place, item))
                self.names[string(item.get("call_id"))] = string(item.get("name"))
            elif run and kind != REASONING:
                self._close(run)
                run = []

    def _close(self, run: Sequence[tuple[int, Fields]]) -> None:
        functions = [(place, call) for place, call in run if _type(call) == "function_call"]
        if len(run) == 1:
            self.alone.add(run[0][0])
        elif self.figures.parallel and len(functions) > 1:
            self.wrapped[functions[0][0]] = [call for _, call in functions]
            self.wrapped |= {place: [] for place, _ in functions[1:]}
            self.parallel |= {string(call.get("call_id")) for _, call in functions}

    def _cost(self, item: Json, place: int) -> int:
        if not isinstance(item, dict):  # the instructions
            return self.figures.message + self.count(item) if isinstance(item, str) and item else 0
        kind = _type(item)
        if kind == "message":
            return self._message(item)
        if kind in CALLS:
            return self._call(item, place, item.get(CALLS[kind]))
        if kind in OUTPUTS:
            return self._output(item, item.get(OUTPUTS[kind]))
        return self._other(item, kind)

    def _message(self, item: Fields) -> int:
        content = item.get("content")
        if content == []:
            return 0  # it vanishes
        answer = self.figures.answer if item.get("role") == "assistant" else 0
        return self.figures.message + self.count(_text(content)) + answer + self._media(content)

    def _call(self, item: Fields, place: int, said: Json) -> int:
        figures = self.figures
        if place in self.wrapped:
            calls = self.wrapped[place]
            return figures.parallel + self.count(_together(calls)) if calls else 0
        frame = figures.call if not item.get("id") else figures.stored_call
        if place in self.alone and item.get("id") and item.get("status"):
            frame = figures.made_call
        return frame + self.count(string(item.get("name"))) + self.count(_as_text(said))

    def _output(self, item: Fields, brought: Json) -> int:
        call = string(item.get("call_id"))
        frame = self.figures.parallel_output if call in self.parallel else self.figures.output
        name = self.count(f"functions.{self.names.get(call) or 'x'}")
        return frame + name + self.count(_text(brought)) + self._media(brought)

    def _other(self, item: Fields, kind: str) -> int:
        figures = self.figures
        if kind in FIXED_ITEMS:
            return FIXED_ITEMS[kind]
        if kind == REASONING:  # summaries are not read; other servers say in `content` what was thought
            return self.count(_text(item.get("content"))) if item.get("content") else 0
        if kind == COMPACTION:
            return 0
        if kind in OTHER_CALLS:
            return figures.stored_call + self.count(_as_text(item.get(OTHER_CALLS[kind])))
        if kind in OTHER_OUTPUTS:
            brought = item.get(OTHER_OUTPUTS[kind])
            images = self._media([brought]) if kind == "computer_call_output" else 0
            return figures.output + (images or self.count(_written(brought)))
        if kind in TOOL_ITEMS:
            tools = item.get("tools")
            listed = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
            return TOOL_ITEMS[kind] + self.count(toolbox.render(listed))
        if kind == SEARCH:
            return figures.stored_call + self.count(_as_text(item.get("arguments")))
        return self._unknown(item, kind)

    def _unknown(self, item: Fields, kind: str) -> int:
        """Any other item costs what its JSON does; data in it what an image does."""
        data = {key: value for key, value in item.items() if isinstance(value, str) and len(value) > MAX_DATA}
        rest = self.count(compact({key: value for key, value in item.items() if key not in data and key != "id"}))
        images = self.rules.images.cost(None, False) if kind.startswith("image") else 0
        texts = sum(map(self.count, data.values())) if not images else 0
        return round(LISTED_SHARE * rest) if kind == LISTED else rest + texts + round(self.rules.unit * images)

    def _media(self, content: Json) -> int:
        return round(self.rules.unit * sum(_media_cost(part, self.rules).tokens for part in _media_in(content)))


def fixed_costs(head: Mapping[str, bytes], system: str | None, rules: CountingRules) -> Costs:
    """Tokens of the encoding: base, tools, tool choice, schema. `head` are the body's fields as raw JSON."""
    figures = figures_for(rules)
    tools = tools_in(head)
    mode = string(mapping(read(head.get("reasoning", b"null"))).get("mode"))
    base = figures.base + (PRO if mode == "pro" else 0)
    return base, _tools(tools, head, rules) if tools else 0, _choice(head, tools, rules), _schema(head, rules)


def fixed_as_text(head: Mapping[str, bytes], rules: CountingRules) -> Costs:
    """The same for JSON that nests too deep to parse: every field counts as text."""
    tools, schema = (rules.count(head.get(key, b"").decode("utf-8", "replace")) for key in ("tools", "text"))
    return figures_for(rules).base, tools, 0, schema


def is_certain(head: Mapping[str, bytes], rules: CountingRules) -> bool:
    """Whether the request contains all that it costs, and no more: nothing that the provider stored, adds, runs or
    leaves out."""
    if head.get("context_management", b"") not in ABSENT or head.get("truncation") == b'"auto"':
        return False
    if any(head.get(key, b"") not in ABSENT for key in STORED) or b'"pro"' in head.get("reasoning", b""):
        return False
    return all(tool.get("type") in ("function", "custom") for tool in tools_in(head))


def tools_in(head: Mapping[str, bytes]) -> list[Fields]:
    """The tools of a request."""
    found = read(head.get("tools", b"null"))
    return [mapping(tool) for tool in found] if isinstance(found, list) else []


def _tools(tools: Sequence[Fields], head: Mapping[str, bytes], rules: CountingRules) -> int:
    figures = figures_for(rules)
    functions = [tool for tool in tools if tool.get("type") == "function" and not tool.get("defer_loading")]
    custom = [tool for tool in tools if tool.get("type") == "custom"]
    total = sum(_hosted(tool, rules) for tool in tools if tool.get("type") not in ("function", "custom"))
    if figures.tool_json:
        own = [*functions, *custom]
        return total + figures.tools + round(figures.tool_json * rules.count(compact(own))) if own else total
    if not functions and not custom:
        return total
    rendered = toolbox.render(functions, figures.legacy_tools).removesuffix(TOOLBOX_END)
    total += figures.tools + rules.count(rendered + "".join(map(_custom, custom)) + TOOLBOX_END)
    total += sum(map(_is_split, functions)) + sum(rules.count(_grammar(tool)) for tool in custom)
    if functions and not any(function.get("description") for function in functions):
        total += figures.undescribed
    return total + (figures.serial if head.get("parallel_tool_calls") == b"false" else 0)


def _is_split(function: Fields) -> bool:
    """Whether an empty comment line, one token, stands between the descriptions of a function and its parameters."""
    parameters = mapping(function.get("parameters"))
    about = string(parameters.get("description")).strip()
    return bool(function.get("description") and about and not parameters.get("title"))


def _custom(tool: Fields) -> str:
    """A tool whose input is a text, as the model reads it."""
    about = string(tool.get("description")).strip()
    comment = "".join(f"// {line.strip()}".rstrip() + "\n" for line in about.split("\n")) if about else ""
    return f"{comment}type {string(tool.get('name'))} = (FREEFORM) => any;\n\n"


def _grammar(tool: Fields) -> str:
    return string(mapping(tool.get("format")).get("definition"))


def _hosted(tool: Fields, rules: CountingRules) -> int:
    kind = string(tool.get("type"))
    if kind == "tool_search" and tool.get("execution") == "client":
        return CLIENT_SEARCH + rules.count(compact(tool.get("parameters")))
    if isinstance(tool.get("tools"), list):  # a namespace: what is deferred in it is read once a search has found it
        tool = {**tool, "tools": [one for one in tool["tools"] if not mapping(one).get("defer_loading")]}
    found = HOSTED.get(kind) or HOSTED.get(kind.partition("_20")[0].removesuffix("_preview"))
    return rules.count(compact(tool)) if found is None else found[figures_for(rules).reasons]


def _choice(head: Mapping[str, bytes], tools: Sequence[Fields], rules: CountingRules) -> int:
    figures, choice = figures_for(rules), read(head.get("tool_choice", b"null"))
    functions = [tool for tool in tools if tool.get("type") == "function"]
    if not functions or figures.forced is None:
        return 0
    if choice == "none":
        return figures.none
    name = string(mapping(choice).get("name"))
    if choice == "required" and len(tools) == 1:
        name = string(functions[0].get("name"))
    return figures.forced + rules.count(f"functions.{name}") if name else 0


def _schema(head: Mapping[str, bytes], rules: CountingRules) -> int:
    found = mapping(mapping(read(head.get("text", b"null"))).get("format"))
    if found.get("type") != "json_schema":
        return 0
    about = string(found.get("description"))
    total = figures_for(rules).schema + rules.count(schemas.render(found.get("schema") or {}))
    return total + rules.count(string(found.get("name"))) + (rules.count(f"// {about}\n") if about else 0)


def _type(item: Fields) -> str:
    return string(item.get("type")) or ("message" if item.get("role") else "item_reference")


def _text(content: Json) -> str:
    if isinstance(content, str):
        return content
    return "".join(text_of_part(part) or "" for part in content) if isinstance(content, list) else ""


def _as_text(said: Json) -> str:
    return said if isinstance(said, str) else "" if said is None else compact(said)


def _written(brought: Json) -> str:
    """What commands wrote, or any other output, as text."""
    if not isinstance(brought, list):
        return _as_text(brought)
    texts = [string(mapping(one).get(key)) for one in brought for key in ("stdout", "stderr", "text")]
    return "".join(texts)


def _together(calls: Sequence[Fields]) -> str:
    """Calls in parallel as the model reads them."""
    uses = [
        {
            "recipient_name": f"functions.{string(call.get('name'))}",
            "parameters": read_text(_as_text(call.get("arguments")) or "{}"),
        }
        for call in calls
    ]
    return json.dumps({"tool_uses": uses}, separators=(",", ":"), ensure_ascii=False)


def _media_in(content: Json) -> list[Fields]:
    if not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, dict) and text_of_part(part) is None]


def _media_cost(part: Fields, rules: CountingRules) -> Cost:
    """The cost of an image or a file, in tokens of the model."""
    kind = string(part.get("type"))
    if "image" in kind or "screenshot" in kind:
        named = string(part.get("image_url")) or string(part.get("file_id"))
        part = {"image_url": named, "detail": part.get("detail")}
    elif kind == "input_file":
        part = {"file": part}
    return cost_of_part(part, rules.images, rules.second)
