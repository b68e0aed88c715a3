"""Loads the rules: the built-in folder, and the user's folder merged over it, as one immutable, validated value.

The user's ladders and summary prompt replace the built-in files with the same names. The rows of the user's
windows.toml, refusals.toml, upstreams.toml, counters.toml, key_checks.toml, compactions.toml and families.toml come
before the built-in rows. A refusal, veto, upstream, counter, key check or compaction replaces the built-in row with its
name; a family does so at that row's position. A key of the user's tools.toml replaces the built-in key.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from proxy.config import clients, compactions, counters, key_checks, polyfills, tools
from proxy.config.callers import FILE as CALLERS
from proxy.config.callers import CallerRules, parse_callers, unknown_names
from proxy.config.clients import Clients
from proxy.config.families import merge_families, parse_families
from proxy.config.key_checks import KeyCheck
from proxy.config.ladders import (
    STEPS,
    LadderRule,
    LorebookRule,
    Params,
    override,
    parse_ladder,
    parse_ladder_rules,
    parse_lorebook_rules,
)
from proxy.config.lorebooks import PARSERS
from proxy.config.upstreams import DEFAULT as DEFAULT_UPSTREAM
from proxy.config.upstreams import FILE as UPSTREAMS
from proxy.config.upstreams import UpstreamRow, parse_upstreams
from proxy.config.window_rules import WindowRules, parse_window_rules
from proxy.errors import ConfigError, bad_header
from proxy.fit.compactions import Compaction
from proxy.fit.lore import Entry
from proxy.model.plan import Ladder
from proxy.model.structs import replace
from proxy.tokens.families import BUILT_IN, FILE, Families
from proxy.wire import refusals
from proxy.wire.counters import Counter

Row = TypeVar("Row")
Parse = Callable[[Mapping[str, Any]], tuple[tuple[Row, ...], list[str]]]
Merge = Callable[[tuple[Row, ...], tuple[Row, ...]], tuple[Row, ...]]

PACKAGE = Path(__file__).parents[1]
DEFAULT = "default"  # the ladder in ladder.toml
SUMMARY = "summary.txt"
FILES = frozenset(
    {
        *("ladder.toml", CALLERS, "windows.toml", FILE, "refusals.toml", tools.FILE),
        *(UPSTREAMS, counters.FILE, key_checks.FILE, clients.FILE, compactions.FILE, polyfills.FILE, SUMMARY),
    }
)
SUFFIX = ".toml"
ROW = re.compile(r"[a-z]+(?: row)? \d+[ :]")  # how problems of rows start: all others concern a whole file
NO_PARAMS: Params = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules, validated. `ladders` and `lorebooks` are by name; `ladder_rules` and `lorebook_rules` choose one by
    model. `summary` is the prompt for a summary; None if there is none. `callers`: rules by caller."""

    ladders: Mapping[str, Ladder]
    ladder_rules: tuple[LadderRule, ...] = ()
    windows: WindowRules = field(default_factory=WindowRules)
    refusals: refusals.Rules = field(default_factory=refusals.Rules)
    summary: str | None = None
    lorebooks: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    lorebook_rules: tuple[LorebookRule, ...] = ()
    families: Families = BUILT_IN
    callers: CallerRules = field(default_factory=CallerRules)
    upstreams: tuple[UpstreamRow, ...] = ()
    counters: tuple[Counter, ...] = ()
    key_checks: tuple[KeyCheck, ...] = ()
    clients: Clients = field(default_factory=Clients)
    polyfills: tuple[polyfills.Polyfill, ...] = ()
    compactions: tuple[Compaction, ...] = ()

    def ladder_for(self, model: str, requested: str | None = None, default: str = DEFAULT) -> Ladder:
        """The ladder that a request names, else that of the first `[[use]]` that matches its model, else the default.

        Raises `ClientError` (400) for an unknown name.
        """
        if requested and requested not in self.ladders:
            raise bad_header("x-plimsoll-ladder", f"must be one of {', '.join(sorted(self.ladders))}")
        name = model.lower()
        chosen = (rule.ladder for rule in self.ladder_rules if fnmatch.fnmatchcase(name, rule.model.lower()))
        return self.ladders[requested or next(chosen, default)]

    def lorebook_entries(self, model: str, requested: Sequence[str] = ()) -> tuple[Entry, ...]:
        """The entries of the lorebooks that a request names, else of every `[[lorebook]]` that matches its model.

        Raises `ClientError` (400) for an unknown name.
        """
        if not requested and not self.lorebook_rules:
            return ()
        if not set(requested) <= set(self.lorebooks):
            known = ", ".join(sorted(self.lorebooks)) or "none"
            raise bad_header("x-plimsoll-lorebook", f"names an unknown lorebook; known are {known}")
        name = model.lower()
        chosen = requested or [r.name for r in self.lorebook_rules if fnmatch.fnmatchcase(name, r.model.lower())]
        return tuple(entry for name in dict.fromkeys(chosen) for entry in self.lorebooks[name])


