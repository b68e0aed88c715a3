"""The rules folder as one immutable, checked value: the built-in files, and the user's laid over them.

A ladder or the summary prompt of the user's replaces the built-in file of that name. Rows of the user's windows.toml,
refusals.toml and families.toml come before the built-in ones; a refusal or veto replaces the built-in row of its name,
a family does so in that row's place.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from proxy.config.families import laid_over, parse_families
from proxy.config.ladders import STEPS, Lore, Params, Use, impose, parse_ladder, parse_lores, parse_uses
from proxy.config.lorebooks import PARSERS
from proxy.config.window_rules import Sheet, parse_sheet
from proxy.errors import ConfigError, bad_header
from proxy.fit.lore import Entry
from proxy.model.plan import Ladder
from proxy.tokens.families import BUILT_IN, FILE, Families
from proxy.wire import refusals

PACKAGE = Path(__file__).parents[1]
DEFAULT = "default"  # the ladder in ladder.toml
FILES = frozenset({"ladder.toml", "windows.toml", FILE, "refusals.toml", "summary.txt"})
# How lines about rows begin.
ROWS: tuple[str, ...] = ("step ", "use ", "lorebook ", "window ", "gap ", "beside ", "limit ", "family ", "entry ")
ROWS += ("refusal row ", "veto row ")
NOTHING: Params = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules, checked: ladders by name, which of them a model takes, rows of windows, refusals' wordings, the
    prompt that asks for a summary (None where there is none), lorebooks by name, which of them a model takes, and model
    families."""

    ladders: Mapping[str, Ladder]
    uses: tuple[Use, ...] = ()
    windows: Sheet = field(default_factory=Sheet)
    refusals: refusals.Rules = field(default_factory=refusals.Rules)
    summary: str | None = None
    lorebooks: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    lores: tuple[Lore, ...] = ()
    families: Families = BUILT_IN

    def ladder_for(self, model: str, wanted: str | None = None, default: str = DEFAULT) -> Ladder:
        """The ladder that a request wants, else that of the first `[[use]]` which matches its model, else the default.

        Raises ClientError where it wants one that there is not.
        """
        if wanted and wanted not in self.ladders:
            raise bad_header("x-plimsoll-ladder", f"names no ladder; there are {', '.join(sorted(self.ladders))}")
        name = model.lower()
        chosen = (use.ladder for use in self.uses if fnmatch.fnmatchcase(name, use.model.lower()))
        return self.ladders[wanted or next(chosen, default)]

    def lore_for(self, model: str, wanted: Sequence[str] = ()) -> tuple[Entry, ...]:
        """The entries of the lorebooks that a request wants, else of every `[[lorebook]]` which matches its model.

        Raises ClientError where it wants one that there is not.
        """
        if not wanted and not self.lores:
            return ()
        if not set(wanted) <= set(self.lorebooks):
            known = ", ".join(sorted(self.lorebooks)) or "none"
            raise bad_header("x-plimsoll-lorebook", f"names a lorebook that there is not; there are {known}")
        name = model.lower()
        chosen = wanted or [lore.name for lore in self.lores if fnmatch.fnmatchcase(name, lore.model.lower())]
        return tuple(entry for name in dict.fromkeys(chosen) for entry in self.lorebooks[name])


@dataclass(frozen=True, slots=True)
class Layer:
    """One rules folder and how errors call it."""

    folder: Path
    title: str


