"""Model families: the encoding, message recipe and image formula of a model, from the rows of rules/families.toml.

Rows are parsed and matched here. The built-in file is read once, as package data; a user's file is read by `config`.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from proxy.model.limits import Correction, Margin
from proxy.model.names import LONGEST_NAME, name_of
from proxy.tokens.images import FORMULAS, Formula, Images
from proxy.tokens.ranks import SOURCES
from proxy.tokens.recipes import RECIPES, Recipe, approximate, of_messages

PACKAGE = Path(__file__).parents[1]
FILE = "families.toml"
CACHED_NAMES = 4096  # clients choose them
# A name with *, ? and [...]. The path before a model's name is removed, so no pattern with a slash ever matches.
PATTERN = re.compile(r"(?:[^\[\]/\s]|\[[^\[\]/\s]+\])+")

EXACT_MARGIN = Margin(100, 0.0)  # exact counts: the margin of seed 001
ASSUMED_MARGIN = Margin(100, 0.02)  # exact, except for an assumed part or a correction
OWN_TOKENIZER_MARGIN = Margin(150, 0.05)  # the user's tokenizer: texts are exact, templates and tools are not
LEARNED_MARGIN = Margin(150, 0.10)  # a learned ratio: prompts of one model differ from it by this much


@dataclass(frozen=True, slots=True)
class Family:
    """A row: the models that belong to it, and how a prompt for them is counted.

    `ratio` is tokens of the model for one token of the encoding; None if the encoding is the model's own, and counts
    are exact. `margin` is for its counts, `calibrated` for counts with a learned ratio. `second`
    is tokens of one second of audio. `inline`: a data URI of an image inside a text is an image. `own` is true if the
    encoding is a file of the user's: texts are counted with the model's own encoding, and only the overhead is
    estimated. `others`: other figures for some bodies (`proxy.tokens.formats.BodyFormat.figures`), by name. `hosts`:
    what an upstream's host must match, if that matters. `density`: by how many of the model's tokens less a text costs
    for each byte that its tokens of the encoding are longer than usual (`counting_key.USUAL_BYTES`).
    """

    name: str
    pattern: re.Pattern[str]
    recipe: Recipe
    images: Images
    encoding: str = "o200k_base"
    ratio: float | None = None
    margin: Margin = EXACT_MARGIN
    calibrated: Margin = LEARNED_MARGIN
    second: int = 32
    inline: bool = False
    own: bool = False
    others: Mapping[str, Family] = field(default_factory=dict)
    hosts: re.Pattern[str] | None = None
    density: float = 0.0

    @property
    def factor(self) -> float:
        """Tokens of the model for one token of the encoding, before anything is learned."""
        return self.ratio or 1.0

    @property
    def start(self) -> Correction | None:
        """The ratio and the margin that hold before anything is learned; None where counts are exact."""
        return None if self.ratio is None else Correction(self.ratio, self.margin.share)

    def of(self, figures: str) -> Family:
        """The family with these figures, where it has them."""
        return self.others.get(figures, self)


PLAIN_TOOLS = "plain tools"  # where a row's `tools` do not hold
MESSAGES_TABLE = "messages"  # those of a row's table of this name


class Families:
    """The rows in their order, for an upstream with a host in lower case; without one, rows of hosts hold for none.
    Immutable, apart from a cache of the rows by model name."""

    def __init__(self, rows: tuple[Family, ...], host: str = "") -> None:
        self.rows = rows
        self._here = tuple(family for family in rows if family.hosts is None or family.hosts.match(host))
        self._cached = lru_cache(maxsize=CACHED_NAMES)(self._search)

    def find(self, model: str) -> Family:
        """The first row with a pattern that matches the model's name, in lower case and without the path before it; the
        last row if none does. A cached lookup."""
        return self._cached(model if len(model) <= LONGEST_NAME else name_of(model))

    def at(self, host: str) -> Families:
        """The same rows, for an upstream with another host."""
        return Families(self.rows, host.lower())

    def _search(self, model: str) -> Family:
        name = model.lower().rsplit("/", 1)[-1].removeprefix("ft:")
        return next((family for family in self._here if family.pattern.match(name)), self._here[-1])


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields of every `[[family]]`; rules/families.toml describes them."""

    name: str
    models: tuple[str, ...]
    images: Formula
    encoding: str = "o200k_base"
    audio_per_second: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 32
    inline_images: bool = False
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name.strip() or not self.models:
            raise ValueError("name and models must not be empty")
        for key, patterns in (("models", self.models), ("hosts", self.hosts)):
            for pattern in patterns:
                if len(pattern) > LONGEST_NAME or not PATTERN.fullmatch(pattern):
                    problem = "is not a name with *, ? and [...], without spaces and slashes"
                    raise ValueError(f"{key}: {pattern!r} {problem}")
        _one_of("encoding", self.encoding, SOURCES)


