from __future__ import annotations

import math
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from proxy.config import ladders
from proxy.config.ladders import (
    LadderRule,
    LorebookRule,
    known_steps,
    override,
    parse_ladder,
    parse_ladder_rules,
    parse_lorebook_rules,
)
from proxy.config.rules import load_rules
from proxy.model.plan import Ladder, LadderStep

STEP = """
from __future__ import annotations
from dataclasses import dataclass
OF_ORIGINAL = True

@dataclass(frozen=True, slots=True)
class Params:
    cap_tokens: int = 2000
    share: float = 0.5
    to: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.cap_tokens < 100:
            raise ValueError("a cap under 100 tokens leaves nothing")

def apply(draft, facts, params):
    return params
"""
PLAIN = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Params:
    pass

def apply(draft, facts, params):
    return draft
"""


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a package with two steps, `trim` and `plain`."""
    package = f"steps_of_{tmp_path.name}".replace("-", "_")
    (tmp_path / package).mkdir()
    for name, text in {"__init__": "", "trim": STEP, "plain": PLAIN, "_hidden": ""}.items():
        (tmp_path / package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    known_steps.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


def parsed(text: str, steps: str, given: ladders.Params | None = None) -> tuple[Ladder, list[str]]:
    return parse_ladder("test", tomllib.loads(text), given or {}, steps)


def test_what_stands_above_the_steps_holds_for_all_of_them(steps: str) -> None:
    head = 'on_unfit = "forward"\nunknown = "assume"\ndefault_reserve = 1000\nfloor = 200'
    assert parsed(head, steps) == (Ladder("test", (), "forward", "assume", 1000, 200), [])
    assert parsed("", steps) == (Ladder("test", (), "reject", "learn", 3000, 500), [])


def test_a_row_becomes_a_rung_with_the_steps_parameters(steps: str) -> None:
    ladder, problems = parsed('[[step]]\nname = "trim"\nat = 0.85\ncap_tokens = 300\nshare = 1\nto = ["a", "b"]', steps)
    assert problems == []
    (ladder_step,) = ladder.steps
    assert (ladder_step.step, ladder_step.at, ladder_step.of_original, ladder_step.models) == (
        "trim",
        0.85,
        True,
        ("a", "b"),
    )
    params = ladder_step.apply(None, None)  # type: ignore[arg-type]
    assert (params.cap_tokens, params.share, params.to) == (300, 1.0, ("a", "b"))  # type: ignore[union-attr]


def test_rows_keep_their_order_and_a_step_may_stand_twice(steps: str) -> None:
    ladder, problems = parsed('step = [{name="plain"}, {name="trim"}, {name="plain", at=1}]', steps)
    assert problems == []
    assert [(ladder_step.step, ladder_step.at) for ladder_step in ladder.steps] == [
        ("plain", None),
        ("trim", None),
        ("plain", 1.0),
    ]
    assert not ladder.steps[0].of_original


def test_parameters_given_elsewhere_fill_what_a_row_leaves_out(steps: str) -> None:
    text = 'step = [{name="trim"}, {name="trim", to=["mine"]}, {name="plain"}]'
    ladder, problems = parsed(text, steps, {"trim": {"to": ["given"], "share": 0.25}})
    assert problems == []
    assert [ladder_step.models for ladder_step in ladder.steps] == [("given",), ("mine",), ()]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('on_unfit = "explode"', "on_unfit is 'explode', must be one of reject, forward"),
        ("default_reserv = 1", "unknown field default_reserv, did you mean default_reserve?"),
        ("floor = 0", "floor: expected int >= 1"),
        ('step = [{name="trimm"}]', "step 1 (trimm): unknown step, must be one of plain, trim"),
        ('step = [{name="_hidden"}]', "step 1 (_hidden): unknown step, must be one of plain, trim"),
        ('step = [{name="../trim"}]', "step 1 (../trim): unknown step, must be one of plain, trim"),
        ("step = [{cap_tokens=1}]", "step 1: missing field name"),
        ("step = [{name=5}]", "step 1: name: expected str, got int"),
        ("step = 5", "step 1: expected object, got int"),
        ('step = [{name="trim", cap_tokens="x"}]', "step 1 (trim): cap_tokens: expected int, got str"),
        ('step = [{name="trim", cap_tokens=1.5}]', "step 1 (trim): cap_tokens: expected int, got float"),
        ('step = [{name="trim", to="x"}]', "step 1 (trim): to: expected array, got str"),
        ('step = [{name="trim", cap_tokens=5}]', "step 1 (trim): a cap under 100 tokens leaves nothing"),
        (
            'step = [{name="trim", cap=5, x=1}]',
            "step 1 (trim): cap, x: unknown parameter, known are cap_tokens, share, to",
        ),
        ('step = [{name="plain", x=1}]', "step 1 (plain): x: unknown parameter, known are none"),
        ('step = [{name="plain", at=1.5}]', "step 1 (plain): at: expected float <= 1.0"),
        ('step = [{name="plain", at="high"}]', "step 1 (plain): at: expected float, got str"),
    ],
)
def test_what_is_wrong_is_named_by_row_and_step_with_the_reason(text: str, problem: str, steps: str) -> None:
    assert parsed(text, steps)[1] == [problem]


