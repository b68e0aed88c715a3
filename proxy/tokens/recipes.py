"""Recipes: what the frame of a prompt costs besides its texts, in each of the formats that OpenAI's models read.

A row of rules/families.toml names a recipe of `RECIPES`, or has figures of its own for `approximate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the parts of a request become tokens; the defaults are those of OpenAI's chat models since November 2023.

    Figures are tokens of the encoding: `base` once a prompt, `message` once a message, `named` for a message's name
    besides the name itself, `spoken` for an assistant message of text, `turn` for one with tool calls besides
    `message` for each call, `result` for a tool's result. `wraps` says that calls made in parallel are one JSON
    object, `wrapped` what that costs besides its text, `lists` that their results are one list, `escapes` that the list
    is ASCII, `listed` what a result costs that is in no list. Of tools: `tools` once, `with_system` more
    where instructions stand before them after `joint`, `silent` where no tool has a description, `weight` a token of
    a schema's JSON (0: it is written as functions, `old` in the way of June 2023), `choice` for a forced function
    besides its name (None: free), `no_choice` where none may be called. `schema` is for a response's schema: alone,
    after instructions, with tools, and `schema_spoken` for each assistant message of text, without
    instructions and with. `searches` says that what a search finds is not counted.
    """

    name: str
    base: int = 3
    message: int = 4
    named: int = 1
    spoken: int = 0
    turn: int = 0
    result: int = 8
    wraps: bool = True
    wrapped: int = 12
    lists: bool = True
    listed: int = 8
    escapes: bool = False
    tools: int = 9
    with_system: int = -4
    joint: str = "\n"
    silent: int = 0
    weight: float = 0.0
    old: bool = False
    choice: int | None = 6
    no_choice: int = 1
    schema: tuple[int, int, int] = (12, 8, 5)
    schema_spoken: tuple[int, int] = (3, 4)
    searches: bool = False


CLASSIC = Recipe("classic")
ESCAPING = replace(CLASSIC, name="escaping", escapes=True)  # the models until July 2024
JUNE_2023 = replace(ESCAPING, name="june-2023", old=True, result=5, choice=3)
REASONING = replace(CLASSIC, name="reasoning", base=2, tools=10, choice=None, no_choice=0)
CHANNELS = replace(REASONING, name="channels", spoken=2, turn=3)
HARMONY = replace(
    CHANNELS,
    name="harmony",
    turn=6,
    wraps=False,
    tools=9 + 82,  # 82: the hidden instructions that come with tools
    with_system=-1,
    joint="\n\n",
    silent=-1,
    schema=(8, 7, 8),
)
# gpt-5.4 and later wrap parallel calls again, but list no results. As recorded of /v1/responses, where all else costs
# what it does here, and a pair 1 more; of /v1/chat/completions there is no recording.
WRAPPING = replace(HARMONY, name="wrapping", wraps=True, wrapped=16, lists=False, listed=6)
AUDIO = replace(CLASSIC, name="audio", base=2)
SEARCH = replace(CLASSIC, name="search", base=0, message=0, result=0, searches=True)  # bare text, whatever the roles
RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (CLASSIC, ESCAPING, JUNE_2023, REASONING, CHANNELS, HARMONY, WRAPPING, AUDIO, SEARCH)
}


def approximate(ratio: float, prompt: float, message: float, tools: float, tool_json: float) -> Recipe:
    """The recipe of models whose encoding is not public, from figures in the model's own tokens: `prompt` once,
    `message` for each message, `tools` once where there are tools, `tool_json` for one token of the encoding in a
    tool's JSON. `ratio` is tokens of the model for one of the encoding. Equal figures give equal names."""
    base, each, result, once = (round(tokens / ratio) for tokens in (prompt, message, message + 4, tools))
    weight = tool_json / ratio
    return Recipe(
        name=f"approximate-{base}-{each}-{result}-{once}-{weight:.6g}",
        base=base,
        message=each,
        result=result,
        wraps=False,
        tools=once,
        with_system=0,
        joint="",
        weight=weight,
        choice=None,
        no_choice=0,
        schema=(20, 20, 20),
        schema_spoken=(0, 0),
    )