@dataclass(frozen=True, slots=True)
class Layer:
    """One rules folder, and its name in error messages."""

    folder: Path
    title: str


@dataclass(slots=True)
class RulesReader:
    """Reads the files of the layers (uppermost first) and collects their problems."""

    layers: Sequence[Layer]
    problems: list[str] = field(default_factory=list)

    def toml(self, layer: Layer, name: str) -> dict[str, Any]:
        """A layer's file, parsed; empty if the file is missing or invalid."""
        text = self.text(layer, name)
        try:
            return tomllib.loads(text or "")
        except tomllib.TOMLDecodeError as error:
            self.report(layer, name, [str(error)])
            return {}

    def text(self, layer: Layer, name: str) -> str | None:
        """A layer's file; None if it is missing or cannot be read."""
        try:
            return (layer.folder / name).read_text("utf-8") if (layer.folder / name).is_file() else None
        except (OSError, UnicodeDecodeError) as error:
            self.report(layer, name, [f"cannot be read: {error}"])
            return None

    def top(self, name: str) -> Layer | None:
        """The uppermost layer that has this file."""
        return next((layer for layer in self.layers if (layer.folder / name).is_file()), None)

    def report(self, layer: Layer, name: str, lines: Sequence[str]) -> None:
        """Records problems of a file, one per line."""
        for line in lines:
            self.problems.append(f"{layer.title}/{name}{', ' if ROW.match(line) else ': '}{line}")


def built_in() -> Path:
    """The folder of the built-in rules: in the package if it is installed, next to it in a source tree."""
    return next(folder for folder in (PACKAGE / "rules", PACKAGE.parent / "rules") if folder.is_dir())


def load_rules(
    folder: Path | None, *, default: str = DEFAULT, defaults: Params = NO_PARAMS, overrides: Params = NO_PARAMS
) -> Rules:
    """The built-in rules with the user's folder merged over them.

    `default` is the name of the default ladder. `defaults` are parameters of steps for rows that do not set them
    (`{"switch_model": {"to": [...]}}`); `overrides` replace those that rows set (`{"recall": {"budget": 9000}}`).

    Raises `ConfigError` with all problems, one per line: file, row and reason.
    """
    rules, problems = read_rules(folder, default, defaults, overrides=overrides)
    if problems:
        raise ConfigError("\n".join(problems))
    return rules


def check_rules(folder: Path | None) -> list[str]:
    """The problems of a rules folder, one per line; empty if it is valid. None stands for the built-in folder."""
    return read_rules(folder, DEFAULT, NO_PARAMS)[1]


def read_rules(
    folder: Path | None, default: str, defaults: Params, steps: str = STEPS, overrides: Params = NO_PARAMS
) -> tuple[Rules, list[str]]:
    """The valid part of the rules, and the problems of the rest. `steps` is the package of the steps."""
    base = Layer(built_in(), "rules")
    if folder is not None and not folder.is_dir():
        return Rules({}), [f"PLIMSOLL_RULES: no such folder: {folder}"]
    reader = RulesReader([base] if folder is None else [Layer(folder, str(folder)), base])
    _report_unknown_files(reader)
    lorebooks = _lorebooks(reader)
    written, signs = _conventions(reader)
    names = {tools.ARGUMENTS: {kind: written[kind] for kind in tools.KINDS if kind in written}}
    defaults = {**defaults, **{step: {**defaults.get(step, {}), **names} for step in tools.STEPS}}
    ladders, ladder_rules, lorebook_rules = _ladders(reader, defaults, steps, overrides, lorebooks)
    found = tools.conventions(written, signs)
    ladders = {name: replace(ladder, conventions=found) for name, ladder in ladders.items()}
    if default not in ladders:
        reader.problems.append(f"PLIMSOLL_LADDER is {default!r}, must be one of {', '.join(sorted(ladders))}")
    upstreams = _upstreams(reader)
    rules = Rules(
        ladders=MappingProxyType(ladders),
        ladder_rules=ladder_rules,
        windows=_windows(reader),
        refusals=_refusals(reader),
        summary=_summary(reader),
        lorebooks=MappingProxyType(lorebooks),
        lorebook_rules=lorebook_rules,
        families=_families(reader),
        callers=_callers(reader, ladders, upstreams),
        upstreams=upstreams,
        counters=_rows(reader, counters.FILE, counters.parse_counters, counters.merged),
        key_checks=_rows(reader, key_checks.FILE, key_checks.parse_key_checks, key_checks.merged),
        clients=_clients(reader),
        polyfills=_polyfills(reader),
        compactions=_rows(reader, compactions.FILE, compactions.parse_compactions, compactions.merged),
    )
    return rules, reader.problems


