"""Families of models: which encoding, recipe and image formula a model counts with, as rows of a table."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from proxy.model.limits import Margin
from proxy.model.names import name_of
from proxy.tokens.images import Crops, Flat, Images, Patches, Tiles
from proxy.tokens.recipes import (
    AUDIO,
    CHANNELS,
    CLASSIC,
    ESCAPING,
    HARMONY,
    JUNE_2023,
    REASONING,
    SEARCH,
    WRAPPING,
    Recipe,
)

SURE = Margin(100, 0.0)  # exact: the gap of seed 001
ASSUMED = Margin(100, 0.02)  # an exact count but for a part that is assumed, or a correction
FRAMED = Margin(150, 0.05)  # the user's own tokenizer: texts are exact, what templates and tools add is not
LEARNED = Margin(150, 0.10)  # a ratio that usage taught: prompts of the same models differ from it by so much


@dataclass(frozen=True, slots=True)
class Family:
    """A row: the names that belong to it, and how a prompt for them is counted.

    `ratio` is how many of its own tokens one of the encoding's is worth; None where the encoding is its own, and
    counts are exact. `margin` is the gap that its counts need, `calibrated` the gap once the ratio has been learned.
    `second` is what a second of sound costs. `own` says that the encoding is a file of the user's: texts are counted
    with the model's own, only the frame around them is known from usage.
    """

    name: str
    pattern: re.Pattern[str]
    recipe: Recipe
    images: Images
    encoding: str = "o200k_base"
    ratio: float | None = None
    margin: Margin = SURE
    calibrated: Margin = LEARNED
    second: int = 32
    own: bool = False


def _exact(name: str, pattern: str, recipe: Recipe, images: Images, encoding: str = "o200k_base") -> Family:
    """A row of models whose encoding is public."""
    return Family(name, re.compile(pattern), recipe, images, encoding, second=10)


def _rough(
    name: str,
    pattern: str,
    ratio: float,
    *,
    tool: float,
    tools: int,
    message: float,
    base: int,
    margin: tuple[int, float],
    images: Images | None = None,
) -> Family:
    """A row of models whose encoding is not public, fitted to usage: `ratio` tokens for one of o200k, `tool` for one
    of a tool's JSON, `tools` once, `message` for each and `base` once. `margin` leaves at most 2 % of what was
    recorded above it; all in the models' own tokens."""
    recipe = Recipe(
        name=f"rough-{name}",
        base=round(base / ratio),
        message=round(message / ratio),
        result=round((message + 4) / ratio),
        wraps=False,
        tools=round(tools / ratio),
        with_system=0,
        joint="",
        weight=tool / ratio,
        choice=None,
        no_choice=0,
        schema=(20, 20, 20),
        schema_spoken=(0, 0),
    )
    return Family(name, re.compile(pattern), recipe, images or SQUARES, ratio=ratio, margin=Margin(*margin))


