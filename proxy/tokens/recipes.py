"""Recipes: what a prompt costs besides its texts, for each message format of OpenAI's models.

A row of rules/families.toml names a recipe of `RECIPES`, or has figures of its own for `approximate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

SCHEMA_RATE = 2.1  # tokens of a Claude for one token of the encoding in the JSON of a response schema


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a prompt costs besides its texts, in tokens of the encoding. The defaults are those of OpenAI's chat models
    since November 2023.

    `base`: once per prompt; `no_system` more if no system message begins it, because the chat template adds its own.
    `message`: per message. `name_overhead`: per message with a name, besides the name.
    `assistant_text`: per assistant message with text. `call_turn`: per message with calls, besides `message` for each
    call. `result`: per tool result.

    Parallel calls: `wraps_parallel`: they are one JSON object, which costs `parallel_overhead` besides its text.
    `lists_results`: their results are one list, else each costs `unlisted_result`. `ascii_results`: the list is ASCII.

    Tools: `tools` once; `tools_after_system` more if a system message precedes them, after the text `tools_separator`;
    `undescribed_tools` if no tool has a description. `tool_json`: tokens per token of the tools' JSON; 0: the tools are
    written as TypeScript, with `legacy_tools` as in June 2023. `forced_choice`: a forced function, besides its name
    (None: free). `choice_none`: for `tool_choice: none`. `required_alone`: for `tool_choice: required` with one tool.

    `response_schema`: a schema for the response: alone, after a system message, with tools.
    `schema_assistant_text`: with such a schema, per assistant message with text: without a system message, with one.
    `schema_text`: how often the schema's text is read. `hidden_search`: the model searches the web, and what it finds
    is not counted.

    Of the Messages API: `frame`: per message. `call`: per tool call. `forced_tools`, `barred_tools`: in place of
    `tools` where the client requires a call, or forbids any (0: the same). `tool`: per tool. `thinking`: once where the
    model thinks, and `thinking_tools` if it has tools. `schema`: a schema for the response, besides its JSON, of which
    each token of the encoding costs `SCHEMA_RATE`, in tokens of the model. `schema_as_messages`: it costs that on
    /v1/chat/completions, too.
    """

    name: str
    base: int = 3
    no_system: int = 0
    message: int = 4
    name_overhead: int = 1
    assistant_text: int = 0
    call_turn: int = 0
    result: int = 8
    wraps_parallel: bool = True
    parallel_overhead: int = 12
    lists_results: bool = True
    unlisted_result: int = 8
    ascii_results: bool = False
    tools: int = 9
    tools_after_system: int = -4
    tools_separator: str = "\n"
    undescribed_tools: int = 0
    tool_json: float = 0.0
    legacy_tools: bool = False
    forced_choice: int | None = 6
    choice_none: int = 1
    required_alone: int = 0
    response_schema: tuple[int, int, int] = (12, 8, 5)
    schema_assistant_text: tuple[int, int] = (3, 4)
    schema_text: float = 1.0
    hidden_search: bool = False
    frame: float = 4.0
    call: float = 8.0
    forced_tools: int = 0
    barred_tools: int = 0
    tool: float = 0.0
    thinking: int = 0
    thinking_tools: int = 0
    schema: float = 93.0
    schema_as_messages: bool = False