def _report_unknown_files(reader: RulesReader) -> None:
    """A file with an unknown name is most likely misspelt."""
    known = ", ".join(sorted(FILES))
    for layer in reader.layers[:-1]:
        for path in sorted([*layer.folder.glob("[!.]*"), *layer.folder.glob("[!.]*/[!.]*")]):
            name = path.relative_to(layer.folder)
            is_ladder = name.match("ladders/*") and path.suffix == SUFFIX
            if path.suffix.lower() == SUFFIX and not is_ladder and str(name) not in FILES:
                reader.report(layer, str(name), [f"unknown file; known are {known} and ladders/*.toml"])


def _ladders(
    reader: RulesReader, defaults: Params, steps: str, overrides: Params, lorebooks: Collection[str]
) -> tuple[dict[str, Ladder], tuple[LadderRule, ...], tuple[LorebookRule, ...]]:
    files = {DEFAULT: "ladder.toml"}
    for layer in reader.layers:
        for path in sorted((layer.folder / "ladders").glob("*.toml")):
            if path.stem == DEFAULT:
                reader.report(layer, f"ladders/{path.name}", [f"the ladder {DEFAULT!r} is in ladder.toml"])
            files.setdefault(path.stem, f"ladders/{path.name}")
    ladders: dict[str, Ladder] = {}
    ladder_rules: tuple[LadderRule, ...] = ()
    lorebook_rules: tuple[LorebookRule, ...] = ()
    for name, file in files.items():
        layer = reader.top(file) or reader.layers[-1]
        table = override(reader.toml(layer, file), overrides)
        ladders[name], problems = parse_ladder(name, table, defaults, steps)
        reader.report(layer, file, problems)
        if name == DEFAULT:
            ladder_rules, problems = parse_ladder_rules(table)
            problems += _unknown("ladder", [rule.ladder for rule in ladder_rules], files)
            lorebook_rules, more = parse_lorebook_rules(table)
            problems += more + _unknown("lorebook", [rule.name for rule in lorebook_rules], lorebooks)
        else:
            kinds = {"use": "ladder", "lorebook": "lorebook"}
            problems = [f"{k}: only ladder.toml may choose a {v} by model" for k, v in kinds.items() if k in table]
        reader.report(layer, file, problems)
    return ladders, ladder_rules, lorebook_rules


def _unknown(kind: str, names: Sequence[str], known: Collection[str]) -> list[str]:
    """One line per row that names an unknown ladder or lorebook."""
    row, names_known = "use" if kind == "ladder" else kind, ", ".join(sorted(known)) or "none"
    lines = enumerate(names, 1)
    return [f"{row} {i}: unknown {kind} {name!r}, known are {names_known}" for i, name in lines if name not in known]


def _lorebooks(reader: RulesReader) -> dict[str, tuple[Entry, ...]]:
    """The lorebooks, by the file's name without its suffix."""
    found: dict[str, tuple[Entry, ...]] = {}
    for layer in reader.layers:
        for path in sorted((layer.folder / "lorebooks").glob("[!.]*")):  # a ConfigMap adds files that start with a dot
            file = f"lorebooks/{path.name}"
            try:
                if path.stem in found:
                    raise ValueError(f"duplicate lorebook {path.stem!r}")
                found[path.stem] = _parse_lorebook(path, reader.text(layer, file))
            except ValueError as error:
                reader.report(layer, file, [str(error)])
    return found


def _parse_lorebook(path: Path, text: str | None) -> tuple[Entry, ...]:
    parse = PARSERS.get(path.suffix.lower())
    if parse is None or "," in path.stem:
        suffixes = ", ".join(f"*{suffix}" for suffix in PARSERS)
        raise ValueError(f"a lorebook must be a file {suffixes} without a comma in its name")
    return () if text is None else parse(text)


def _summary(reader: RulesReader) -> str | None:
    layer = reader.top(SUMMARY)
    text = None if layer is None else reader.text(layer, SUMMARY)
    if layer is not None and text is not None and not text.strip():
        reader.report(layer, SUMMARY, ["is empty"])
    return text


