"""A comment that says "(measured)" is held to it: the constant has an experiment on record, or the comment has its
figures. And the tables of experiments have the values that the code has."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
METHOD = ROOT / "proxy" / "fit" / "relevance" / "README.md"
CLAIM = re.compile(r"#(?:| .*\() ?measured\b(?P<figures>:[^)]*)?")
ASSIGNED = re.compile(r"^(?P<names>[A-Z][A-Z_0-9]*(?:, [A-Z][A-Z_0-9]*)*)(?:: [^=\n]+)? = ")
UNMEASURED = re.compile(r"(?im)^### Constants without a recorded experiment$.*|chosen, not measured:.*?\n\n", re.DOTALL)
NAMED = re.compile(r"`(?:[a-z_0-9]+)\.(?:[A-Z][A-Z_0-9]*)`")
NUMBER = re.compile(r"(?<![\w.])(?:\d+(?:,\d{3})*)?(?:\.\d+)?(?![\w])")


def claims(source: str) -> Iterator[tuple[str, bool]]:
    """The constants of which a comment says that they were measured, and whether it has figures. A comment above them
    speaks of those of the next line."""
    pending: tuple[str, bool] | None = None
    for line in source.splitlines():
        found = CLAIM.search(line)
        if found:
            pending = line, bool(re.search(r"\d", found["figures"] or ""))
        assigned = ASSIGNED.match(line)
        if assigned and pending:
            yield from ((name, pending[1]) for name in assigned["names"].split(", "))
        if not line.startswith("#"):
            pending = None


def modules() -> list[Path]:
    return [path for path in sorted((ROOT / "proxy").rglob("*.py")) if "measured" in path.read_text("utf-8")]


def on_record() -> set[str]:
    """The constants with an experiment, as `module.NAME`."""
    return set(NAMED.findall(UNMEASURED.sub("", METHOD.read_text("utf-8"))))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_comment_calls_measured_has_an_experiment_or_figures(path: Path) -> None:
    known = on_record()
    told = [name for name, has_figures in claims(path.read_text("utf-8")) if not has_figures]
    assert [name for name in told if f"`{path.stem}.{name}`" not in known] == []


def test_a_claim_is_seen_beside_a_constant_and_above_it() -> None:
    source = (
        "A, B = 1, 2  # of the room (measured)\n"
        "C = 3  # plain\n"
        "# Share of it (measured:\n# more adds nothing).\n"
        "D: int = 4\n"
        "E = 5  # (measured: 0.3 of 12 runs)\n"
    )
    assert list(claims(source)) == [("A", False), ("B", False), ("D", False), ("E", True)]


def test_what_was_chosen_and_not_measured_is_no_experiment() -> None:
    known = on_record()
    assert "`lines.NEW_NAME`" in known and "`ranking.HEADED`" not in known and "`data.LEAST`" not in known


# Names of other programs, of formats and of headers, which docstrings may name and no line of ours uses.
FOREIGN = frozenset(
    {"AnyValue", "API_KEY", "ExportTraceServiceRequest", "HeliconeRequest", "Origin", "RolloutItem", "_ms", "apiKey"}
    | {"StandardLoggingPayload", "api_key_2", "baggage", "histogram_quantile", "ls", "on_", "pytest", "sample_spec"}
    | {"sentinel_password", "sentinel_username"}
)
TEXTS = re.compile(r'"""(?:.|\n)*?"""|#.*')
QUOTED = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")
MODULE = re.compile(r"`(proxy(?:\.\w+)+)`|`((?:\w+/)+\w+\.py)`")


@cache
def known_words() -> frozenset[str]:
    """What the code and the rules name, and the names of modules, tests and folders."""
    sources = [path.read_text("utf-8") for path in (ROOT / "proxy").rglob("*.py")]
    words = set(re.findall(r"[A-Za-z_]\w*", TEXTS.sub("", "\n".join(sources))))
    for folder in ("proxy", "tests"):
        words |= {path.stem for path in (ROOT / folder).rglob("*")}
    for path in (ROOT / "rules").rglob("*"):
        if path.suffix in (".toml", ".md"):
            words |= set(re.findall(r"\w+", path.read_text("utf-8")))
    return frozenset(words | {path.name for path in ROOT.iterdir()})


def stale(source: str) -> Iterator[str]:
    """The names in backticks, in comments and docstrings, that are nowhere else."""
    texts = "\n".join(TEXTS.findall(source))
    for name in QUOTED.findall(texts):
        if not known_words().issuperset(filter(None, name.split("."))) and name not in FOREIGN:
            yield name
    for module, path in MODULE.findall(texts):
        if path and not (ROOT / "proxy" / path).exists():
            yield path
        elif module and not resolves(module):
            yield module


def resolves(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("path", sorted((ROOT / "proxy").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_B6_what_comments_name_is_there(path: Path) -> None:
    assert list(stale(path.read_text("utf-8"))) == []


def test_B6_a_name_that_is_gone_is_found() -> None:
    source = '"""As `Window.held`, `gone_for_good()`, `proxy.errors.NoSuchError` and `wire/nothing.py` say."""'
    assert list(stale(source)) == [
        "gone_for_good",
        "proxy.errors.NoSuchError",
        "proxy.errors.NoSuchError",
        "wire/nothing.py",
    ]


def numbers(text: str) -> list[float]:
    return sorted(float(found.replace(",", "")) for found in NUMBER.findall(text) if found)


def flat(value: Any) -> list[float]:
    """All numbers of a constant."""
    if isinstance(value, dict):
        value = list(value.values())
    return [one for part in value for one in flat(part)] if isinstance(value, list | tuple) else [float(value)]


def table_rows() -> Iterator[tuple[list[str], str]]:
    """The constants of each row of a table of experiments, and the cell of their values. A row of a constant that was
    another one when it was measured says so (`was`)."""
    for line in METHOD.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.replace("\\|", "/").strip("|").split("|")]
        names, value = cells[0], cells[1] if len(cells) > 2 else ""
        if "(was" in names or not NAMED.search(names):
            cells = cells[1:]  # the constant may stand in the second column, behind a rule
            names, value = (cells[0], cells[1]) if len(cells) > 2 else ("", "")
        found = re.findall(r"`(?:([a-z_0-9]+)\.)?([A-Z][A-Z_0-9]*)`", names)
        if found and found[0][0] and "(was" not in names and re.search(r"\d", value):
            yield [f"{module or found[0][0]}.{name}" for module, name in found], value


def value_of(name: str) -> Any:
    """The value of a constant of one module of that name in `proxy/fit/`."""
    module, _, constant = name.partition(".")
    paths = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "proxy" / "fit").rglob(f"{module}.py")]
    values = [vars(importlib.import_module(".".join(path.parts))).get(constant) for path in paths]
    assert sum(value is not None for value in values) == 1, f"{name}: no constant, or more than one"
    return next(value for value in values if value is not None)


@pytest.mark.parametrize(("names", "value"), [pytest.param(*row, id=row[0][0]) for row in table_rows()])
def test_the_table_of_experiments_has_the_values_of_the_code(names: list[str], value: str) -> None:
    values = [flat(value_of(name)) for name in names]
    if all(one == values[0] for one in values):
        values = values[:1]  # one value may stand for all
    assert numbers(value) == pytest.approx(sorted(number for one in values for number in one))