TILES = Tiles(85, 170)
SQUARES = Patches(28, 2600, more=20)  # Qwen's grid, and what stands around it in Mistral's
GROK = Patches(28, 2600, least=256)
CLAUDE = Patches(28, 1568, more=3)
CLAUDE_LARGE = Patches(28, 4784, more=3)
FAMILIES: tuple[Family, ...] = (
    _exact("search", r"^gpt-.*search", SEARCH, TILES),
    _exact("audio", r"^gpt-(audio|realtime|.*-(audio|realtime))", AUDIO, TILES),
    _exact("gpt-5-chat", r"^gpt-5-chat", CLASSIC, Tiles(70, 140)),
    _exact("gpt-5-codex-mini", r"^gpt-5\.1-codex-mini", HARMONY, Patches(32, 1536, 1.62)),
    _exact("gpt-5-nano", r"^gpt-5-nano", HARMONY, Patches(32, 1536, 1.5)),
    _exact("gpt-5-mini", r"^gpt-5-mini", HARMONY, Patches(32, 1536, 1.2)),
    _exact("gpt-5.4", r"^gpt-(5\.([4-9]|\d\d)|[6-9])", WRAPPING, Patches(32, 2500, 1.2)),
    _exact("gpt-5", r"^gpt-5", HARMONY, Tiles(70, 140)),
    _exact("codex", r"^codex", CHANNELS, Patches(32, 1536, 1.72)),
    _exact("o1-mini", r"^o1-(mini|preview)", CLASSIC, Tiles(75, 150)),
    _exact("o1", r"^(o1|o3-mini)", REASONING, Tiles(75, 150)),
    _exact("o4-mini", r"^o4-mini", CHANNELS, Patches(32, 1536, 1.72)),
    _exact("o3", r"^o\d", CHANNELS, Tiles(75, 150)),
    _exact("gpt-4o-mini", r"^gpt-4o-mini", ESCAPING, Tiles(2833, 5667)),
    _exact("gpt-4.1-mini", r"^gpt-4\.1-mini", CLASSIC, Patches(32, 1536, 1.62)),
    _exact("gpt-4.1-nano", r"^gpt-4\.1-nano", CLASSIC, Patches(32, 1536, 2.46)),
    _exact("gpt-4o-2024-05-13", r"^gpt-4o-2024-05", ESCAPING, TILES),
    _exact("gpt-4o", r"^(gpt-4(o|\.\d)|chatgpt-4o)", CLASSIC, TILES),
    _exact("gpt-4-0613", r"^gpt-(4(-32k)?(-0[36]1[34])?$|3\.?5-turbo(-16k)?-0613)", JUNE_2023, TILES, "cl100k_base"),
    _exact("gpt-4-turbo", r"^gpt-(4-|4$|3\.?5)", ESCAPING, TILES, "cl100k_base"),
    _rough("gpt-oss", r"gpt-oss", 1.04, tool=0.75, tools=30, message=7, base=62, margin=(100, 0.10)),
    _rough(
        "claude-opus-4-7",
        r"claude-opus-4[.-]([7-9]|\d\d\b)",
        1.5,
        tool=2.2,
        tools=640,
        message=3,
        base=10,
        margin=(200, 0.20),
        images=CLAUDE_LARGE,
    ),
    _rough(
        "claude-5",
        r"claude-((sonnet|opus|haiku)-)?[5-9]",
        1.45,
        tool=2.4,
        tools=350,
        message=3,
        base=8,
        margin=(200, 0.20),
        images=CLAUDE_LARGE,
    ),
    _rough(
        "claude-4-6",
        r"claude-((sonnet|opus|haiku)-)?4[.-]6",
        1.12,
        tool=1.2,
        tools=600,
        message=3,
        base=6,
        margin=(150, 0.15),
        images=CLAUDE,
    ),
    _rough(
        "claude-4-5",
        r"claude-((sonnet|opus|haiku)-)?4[.-]5",
        1.18,
        tool=1.65,
        tools=540,
        message=3,
        base=6,
        margin=(150, 0.15),
        images=CLAUDE,
    ),
    _rough("claude", r"claude", 1.18, tool=1.3, tools=345, message=3, base=6, margin=(150, 0.15), images=CLAUDE),
    _rough(
        "gemini-3", r"gemini-[3-9]", 1.12, tool=0.5, tools=0, message=0, base=4, margin=(100, 0.15), images=Flat(1089)
    ),
    _rough("gemini", r"gem(ini|ma)", 1.12, tool=0.5, tools=0, message=1, base=2, margin=(100, 0.15), images=Crops()),
    _rough("deepseek", r"deepseek|mai-ds", 1.05, tool=1.4, tools=215, message=2.5, base=2, margin=(150, 0.10)),
    _rough("qwen", r"qw(en|q)", 1.02, tool=1.5, tools=120, message=7, base=2, margin=(1000, 0.12)),
    # Their templates put instructions before a prompt that has none, hosts put their own before any: 540 to 1,570.
    _rough(
        "mistral-open",
        r"mistral-small-?3|devstral-small-2505",
        1.04,
        tool=1.6,
        tools=10,
        message=3.5,
        base=4,
        margin=(1600, 0.12),
    ),
    _rough(
        "mistral",
        r"mi[sx]tral|(code|dev|magi|vox|pix)[a-z]{0,16}stral|nemo",
        1.04,
        tool=1.6,
        tools=10,
        message=3.5,
        base=4,
        margin=(1000, 0.12),
    ),
    _rough("grok-4-1", r"grok-4[.-]1", 1.12, tool=1.1, tools=130, message=7, base=12, margin=(250, 0.25), images=GROK),
    _rough(
        "grok-fast",
        r"grok-4.{0,64}fast",
        1.12,
        tool=1.1,
        tools=128,
        message=7,
        base=165,
        margin=(250, 0.25),
        images=GROK,
    ),
    _rough("grok-code", r"grok-code", 1.12, tool=1.1, tools=120, message=7, base=205, margin=(250, 0.25), images=GROK),
    _rough("grok-4", r"grok-[4-9]", 1.12, tool=1.1, tools=134, message=7, base=690, margin=(250, 0.25), images=GROK),
    _rough("grok-2", r"grok-2", 1.12, tool=1.1, tools=75, message=7, base=4, margin=(250, 0.25), images=GROK),
    _rough("grok", r"grok", 1.12, tool=1.1, tools=205, message=7, base=4, margin=(250, 0.25), images=GROK),
    _rough("glm", r"glm", 1.12, tool=1.36, tools=95, message=4.7, base=2, margin=(100, 0.12)),
    _rough("llama-guard", r"llama-?guard", 1.1, tool=1.2, tools=170, message=6, base=200, margin=(200, 0.25)),
    _rough("llama-4", r"llama-?4", 1.1, tool=1.2, tools=490, message=6, base=8, margin=(300, 0.25)),
    _rough("llama", r"llama|hermes", 1.03, tool=1.4, tools=170, message=6, base=30, margin=(300, 0.25)),
    _rough("kimi", r"kimi", 1.12, tool=1.2, tools=30, message=2, base=24, margin=(100, 0.12)),
    _rough("minimax", r"minimax", 1.05, tool=1.3, tools=20, message=2, base=40, margin=(700, 0.15)),
    _rough("sonar", r"sonar", 1.02, tool=1.2, tools=50, message=0, base=2, margin=(100, 0.10)),
    _rough("nova", r"nova", 1.25, tool=1.4, tools=570, message=5, base=10, margin=(200, 0.20)),
    _rough("command", r"command|cohere", 1.3, tool=1.5, tools=600, message=5, base=500, margin=(1300, 0.20)),
    _rough("other", r"", 1.2, tool=1.5, tools=300, message=6, base=10, margin=(500, 0.25)),
)


def family_of(model: str) -> Family:
    """The first row whose pattern is found in the model's name, without its case and whatever stands before it."""
    name = name_of(model).lower().rsplit("/", 1)[-1].removeprefix("ft:")
    return next(family for family in FAMILIES if family.pattern.search(name))


def counted_with(family: Family, encoding: str) -> Family:
    """The family with an encoding of the user's: its recipe's figures in the model's own tokens."""
    recipe, unit = family.recipe, family.ratio or 1.0
    figures = {name: round(getattr(recipe, name) * unit) for name in ("base", "message", "result", "tools")}
    recipe = replace(recipe, name=f"own-{recipe.name}", **figures)
    return replace(family, recipe=recipe, encoding=encoding, ratio=1.0, calibrated=FRAMED, own=True)
