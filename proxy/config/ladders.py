"""Parses a ladder's TOML into a `Ladder` and validates each row against its step. It reads no file."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Annotated, Any

import msgspec

from proxy.config.rows import as_rows, converted, error_text, parse_rows
from proxy.config.window_rules import check_name
from proxy.model.limits import DEFAULT_RESERVE, FLOOR
from proxy.model.plan import Ladder, LadderStep

STEPS = "proxy.fit.steps"  # the package of the steps; a step's name is the name of its module
TABLES = ("step", "use", "lorebook")  # the arrays of tables in a ladder's file
Params = Mapping[str, Mapping[str, Any]]  # parameters by name, by the name of their step
CHOICES = {"on_unfit": ("reject", "forward"), "unknown": ("learn", "assume")}


class LadderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The top-level fields of a ladder's file. `default_reserve` and `floor` are in tokens."""

    on_unfit: str = "reject"
    unknown: str = "learn"
    default_reserve: Annotated[int, msgspec.Meta(ge=0)] = DEFAULT_RESERVE
    floor: Annotated[int, msgspec.Meta(ge=1)] = FLOOR

    def __post_init__(self) -> None:
        for key, allowed in CHOICES.items():
            if (value := getattr(self, key)) not in allowed:
                raise ValueError(f"{key} is {value!r}, must be one of {', '.join(allowed)}")


class StepRow(msgspec.Struct, frozen=True):
    """The fields of every `[[step]]`. All other fields of a row are parameters of its step."""

    name: str
    at: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class LadderRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[use]]`: the ladder of the models whose names match the pattern `model`."""

    model: str
    ladder: str

    def __post_init__(self) -> None:
        check_name(self.model)


class LorebookRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[lorebook]]`: a lorebook of the models whose names match the pattern `model`."""

    model: str
    name: str

    def __post_init__(self) -> None:
        check_name(self.model)


def parse_ladder(
    name: str, table: Mapping[str, Any], defaults: Params, package: str = STEPS
) -> tuple[Ladder, list[str]]:
    """The ladder of a parsed TOML file, and its problems, one line each. Invalid rows are left out.

    `defaults` are parameters for rows that do not set them, such as those from the environment.
    """
    problems: list[str] = []
    settings = LadderSettings()
    try:
        settings = converted({key: value for key, value in table.items() if key not in TABLES}, LadderSettings)
    except ValueError as error:
        problems.append(error_text(error))
    steps, wrong = parse_rows(table, "step", lambda row: _ladder_step(row, defaults, package))
    problems += wrong
    return Ladder(name, steps, settings.on_unfit, settings.unknown, settings.default_reserve, settings.floor), problems


def _ladder_step(row: Any, defaults: Params, package: str) -> LadderStep:
    fields = msgspec.convert(row, StepRow)
    step = _step(fields.name, package)
    own = {key: value for key, value in row.items() if key != "name" and (key != "at" or hasattr(step.Params, "at"))}
    params = _params(step.Params, {**defaults.get(fields.name, {}), **own})
    apply = functools.partial(step.apply, params=params)
    if hasattr(step, "idle") and step.idle(params):
        return LadderStep(fields.name, apply)  # without `at`: it must not start planning for a step that does nothing
    models = tuple(getattr(params, "to", ()))
    return LadderStep(
        fields.name, apply, fields.at, bool(getattr(step, "OF_ORIGINAL", False)), models, _ahead(step, params)
    )


def parameter(ladder_step: LadderStep, name: str) -> Any:
    """The value of a step's parameter in a parsed ladder; None if the step has no such parameter."""
    params = getattr(ladder_step.apply, "keywords", {}).get("params")
    return getattr(params, name, None)


def _ahead(step: ModuleType, params: Any) -> LadderStep | None:
    """The part of a step that requests facts before the step is due (`ready`); None if it has none."""
    if not hasattr(step, "ahead") or params.ready is None:
        return None
    return LadderStep(step.__name__.rpartition(".")[2], functools.partial(step.ahead, params=params), params.ready)


def _step(name: str, package: str) -> ModuleType:
    known = known_steps(package)
    if name not in known:
        raise ValueError(f"unknown step, must be one of {', '.join(known)}")
    return importlib.import_module(f"{package}.{name}")


@functools.cache
def known_steps(package: str = STEPS) -> tuple[str, ...]:
    """The names of all steps, sorted."""
    folders = importlib.import_module(package).__path__
    return tuple(sorted(module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_")))


def _params(kind: Any, values: Mapping[str, Any]) -> Any:
    _check_names(kind, values)
    return msgspec.convert(values, kind)


def _check_names(kind: Any, values: Mapping[str, Any]) -> None:
    """Raises `ValueError` for an unknown parameter, or an unknown key of a parameter that is a table."""
    known = {field.name: field.default for field in dataclasses.fields(kind)}
    if unknown := [key for key in values if key not in known]:
        raise ValueError(f"{', '.join(unknown)}: unknown parameter, known are {', '.join(known) or 'none'}")
    for key, value in values.items():
        if isinstance(value, Mapping) and dataclasses.is_dataclass(known[key]):
            _check_names(known[key], value)


def override(table: Mapping[str, Any], overrides: Params) -> dict[str, Any]:
    """A ladder's TOML with other values for parameters that its rows set. Parameters that a row does not set are not
    added."""
    rows = as_rows(table.get("step", []))
    return {**table, "step": [_overridden(row, overrides) for row in rows]}


def _overridden(row: Any, overrides: Params) -> Any:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return row
    return {**row, **{key: value for key, value in overrides.get(row["name"], {}).items() if key in row}}


def parse_ladder_rules(table: Mapping[str, Any]) -> tuple[tuple[LadderRule, ...], list[str]]:
    """The `[[use]]` rows in order, and one line per invalid row."""
    return parse_rows(table, "use", partial(converted, kind=LadderRule))


def parse_lorebook_rules(table: Mapping[str, Any]) -> tuple[tuple[LorebookRule, ...], list[str]]:
    """The `[[lorebook]]` rows in order, and one line per invalid row."""
    return parse_rows(table, "lorebook", partial(converted, kind=LorebookRule))
