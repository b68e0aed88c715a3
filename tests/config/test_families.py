"""A families.toml is checked row by row, and the user's is laid over the built-in one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from proxy.config.families import merge_families, parse_families
from proxy.config.rules import built_in, check_rules, load_rules
from proxy.errors import ConfigError
from proxy.tokens.families import BUILT_IN, Family
from proxy.tokens.images import FORMULAS
from proxy.tokens.recipes import RECIPES

EXAMPLE = re.compile(r"```toml\n(.*?)```", re.DOTALL)

ROW = """
[[family]]
name = "{name}"
models = ["{model}"]
recipe = "classic"
images = {{ formula = "flat", tokens = {tokens} }}
"""


def row(name: str, model: str = "mine-*", tokens: int = 7) -> str:
    return ROW.format(name=name, model=model, tokens=tokens)


def parsed(text: str) -> tuple[tuple[Family, ...], list[str]]:
    return parse_families(tomllib.loads(text))


def test_rows_are_read_in_their_order() -> None:
    rows, problems = parsed(row("a") + row("b"))
    assert problems == []
    assert [family.name for family in rows] == ["a", "b"]


def test_each_problem_is_reported_with_its_row() -> None:
    text = "families = 1\n" + row("a") + row("a") + row("b").replace("classic", "clasic") + row("c", "a/b")
    rows, problems = parsed(text + "[[family]]\nmodels = []")
    assert [family.name for family in rows] == ["a"]
    assert problems[:3] == [
        "families: unknown table, must be family",
        "family 2 (a): another row has this name",
        f"family 3 (b): recipe is 'clasic', must be one of {', '.join(RECIPES)}",
    ]
    assert problems[3].startswith("family 4 (c): models: 'a/b' is not a name")
    assert problems[4:] == ["family 5: needs either a recipe or a ratio"]


def test_a_row_replaces_the_row_of_its_name_in_its_place_and_others_come_first() -> None:
    lower, upper = parsed(row("a") + row("b") + row("c"))[0], parsed(row("new") + row("b", tokens=8))[0]
    rows = merge_families(upper, lower)
    assert [family.name for family in rows] == ["new", "a", "b", "c"]
    assert rows[2] == upper[1] != lower[1]


def test_the_examples_in_the_documentation_are_right() -> None:
    readme = (built_in() / "README.md").read_text("utf-8")
    rows, problems = parsed("\n".join(text for text in EXAMPLE.findall(readme) if "[[family]]" in text))
    assert ([family.name for family in rows], problems) == (["billing-assistant"], [])
    head = (built_in() / "families.toml").read_text("utf-8").partition("\n\n")[0]
    assert re.findall(r'^#   \{ formula = "(\w+)"', head, re.MULTILINE) == list(FORMULAS)
    assert set(re.findall(r"^#   ([\w-]+) +\w", head, re.MULTILINE)) == set(RECIPES)


def test_without_a_file_of_the_users_the_built_in_families_hold(tmp_path: Path) -> None:
    assert load_rules(None).families is load_rules(tmp_path).families is BUILT_IN


def test_a_copy_of_the_built_in_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "families.toml").write_text((built_in() / "families.toml").read_text("utf-8"), "utf-8")
    assert load_rules(tmp_path).families.rows == BUILT_IN.rows


def test_a_family_of_the_users_is_found_before_the_built_in_ones(tmp_path: Path) -> None:
    (tmp_path / "families.toml").write_text(row("mine", "gpt-4o-mine*") + row("claude", "*claude*"), "utf-8")
    families = load_rules(tmp_path).families
    assert families.find("azure/gpt-4o-mine-2").name == "mine"
    assert families.find("gpt-4o").name == "gpt-4o"
    assert (families.find("claude-opus-4").ratio, families.find("claude-sonnet-4-5").name) == (None, "claude-4-5")
    assert check_rules(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (row("mine").replace("flat", "flatt"), "families.toml, family 1 (mine): images.formula is 'flatt', must be"),
        (row("mine").replace("tokens", "token"), "families.toml, family 1 (mine): images: unknown field token"),
        ("[[family", "families.toml: "),
    ],
)
def test_a_wrong_family_stops_the_start_with_its_file_row_and_reason(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "families.toml").write_text(text, "utf-8")
    with pytest.raises(ConfigError) as caught:
        load_rules(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/{problem}")
    assert check_rules(tmp_path) == str(caught.value).splitlines()