class Exact(Row, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row whose encoding is the models' own. `tools`: what tools cost once on /v1/chat/completions, if not what the
    recipe says."""

    recipe: str
    tools: Annotated[int, msgspec.Meta(ge=0, le=900)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("recipe", self.recipe, RECIPES)


class Overhead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a prompt costs besides its texts, in the model's own tokens (`recipes.approximate`).

    The byte proof allows for 1,900 tokens that are not in the body: `prompt`, `tools` and `no_system` together stay
    below that.
    """

    prompt: Annotated[float, msgspec.Meta(ge=0, le=900)]
    message: Annotated[float, msgspec.Meta(ge=0, le=32)]
    tools: Annotated[float, msgspec.Meta(ge=0, le=900)]
    tool_json: Annotated[float, msgspec.Meta(ge=0, le=8)]
    schema_text: Annotated[float, msgspec.Meta(ge=1, le=3)] = 1
    no_system: Annotated[float, msgspec.Meta(ge=0, le=900)] = 0

    def __post_init__(self) -> None:
        if self.prompt + self.no_system > 900:
            raise ValueError("prompt and no_system together must be at most 900")


class MarginRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `margin` of a row: `base` tokens and a `share` of the prompt."""

    base: Annotated[int, msgspec.Meta(ge=0, le=100_000)]
    share: Annotated[float, msgspec.Meta(ge=0, lt=1)]


class MessagesRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The `messages` of a row: its figures for bodies of the Messages API, in the model's own tokens
    (`recipes.of_messages`); `schema` also for chat completions."""

    ratio: Annotated[float, msgspec.Meta(ge=0.25, le=8)]
    prompt: Annotated[float, msgspec.Meta(ge=0, le=900)]
    message: Annotated[float, msgspec.Meta(ge=0, le=32)]
    call: Annotated[float, msgspec.Meta(ge=0, le=90)]
    tools: Annotated[float, msgspec.Meta(ge=0, le=900)]
    forced_tools: Annotated[float, msgspec.Meta(ge=0, le=900)]
    tool: Annotated[float, msgspec.Meta(ge=-64, le=64)]
    tool_json: Annotated[float, msgspec.Meta(gt=0, le=8)]
    thinking: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0
    thinking_tools: Annotated[float, msgspec.Meta(ge=0, le=200)] = 0
    barred_tools: Annotated[float, msgspec.Meta(ge=0, le=900)] = 0
    schema: Annotated[float, msgspec.Meta(ge=0, le=300)] = 93
    density: Annotated[float, msgspec.Meta(ge=0, le=0.1)] = 0
    margin: MarginRow


class Approximate(Row, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row whose encoding is not public: counts are the encoding's times `ratio`."""

    ratio: Annotated[float, msgspec.Meta(ge=0.25, le=8)]
    overhead: Overhead
    margin: MarginRow
    messages: MessagesRow | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.messages is not None and self.overhead.prompt + self.overhead.no_system + self.messages.schema > 900:
            raise ValueError("prompt, no_system and messages.schema together must be at most 900")


def parse_family(row: Any) -> Family:
    """A `[[family]]` as TOML has it. Raises ValueError with what is wrong."""
    if isinstance(row, dict):
        if ("recipe" in row) == ("ratio" in row):
            raise ValueError("needs either a recipe or a ratio")
        if isinstance(images := row.get("images"), dict):
            _one_of("images.formula", images.get("formula"), FORMULAS)
        if "ratio" in row:
            return _approximate(msgspec.convert(row, Approximate))
    found = msgspec.convert(row, Exact)
    family = Family(
        name=found.name,
        pattern=_pattern(found.models),
        recipe=RECIPES[found.recipe],
        images=found.images,
        encoding=found.encoding,
        second=found.audio_per_second,
        inline=found.inline_images,
        hosts=_hosts(found),
    )
    if found.tools is None:
        return family
    recipe = replace(family.recipe, name=f"{found.recipe}-tools-{found.tools}", tools=found.tools)
    return replace(family, recipe=recipe, others={PLAIN_TOOLS: family})


def _approximate(found: Approximate) -> Family:
    overhead = found.overhead
    family = Family(
        name=found.name,
        pattern=_pattern(found.models),
        recipe=approximate(found.ratio, **msgspec.structs.asdict(overhead)),
        images=found.images,
        encoding=found.encoding,
        ratio=found.ratio,
        margin=Margin(found.margin.base, found.margin.share),
        calibrated=_calibrated(found.margin),
        second=found.audio_per_second,
        inline=found.inline_images,
        hosts=_hosts(found),
    )
    if found.messages is None:
        return family
    recipe, schema = family.recipe, found.messages.schema
    recipe = replace(recipe, name=f"{recipe.name}-{schema:g}", schema=schema, schema_as_messages=True)
    return replace(family, recipe=recipe, others={MESSAGES_TABLE: _of_messages(family, found.messages)})


def _of_messages(family: Family, row: MessagesRow) -> Family:
    tools, thinking = (row.tools, row.forced_tools, row.barred_tools), (row.thinking, row.thinking_tools)
    figures = (row.prompt, row.message, row.call, tools, row.tool, row.tool_json, thinking, row.schema)
    recipe = of_messages(row.ratio, *figures)
    margin = Margin(row.margin.base, row.margin.share)
    found = replace(family, recipe=recipe, ratio=row.ratio, margin=margin, calibrated=_calibrated(row.margin))
    return replace(found, density=row.density)


def _calibrated(row: MarginRow) -> Margin:
    """The margin of counts with a learned ratio: no wider than the row's."""
    return Margin(min(row.base, LEARNED_MARGIN.base), min(row.share, LEARNED_MARGIN.share))


def _pattern(patterns: Sequence[str]) -> re.Pattern[str]:
    """All patterns of a row as one expression. `fnmatch` writes an atomic group for each *, so nothing backtracks."""
    return re.compile("|".join(fnmatch.translate(pattern.lower()) for pattern in patterns))


def _hosts(row: Row) -> re.Pattern[str] | None:
    return _pattern(row.hosts) if row.hosts else None


def _one_of(field: str, value: Any, known: Collection[str]) -> None:
    if value not in known:
        raise ValueError(f"{field} is {value!r}, must be one of {', '.join(known)}")


def _built_in() -> Families:
    folder = next(f for f in (PACKAGE / "rules", PACKAGE.parent / "rules") if f.is_dir())  # installed; a source tree
    return Families(tuple(map(parse_family, tomllib.loads((folder / FILE).read_text("utf-8"))["family"])))


BUILT_IN = _built_in()


def counted_with(family: Family, encoding: str) -> Family:
    """The family with an encoding of the user's: its recipe's figures in the model's own tokens."""
    recipe, unit = family.recipe, family.factor
    figures = {name: round(getattr(recipe, name) * unit) for name in ("base", "message", "result", "tools")}
    recipe = replace(recipe, name=f"own-{recipe.name}*{unit:g}", **figures)
    return replace(family, recipe=recipe, encoding=encoding, ratio=1.0, calibrated=OWN_TOKENIZER_MARGIN, own=True)
