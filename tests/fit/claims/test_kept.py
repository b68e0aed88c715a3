"""What is claimed is kept by the plans of the default ladder, and of the one with fixed figures for agents."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.model.plan import Ladder, Plan
from proxy.model.structs import replace
from tests.makers import assistant, facts, prompt, system, tool_round, user, words

LADDER, FIXED = (
    replace(load_rules(None).ladders[name], default_reserve=100, floor=50) for name in ("default", "agent")
)
ROOM = 3000
Run = list[dict[str, Any]]


def text(name: str, lines: int = 60) -> str:
    """A file of lines that only it has, with a function in its middle."""
    body = [f"{name} says thing {i} of {name}_{i} here" for i in range(lines)]
    body[lines // 2 : lines // 2] = [f"def {name}_work(a):", f"    {name}_one = a", "", f"    return {name}_two", ""]
    return "\n".join(body)


def read(ident: str, result: str, path: str) -> Run:
    return tool_round(ident, result, "Read", json.dumps({"path": path}))


def files(count: int) -> Run:
    found: Run = [system("You are an agent."), user("Find out why the job is slow.")]
    for i in range(count):
        found += read(f"c{i}", text(f"f{i}"), f"src/f{i}.py")
    return found


def planned(messages: Sequence[dict[str, Any]], ladder: Ladder = LADDER) -> Plan:
    made = plan(prompt(list(messages)), ladder, facts(ROOM))
    assert made.fits
    return made


def sent(made: Plan) -> str:
    return "\n".join(m.text() for m in made.draft.messages)


def test_a_result_that_is_asked_for_again_is_whole_and_stays_so_for_ten_further_turns() -> None:
    run = files(12)
    assert text("f2") not in sent(planned(run)), "it was cut before"
    run += read("again", "[unchanged]", "src/f2.py")
    made = planned(run)
    assert text("f2") in sent(made)
    assert any("asked again" in m.why for m in made.draft.messages) or text("f2") in sent(made)
    for turn in range(10):
        run += [assistant(f"Step {turn} is done."), user(f"Fine, what comes after step {turn}?")]
        assert text("f2") in sent(planned(run)), turn


def test_a_ladder_that_counts_messages_keeps_what_is_asked_again_and_what_users_said() -> None:
    run = files(3)
    run += [assistant("Found something."), user("Never touch the lock file.")]
    for i in range(3, 17):
        run += read(f"c{i}", text(f"f{i}"), f"src/f{i}.py")
    said = f"Use four spaces from now on.\n\n{text('pasted', 40)}"
    run[2:2] = [user(said), assistant("I will.")]
    before = sent(planned(run, FIXED))
    assert "f2 says" not in before and "f3 says" not in before and "lock file" in before
    assert "four spaces" in before and "pasted_20" not in before, "of a long message its order is enough"
    made = planned([*run, *read("again", "[unchanged]", "src/f2.py")], FIXED)
    assert text("f2") in sent(made) and "f3 says" not in sent(made)


@pytest.mark.parametrize("command", ["ls -la", "pytest -q", "git status"])
def test_a_command_that_merely_recurs_brings_nothing_back(command: str) -> None:
    run = files(2)
    run += tool_round("first", text("output"), "bash", json.dumps({"command": command}))
    for i in range(3, 13):
        run += read(f"c{i}", text(f"f{i}"), f"src/f{i}.py")
    run += tool_round("again", "ok", "bash", json.dumps({"command": command}))
    assert text("output") not in sent(planned(run))


def test_what_was_edited_since_is_not_brought_back() -> None:
    edit = {"file_path": "src/f2.py", "old_string": "thing", "new_string": "item"}
    run = [*files(12), *tool_round("e", "done", "Edit", json.dumps(edit)), *read("again", "[unchanged]", "src/f2.py")]
    assert text("f2") not in sent(planned(run))


def test_a_stub_whose_earlier_result_does_not_fit_says_so() -> None:
    run = [*files(1), *read("big", text("big", 400), "src/big.py")]
    for i in range(1, 9):
        run += read(f"c{i}", text(f"f{i}"), f"src/f{i}.py")
    made = planned([*run, *read("again", "[unchanged]", "src/big.py")])
    assert "[unchanged]\n[A proxy " in sent(made)


def test_both_functions_that_an_edit_needs_are_whole() -> None:
    ask = "Rework `f1_work` in src/f1.py so that it does what `f4_work` in src/f4.py does."
    made = planned([*files(12), assistant("I know them now."), user(ask)])
    for name in ("f1", "f4"):
        assert f"def {name}_work(a):\n    {name}_one = a\n\n    return {name}_two" in sent(made)
    assert any("definition" in m.why for m in made.draft.messages)


@pytest.mark.parametrize("window", range(1_400, 1_900, 100))
def test_what_is_claimed_of_the_newest_result_takes_no_room_that_what_is_pinned_needs(window: int) -> None:
    """Else later steps shorten what the user typed, or what was claimed."""
    bodies = ["".join(f"    {words(6, f'k{i}y{j}x')}\n" for j in range(12)) for i in range(40)]
    steps = [f"def step_{i}(a):\n{body}    return a" for i, body in enumerate(bodies)]
    told = "\n\n".join(words(20, f"p{i}x") for i in range(33))
    asks = user(f"Implement this: `step_3` must do what follows.\n\n{told}")
    read_once = read("c", "\n\n\n".join(steps), "src/f.py")
    made = plan(prompt([system("Be brief."), asks, *read_once]), LADDER, facts(window))
    assert made.fits and [note.step for note in made.notes] == ["trim_tool_results"]
    assert asks["content"] in sent(made) and "kept: named" in list(made.draft.messages)[-1].why


def test_what_the_user_typed_in_a_run_stays() -> None:
    run = files(2)
    run += [assistant("Found something."), user("Never touch the lock file.")]
    for i in range(2, 14):
        run += read(f"c{i}", text(f"f{i}"), f"src/f{i}.py")
    assert "Never touch the lock file." in sent(planned(run))


@pytest.mark.parametrize("seed", range(6))
def test_of_random_runs_every_stub_is_right(seed: int) -> None:
    """Each stub stands beside its earlier result, whole, or says what is missing of it; and the plan fits."""
    dice = random.Random(seed)
    run, whole = files(3), {f"src/f{i}.py": text(f"f{i}") for i in range(3)}
    for i in range(3, 16):
        if dice.random() < 0.4:
            path = dice.choice(sorted(whole))
            run += read(f"again{i}", "[unchanged]", path)
        else:
            whole[f"src/f{i}.py"] = text(f"f{i}", dice.randint(20, 120))
            run += read(f"c{i}", whole[f"src/f{i}.py"], f"src/f{i}.py")
    made = planned(run)
    texts = {m.answers[0]: m.text() for m in made.draft.messages if m.answers}
    paths = {
        m["tool_calls"][0]["id"]: json.loads(m["tool_calls"][0]["function"]["arguments"])["path"]
        for m in run
        if "tool_calls" in m
    }
    for ident, said in texts.items():
        if said.startswith("[unchanged]"):
            assert whole[paths[ident]] in texts.values() or "[A proxy " in said