def _windows(reader: RulesReader) -> WindowRules:
    rules = WindowRules()
    for layer in reader.layers:
        rows, problems = parse_window_rules(reader.toml(layer, "windows.toml"), layer.folder)
        reader.report(layer, "windows.toml", problems)
        rules = rules.before(rows)
    return rules


def _callers(reader: RulesReader, ladders: Collection[str], upstreams: Sequence[UpstreamRow]) -> CallerRules:
    if (layer := reader.top(CALLERS)) is None:
        return CallerRules()
    rules, problems = parse_callers(reader.toml(layer, CALLERS))
    problems += unknown_names(rules, ladders, [DEFAULT_UPSTREAM, *(row.name for row in upstreams)])
    reader.report(layer, CALLERS, problems)
    return CallerRules() if problems else replace(rules, source=f"{layer.title}/{CALLERS}")


def _families(reader: RulesReader) -> Families:
    """The user's rows merged over the built-in ones, which `proxy.tokens` has loaded already."""
    families = BUILT_IN
    for layer in reader.layers[:-1]:
        rows, problems = parse_families(reader.toml(layer, FILE))
        reader.report(layer, FILE, problems)
        families = Families(merge_families(rows, families.rows)) if rows else families
    return families


def _upstreams(reader: RulesReader) -> tuple[UpstreamRow, ...]:
    """The rows of all layers; of two with the same name the upper one."""
    found: dict[str, UpstreamRow] = {}
    for layer in reader.layers:
        rows, problems = parse_upstreams(reader.toml(layer, UPSTREAMS), layer.folder)
        reader.report(layer, UPSTREAMS, problems)
        found = {**found, **{row.name: row for row in rows if row.name not in found}}
    return tuple(found.values())


def _rows(reader: RulesReader, file: str, parse: Parse[Row], merged: Merge[Row]) -> tuple[Row, ...]:
    """The rows of all layers, by the functions that a file's module has for it."""
    found: tuple[Row, ...] = ()
    for layer in reader.layers:
        rows, problems = parse(reader.toml(layer, file))
        reader.report(layer, file, problems)
        found = merged(found, rows)
    return found


def _clients(reader: RulesReader) -> Clients:
    found = Clients()
    for layer in reader.layers:
        rows, problems = clients.parse_clients(reader.toml(layer, clients.FILE))
        reader.report(layer, clients.FILE, problems)
        found = clients.merged(found, rows)
    reader.report(reader.top(clients.FILE) or reader.layers[-1], clients.FILE, clients.unknown_apis(found))
    return found


def _polyfills(reader: RulesReader) -> tuple[polyfills.Polyfill, ...]:
    found: tuple[polyfills.Polyfill, ...] = ()
    for layer in reader.layers:
        rows, problems = polyfills.parse_polyfills(reader.toml(layer, polyfills.FILE))
        reader.report(layer, polyfills.FILE, problems)
        found += rows
    return found


def _conventions(reader: RulesReader) -> tuple[dict[str, tuple[str, ...]], tools.SignsOf]:
    """How agents and their tools write, by kind, and the signs of orders and changes, by language. What the user's file
    gives comes first."""
    found: dict[str, tuple[str, ...]] = {}
    signs: tools.SignsOf = {}
    for layer in reader.layers:
        given, more, problems = tools.parse_tools(reader.toml(layer, tools.FILE))
        reader.report(layer, tools.FILE, problems)
        found = {**given, **found}
        signs = {of: {**more.get(of, {}), **signs.get(of, {})} for of in {**more, **signs}}
    return found, signs


def _refusals(reader: RulesReader) -> refusals.Rules:
    merged: dict[str, Any] = {}
    for layer in reader.layers:
        table = reader.toml(layer, "refusals.toml")
        try:
            refusals.compile_rules(table)  # each file alone first, so that an error names its file
        except ValueError as error:
            reader.report(layer, "refusals.toml", str(error).split("\n"))
        else:
            merged = _merge_refusals(merged, table)
    return refusals.compile_rules(merged)


def _merge_refusals(upper: Mapping[str, Any], lower: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of both tables, the upper ones first. Of two rows with the same name the upper one is kept."""
    merged = dict(upper)
    for key, rows in lower.items():
        names = {row["name"] for row in upper.get(key, []) if isinstance(row, dict)}
        merged[key] = [*upper.get(key, []), *(r for r in rows if not isinstance(r, dict) or r["name"] not in names)]
    return merged