def test_an_unknown_key_of_a_parameter_that_is_a_table_is_named() -> None:
    text = '[[step]]\nname = "prune_history"\narguments = { path = ["file"] }'
    known = "paths, offsets, limits, pages, ends, ranges"
    problem = f"step 1 (prune_history): path: unknown parameter, known are {known}"
    assert parsed(text, ladders.STEPS)[1] == [problem]


def test_all_problems_of_a_ladder_are_told(steps: str) -> None:
    _, problems = parsed('floor = "x"\nstep = [{name="trim"}, {name="no"}, {name="plain", at=-1}]', steps)
    assert [problem.partition(":")[0] for problem in problems] == ["floor", "step 2 (no)", "step 3 (plain)"]


def test_the_steps_that_there_are_are_the_files_in_their_folder() -> None:
    assert {"trim_tool_results", "clamp_output", "switch_model", "prune_history"} <= set(known_steps())


def test_a_real_step_is_bound_to_its_parameters() -> None:
    ladder, problems = parse_ladder("test", {"step": [{"name": "clamp_output", "floor": 400}]}, {})
    assert problems == []
    (ladder_step,) = ladder.steps
    assert isinstance(ladder_step, LadderStep) and isinstance(ladder_step.apply, partial)
    assert ladder_step.apply.keywords["params"].floor == 400


def test_uses_say_which_ladder_a_model_takes() -> None:
    assert parse_ladder_rules({"use": [{"model": "claude-*", "ladder": "agent"}]}) == (
        (LadderRule("claude-*", "agent"),),
        [],
    )
    assert parse_ladder_rules({}) == ((), [])


def test_a_wrong_use_is_named_by_its_place() -> None:
    uses, problems = parse_ladder_rules(
        {"use": [{"model": "a", "ladder": "b"}, {"model": "a"}, {"model": 5, "ladder": "b"}]}
    )
    assert problems == ["use 2: missing field ladder", "use 3: model: expected str, got int"]
    empty = "model must not be empty"
    assert parse_ladder_rules({"use": {"model": "", "ladder": "a"}})[1] == [f"use 1: {empty}"]
    assert parse_lorebook_rules({"lorebook": {"model": " ", "name": "a"}})[1] == [f"lorebook 1 (a): {empty}"]
    assert uses == (LadderRule("a", "b"),)


SUMMARY = '[[step]]\nname = "summarise_history"\nat = 0.85'


def test_a_step_that_takes_no_part_has_no_threshold() -> None:
    ladder, problems = parsed(SUMMARY, ladders.STEPS)
    assert problems == [] and [ladder_step.step for ladder_step in ladder.steps] == ["summarise_history"]
    assert ladder.steps[0].at is None and (ladder.least_at, ladder.least_ahead) == (math.inf, math.inf)


def test_a_step_that_looks_ahead_does_so_from_a_threshold_of_its_own() -> None:
    given = {"summarise_history": {"model": "m", "ready": 0.6}}
    ladder, problems = parsed(SUMMARY, ladders.STEPS, given)
    (ladder_step,) = ladder.steps
    assert problems == [] and ladder_step.ahead is not None and (ladder_step.at, ladder_step.ahead.at) == (0.85, 0.6)
    assert (ladder.least_at, ladder.least_ahead) == (0.85, 0.6)
    assert ladder_step.apply.keywords["params"].at == 0.85  # type: ignore[attr-defined]


def test_shipped_ladders_look_ahead_and_sum_up_only_where_a_model_is_given() -> None:
    plain, summing = (load_rules(None, defaults=given).ladders for given in ({}, {"summarise_history": {"model": "m"}}))
    assert {ladder.least_ahead for ladder in plain.values()} == {math.inf}
    assert plain["default"].least_at == 0.9
    for name in ("default", "agent", "chat", "lossless"):
        assert (summing[name].least_at, summing[name].least_ahead) == (0.85, 0.7)


def test_lores_say_which_lorebooks_a_model_takes() -> None:
    rows = [{"model": "claude-*", "name": "tides"}, {"model": "a", "name": 5}]
    assert parse_lorebook_rules({"lorebook": rows}) == (
        (LorebookRule("claude-*", "tides"),),
        ["lorebook 2: name: expected str, got int"],
    )
    assert parse_lorebook_rules({}) == ((), [])


def test_what_is_imposed_stands_above_what_a_row_says_and_only_where_it_says_something() -> None:
    rows = [{"name": "trim", "cap_tokens": 9}, {"name": "trim"}, {"name": "plain", "cap_tokens": 9}, 5, {"name": []}]
    found = override({"floor": 7, "step": rows}, {"trim": {"cap_tokens": 500}})
    assert found == {"floor": 7, "step": [{"name": "trim", "cap_tokens": 500}, *rows[1:]]}
