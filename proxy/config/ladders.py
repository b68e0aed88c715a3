"""A ladder's TOML as a `Ladder`: each row is checked against the step that it names; it reads no file."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Annotated, Any, TypeVar

import msgspec

from proxy.config.window_rules import listed, reason
from proxy.model.limits import DEFAULT_RESERVE, FLOOR
from proxy.model.plan import Ladder, LadderStep

STEPS = "proxy.fit.steps"  # a step's name is its file's name there
ROWS = ("step", "use", "lorebook")  # what a ladder's file has rows of
Params = Mapping[str, Mapping[str, Any]]  # parameters by step
Row = TypeVar("Row")


WORDS = {"on_unfit": ("reject", "forward"), "unknown": ("learn", "assume")}


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands above a ladder's steps and holds for all of them."""

    on_unfit: str = "reject"
    unknown: str = "learn"
    default_reserve: Annotated[int, msgspec.Meta(ge=0)] = DEFAULT_RESERVE
    floor: Annotated[int, msgspec.Meta(ge=1)] = FLOOR

    def __post_init__(self) -> None:
        for key, words in WORDS.items():
            if (said := getattr(self, key)) not in words:
                raise ValueError(f"{key} is {said!r}, it must be one of {', '.join(words)}")


class Place(msgspec.Struct, frozen=True):
    """What any row of a ladder may say; all else in it are parameters of its step."""

    name: str
    at: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class Use(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[use]]`: the ladder of the models whose names match a pattern."""

    model: str
    ladder: str


class Lore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[lorebook]]`: a lorebook of the models whose names match a pattern."""

    model: str
    name: str


def parse_ladder(name: str, table: Mapping[str, Any], given: Params, package: str = STEPS) -> tuple[Ladder, list[str]]:
    """A ladder as TOML has it, and all that is wrong with it, a line each.

    `given` are parameters that the user set elsewhere (the environment); a row's own come first.
    """
    problems: list[str] = []
    head = Head()
    try:
        head = msgspec.convert({key: value for key, value in table.items() if key not in ROWS}, Head)
    except ValueError as error:
        problems.append(reason(error))
    steps = []
    for place, row in enumerate(listed(table.get("step", [])), 1):
        try:
            steps.append(_rung(row, given, package))
        except ValueError as error:
            title = f" ({row['name']})" if isinstance(row, dict) and isinstance(row.get("name"), str) else ""
            problems.append(f"step {place}{title}: {reason(error)}")
    return Ladder(name, tuple(steps), head.on_unfit, head.unknown, head.default_reserve, head.floor), problems


def _rung(row: Any, given: Params, package: str) -> LadderStep:
    place = msgspec.convert(row, Place)
    step = _step(place.name, package)
    own = {key: value for key, value in row.items() if key != "name" and (key != "at" or hasattr(step.Params, "at"))}
    params = _params(step.Params, {**given.get(place.name, {}), **own})
    apply = functools.partial(step.apply, params=params)
    if hasattr(step, "idle") and step.idle(params):
        return LadderStep(place.name, apply)  # its `at` must not bring a request to a step that takes no part
    models = tuple(getattr(params, "to", ()))
    return LadderStep(
        place.name, apply, place.at, bool(getattr(step, "OF_ORIGINAL", False)), models, _ahead(step, params)
    )


def parameter(ladder_step: LadderStep, name: str) -> Any:
    """What a rung that a ladder's row made has for a parameter of its step; None where the step has none."""
    made = getattr(ladder_step.apply, "keywords", {}).get("params")
    return getattr(made, name, None)


def _ahead(step: ModuleType, params: Any) -> LadderStep | None:
    """The step's look ahead, where it has one and something to make ready."""
    if not hasattr(step, "ahead") or params.ready is None:
        return None
    return LadderStep(step.__name__.rpartition(".")[2], functools.partial(step.ahead, params=params), params.ready)


def _step(name: str, package: str) -> ModuleType:
    known = known_steps(package)
    if name not in known:
        raise ValueError(f"there is no such step, there are {', '.join(known)}")
    return importlib.import_module(f"{package}.{name}")


@functools.cache
def known_steps(package: str = STEPS) -> tuple[str, ...]:
    """The names of all steps there are."""
    folders = importlib.import_module(package).__path__
    return tuple(sorted(module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_")))


def _params(kind: Any, values: Mapping[str, Any]) -> Any:
    known = [field.name for field in dataclasses.fields(kind)]
    if unknown := [key for key in values if key not in known]:
        raise ValueError(f"{', '.join(unknown)}: no such parameter, there are {', '.join(known) or 'none'}")
    return msgspec.convert(values, kind)


def impose(table: Mapping[str, Any], imposed: Params) -> dict[str, Any]:
    """A ladder as TOML has it, with other values for those parameters that its rows set."""
    rows = listed(table.get("step", []))
    return {**table, "step": [_imposed(row, imposed) for row in rows]}


def _imposed(row: Any, imposed: Params) -> Any:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return row
    return {**row, **{key: value for key, value in imposed.get(row["name"], {}).items() if key in row}}


def parse_uses(table: Mapping[str, Any]) -> tuple[tuple[Use, ...], list[str]]:
    """Which ladder a model takes, and all that is wrong with it, a line a row."""
    return _rows(table, "use", Use)


def parse_lores(table: Mapping[str, Any]) -> tuple[tuple[Lore, ...], list[str]]:
    """Which lorebooks a model takes, and all that is wrong with it, a line a row."""
    return _rows(table, "lorebook", Lore)


def _rows(table: Mapping[str, Any], key: str, kind: type[Row]) -> tuple[tuple[Row, ...], list[str]]:
    found, problems = [], []
    for place, row in enumerate(listed(table.get(key, [])), 1):
        try:
            found.append(msgspec.convert(row, kind))
        except ValueError as error:
            problems.append(f"{key} {place}: {reason(error)}")
    return tuple(found), problems