@dataclass(slots=True)
class Reading:
    """The layers, uppermost first, and the problems met while reading them."""

    layers: Sequence[Layer]
    problems: list[str] = field(default_factory=list)

    def toml(self, layer: Layer, name: str) -> dict[str, Any]:
        """A layer's file as TOML has it; nothing where it has none, or none that can be read."""
        text = self.text(layer, name)
        try:
            return tomllib.loads(text or "")
        except tomllib.TOMLDecodeError as error:
            self.report(layer, name, [str(error)])
            return {}

    def text(self, layer: Layer, name: str) -> str | None:
        """A layer's file, if it has it."""
        try:
            return (layer.folder / name).read_text("utf-8") if (layer.folder / name).is_file() else None
        except (OSError, UnicodeDecodeError) as error:
            self.report(layer, name, [f"cannot be read: {error}"])
            return None

    def top(self, name: str) -> Layer | None:
        """The uppermost layer that has a file of this name."""
        return next((layer for layer in self.layers if (layer.folder / name).is_file()), None)

    def report(self, layer: Layer, name: str, lines: Sequence[str]) -> None:
        """Note what is wrong with a file, a line each: by its row where it is a row's fault."""
        for line in lines:
            self.problems.append(f"{layer.title}/{name}{', ' if line.startswith(ROWS) else ': '}{line}")


def built_in() -> Path:
    """The folder of the built-in rules: inside the package where it is installed, beside it in a source tree."""
    return next(folder for folder in (PACKAGE / "rules", PACKAGE.parent / "rules") if folder.is_dir())


def load_rules(
    folder: Path | None, *, default: str = DEFAULT, given: Params = NOTHING, imposed: Params = NOTHING
) -> Rules:
    """The rules, with the user's folder laid over the built-in ones. `default` must be a ladder that there is; `given`
    are steps' parameters for rows that do not set them (`{"switch_model": {"to": [...]}}`), `imposed` those for rows
    that do (`{"recall": {"budget": 9000}}`).

    Raises ConfigError with every problem: file, row and reason, one a line.
    """
    rules, problems = read_rules(folder, default, given, imposed=imposed)
    if problems:
        raise ConfigError("\n".join(problems))
    return rules


def check_rules(folder: Path | None) -> list[str]:
    """All that is wrong with a rules folder, a line each."""
    return read_rules(folder, DEFAULT, NOTHING)[1]


def read_rules(
    folder: Path | None, default: str, given: Params, steps: str = STEPS, imposed: Params = NOTHING
) -> tuple[Rules, list[str]]:
    """The rules as far as they can be understood, and all that is wrong with them."""
    base = Layer(built_in(), "rules")
    if folder is not None and not folder.is_dir():
        return Rules({}), [f"PLIMSOLL_RULES: there is no folder {folder}"]
    reading = Reading([base] if folder is None else [Layer(folder, str(folder)), base])
    _strangers(reading)
    lorebooks = _lorebooks(reading)
    ladders, uses, lores = _ladders(reading, given, steps, imposed, lorebooks)
    if default not in ladders:
        reading.problems.append(f"PLIMSOLL_LADDER is {default!r}, there are {', '.join(sorted(ladders))}")
    summary = reading.top("summary.txt")
    rules = Rules(
        ladders=MappingProxyType(ladders),
        uses=uses,
        windows=_windows(reading),
        refusals=_refusals(reading),
        summary=reading.text(summary, "summary.txt") if summary else None,
        lorebooks=MappingProxyType(lorebooks),
        lores=lores,
        families=_families(reading),
    )
    return rules, reading.problems


def _strangers(reading: Reading) -> None:
    """A file that nothing reads is most likely a misspelt one."""
    known = ", ".join(sorted(FILES))
    for layer in reading.layers[:-1]:
        for path in sorted(layer.folder.glob("*.toml")):
            if path.name not in FILES:
                reading.report(layer, path.name, [f"nothing reads this file; there are {known} and ladders/*.toml"])