CLASSIC = Recipe("classic")
ESCAPING = replace(CLASSIC, name="escaping", ascii_results=True)  # the models until July 2024
JUNE_2023 = replace(ESCAPING, name="june-2023", legacy_tools=True, result=5, forced_choice=3)
REASONING = replace(CLASSIC, name="reasoning", base=2, tools=10, forced_choice=None, choice_none=0)
CHANNELS = replace(REASONING, name="channels", assistant_text=2, call_turn=3, response_schema=(9, 8, 5))
# o4-mini since 2026: tools stand apart from the system message, and a turn with calls costs 3 more.
APART = replace(CHANNELS, name="apart", call_turn=6, tools_after_system=0, tools_separator="")
HARMONY = replace(
    CHANNELS,
    name="harmony",
    call_turn=6,
    wraps_parallel=False,
    tools=9 + 82,  # 82: the hidden instructions that come with tools
    tools_after_system=-1,
    tools_separator="\n\n",
    undescribed_tools=-1,
    response_schema=(9, 7, 8),
)
# gpt-5.4 and later wrap parallel calls again, but do not list results. Measured on recorded requests of /v1/responses,
# where everything else costs the same as here and a pair 1 token more; /v1/chat/completions has not been recorded.
WRAPPING = replace(
    HARMONY, name="wrapping", wraps_parallel=True, parallel_overhead=16, lists_results=False, unlisted_result=6
)
# gpt-5 wraps parallel calls on /v1/chat/completions, in 2 tokens less; on /v1/responses it does not.
WRAPPING_CHAT = replace(WRAPPING, name="wrapping-chat", parallel_overhead=14)
AUDIO = replace(CLASSIC, name="audio", tools=12, required_alone=1)
SEARCH = replace(CLASSIC, name="search", base=0, message=0, result=0, hidden_search=True)  # bare text without roles
RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        *(CLASSIC, ESCAPING, JUNE_2023, REASONING, CHANNELS, APART),
        *(HARMONY, WRAPPING, WRAPPING_CHAT, AUDIO, SEARCH),
    )
}


def approximate(
    ratio: float,
    prompt: float,
    message: float,
    tools: float,
    tool_json: float,
    schema_text: float = 1.0,
    no_system: float = 0.0,
) -> Recipe:
    """The recipe of models whose encoding is not public, from figures in the model's own tokens: `prompt` once,
    `message` for each message, `tools` once if there are tools, `tool_json` for one token of the encoding in a tool's
    JSON; `schema_text` is how often a response schema is read; `no_system` once if there is no system message. `ratio`
    is tokens of the model per token of the encoding. Equal figures give equal names."""
    base, message_tokens, result, tools_tokens, template = (
        round(tokens / ratio) for tokens in (prompt, message, message + 4, tools, no_system)
    )
    tool_json_rate = tool_json / ratio
    return Recipe(
        name=f"approximate-{base}-{message_tokens}-{result}-{tools_tokens}-{tool_json_rate:.6g}-{schema_text:g}-{template}",
        base=base,
        no_system=template,
        message=message_tokens,
        result=result,
        wraps_parallel=False,
        tools=tools_tokens,
        tools_after_system=0,
        tools_separator="",
        tool_json=tool_json_rate,
        forced_choice=None,
        choice_none=0,
        response_schema=(20, 20, 20),
        schema_assistant_text=(0, 0),
        schema_text=schema_text,
    )


def of_messages(
    ratio: float,
    prompt: float,
    message: float,
    call: float,
    tools: tuple[float, float, float],
    tool: float,
    tool_json: float,
    thinking: tuple[float, float],
    schema: float,
) -> Recipe:
    """The recipe of a model for bodies of the Messages API, from figures in the model's own tokens; see `Recipe`.
    `tools` are those of a free, a required and a forbidden call; `thinking` is what it costs, and what more if there
    are tools. Equal figures give equal names."""
    free, forced, barred, alone, with_tools = (round(tokens / ratio) for tokens in (*tools, *thinking))
    chosen = f"{free}-{forced}-{barred}-{tool:g}-{tool_json:g}"
    figures = f"{prompt:g}-{message:g}-{call:g}-{chosen}-{alone}-{with_tools}-{schema:g}"
    return Recipe(
        name=f"messages-{ratio:g}-{figures}",
        base=round(prompt / ratio),
        tools=free,
        tool_json=tool_json / ratio,
        frame=message / ratio,
        call=call / ratio,
        forced_tools=forced,
        barred_tools=barred,
        tool=tool / ratio,
        thinking=alone,
        thinking_tools=with_tools,
        schema=schema,
    )