def _ladders(
    reading: Reading, given: Params, steps: str, imposed: Params, lorebooks: Collection[str]
) -> tuple[dict[str, Ladder], tuple[Use, ...], tuple[Lore, ...]]:
    files = {DEFAULT: "ladder.toml"}
    for layer in reading.layers:
        for path in sorted((layer.folder / "ladders").glob("*.toml")):
            if path.stem == DEFAULT:
                reading.report(layer, f"ladders/{path.name}", [f"the ladder {DEFAULT!r} stands in ladder.toml"])
            files.setdefault(path.stem, f"ladders/{path.name}")
    ladders: dict[str, Ladder] = {}
    uses: tuple[Use, ...] = ()
    lores: tuple[Lore, ...] = ()
    for name, file in files.items():
        layer = reading.top(file) or reading.layers[-1]
        table = impose(reading.toml(layer, file), imposed)
        ladders[name], problems = parse_ladder(name, table, given, steps)
        reading.report(layer, file, problems)
        if name == DEFAULT:
            uses, problems = parse_uses(table)
            problems += _absent("ladder", [use.ladder for use in uses], files)
            lores, more = parse_lores(table)
            problems += more + _absent("lorebook", [lore.name for lore in lores], lorebooks)
        else:
            kinds = {"use": "ladder", "lorebook": "lorebook"}
            problems = [f"{k}: only ladder.toml says which {v} a model takes" for k, v in kinds.items() if k in table]
        reading.report(layer, file, problems)
    return ladders, uses, lores


def _absent(kind: str, names: Sequence[str], known: Collection[str]) -> list[str]:
    """A line for each row that names a ladder or a lorebook that there is not."""
    row, there_are = "use" if kind == "ladder" else kind, ", ".join(sorted(known)) or "none"
    lines = enumerate(names, 1)
    return [f"{row} {i}: there is no {kind} {name!r}, there are {there_are}" for i, name in lines if name not in known]


def _lorebooks(reading: Reading) -> dict[str, tuple[Entry, ...]]:
    """The lorebooks by name: a file's name without its ending."""
    found: dict[str, tuple[Entry, ...]] = {}
    for layer in reading.layers:
        for path in sorted((layer.folder / "lorebooks").glob("[!.]*")):  # a ConfigMap adds names that begin with a dot
            file = f"lorebooks/{path.name}"
            try:
                if path.stem in found:
                    raise ValueError(f"there is another lorebook {path.stem!r}")
                found[path.stem] = _parsed(path, reading.text(layer, file))
            except ValueError as error:
                reading.report(layer, file, [str(error)])
    return found


def _parsed(path: Path, text: str | None) -> tuple[Entry, ...]:
    parse = PARSERS.get(path.suffix.lower())
    if parse is None or "," in path.stem:
        raise ValueError(f"a lorebook is a file {', '.join(f'*{end}' for end in PARSERS)} with no comma in its name")
    return () if text is None else parse(text)


def _windows(reading: Reading) -> Sheet:
    sheet = Sheet()
    for layer in reading.layers:
        rows, problems = parse_sheet(reading.toml(layer, "windows.toml"), layer.folder)
        reading.report(layer, "windows.toml", problems)
        sheet = sheet.over(rows)
    return sheet


def _families(reading: Reading) -> Families:
    """The user's rows over the built-in ones, which `tokens` has read already."""
    families = BUILT_IN
    for layer in reading.layers[:-1]:
        rows, problems = parse_families(reading.toml(layer, FILE))
        reading.report(layer, FILE, problems)
        families = Families(laid_over(rows, families.rows)) if rows else families
    return families


def _refusals(reading: Reading) -> refusals.Rules:
    merged: dict[str, Any] = {}
    for layer in reading.layers:
        table = reading.toml(layer, "refusals.toml")
        try:
            refusals.compile_rules(table)  # alone first: so that an error names the file it is in
        except ValueError as error:
            reading.report(layer, "refusals.toml", str(error).split("\n"))
        else:
            merged = _under(merged, table)
    return refusals.compile_rules(merged)


def _under(upper: Mapping[str, Any], lower: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables of refusals: the upper one's rows first, and of two rows of one name the upper one's alone."""
    merged = dict(upper)
    for key, rows in lower.items():
        taken = {row["name"] for row in upper.get(key, []) if isinstance(row, dict)}
        merged[key] = [*upper.get(key, []), *(r for r in rows if not isinstance(r, dict) or r["name"] not in taken)]
    return merged
