"""What planning remembers only saves time: with, without and with a wrong memory the same bytes are sent."""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proxy.fit
from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.fit.relevance.text.memo import MemoTable
from proxy.model.bounded import Bounded
from proxy.model.plan import Plan
from proxy.model.structs import replace
from tests.laws.dialects import CHAT, DIALECTS, Dialect
from tests.laws.meters import CharMeter
from tests.makers import WordMeter, assistant, facts, system, tool_round, user, words

LADDERS = {n: replace(load_rules(None).ladders[n], default_reserve=50, floor=50) for n in ("default", "agent")}


@dataclass(frozen=True, slots=True)
class OtherTexts(WordMeter):
    """Counts messages as its base does, and texts by their characters."""

    def text(self, text: str) -> int:
        return len(text) // 5

    def cut(self, text: str, tokens: int, *, tail: bool = False) -> str:
        return text[max(0, len(text) - 5 * tokens) :] if tail else text[: 5 * tokens]


METERS = (WordMeter(), CharMeter(), OtherTexts())
PATHS = ("src/harbour/crane.py", "harbour/crane.py", "src/tide/clock.py", "notes/plan.md")
NAMES = ("load_cargo", "open_gate", "CraneError")
SEEDS = st.integers(0, 2**32)
Told = list[dict[str, Any]]
Sent = tuple[object, ...]


def memories() -> list[Bounded[Any, Any] | MemoTable[Any]]:
    """Everything that the modules of `fit` remember."""
    for module in pkgutil.walk_packages(proxy.fit.__path__, "proxy.fit."):
        importlib.import_module(module.name)
    held = [vars(module) for name, module in sys.modules.items() if name.startswith("proxy.fit.")]
    values = [value for names in held for value in names.values() if isinstance(value, Bounded | MemoTable)]
    return list({id(value): value for value in values}.values())


def forget(dice: random.Random | None = None) -> None:
    """Forgets everything, or each thing with the chance of a half."""
    for memory in memories():
        if dice is None or isinstance(memory, MemoTable):
            memory.clear()
        else:
            for key, _ in list(memory):
                if dice.random() < 0.5:
                    memory.take(key)


def code(dice: random.Random) -> str:
    """A file that defines some of the names."""
    parts = [f"def {name}(x):\n    {words(dice.randrange(3, 40), name[:2])}\n    return x\n" for name in NAMES]
    return "\n".join(
        [
            "import os",
            *dice.sample(parts, dice.randrange(1, 4)),
            *[words(7, f"z{i}x") for i in range(dice.choice((1, 60)))],
        ]
    )


def opening(dice: random.Random) -> Told:
    """Instructions and a task."""
    asked = ("Find why load_cargo fails in src/harbour/crane.py, ticket 4711.", "Mend it.", "Please `open_gate` it.")
    return [system(words(12, "s")), user(dice.choice(asked))]


def turn(dice: random.Random, number: int) -> Told:
    """A call with its result, a round of two calls, an answer, or what the user says."""
    path, name = dice.choice(PATHS), dice.choice(NAMES)
    texts: tuple[str, ...] = (
        code(dice),
        f"Unchanged since it was last read. {number}",
        "[]",
        f"Error: no {path}",
        words(200, f"r{number}"),
    )
    texts += (json.dumps([{"ticket": 4711 + i, "text": words(9)} for i in range(30)], indent=1), f"# Plan\n{words(60)}")
    match dice.randrange(9):
        case 0:
            return [assistant(f"I see. {words(dice.choice((4, 90)), 'a')}"), user(f"Look at {name} in {path}, 4713.")]
        case 1:
            return [
                user(dice.choice(("From now on never touch the gate.", "go on", f"Why `{name}`? {words(50, 'q')}")))
            ]
        case 2:
            arguments = json.dumps({"path": path, "old_string": words(4), "new_string": words(dice.choice((4, 160)))})
            return tool_round(f"c{number}", "done", "edit", arguments)
        case 3:
            first, second = (
                tool_round(f"c{number}{k}", dice.choice(texts), "read", json.dumps({"path": path})) for k in "ab"
            )
            return [
                {**first[0], "tool_calls": [*first[0]["tool_calls"], *second[0]["tool_calls"]]},
                first[1],
                second[1],
            ]
        case _:
            arguments = dice.choice((f'{{"path": "{path}"}}', f'{{"command": "cat {path}"}}', f'{{"q": "{name}"}}'))
            return tool_round(f"c{number}", dice.choice(texts), dice.choice(("read", "read", "shell")), arguments)


def growing(seed: int, turns: int) -> Iterator[Told]:
    """A conversation at each of its turns. Several begin alike and then go apart."""
    alike, own = random.Random(seed // 8), random.Random(seed)
    told = opening(alike)
    for number in range(turns):
        told += turn(alike if number < turns // 3 else own, number)
        yield [{**m, "x-uid": i} for i, m in enumerate(told)]


def sent(dialect: Dialect, told: Told, window: int, ladder: str, meter: int) -> Sent:
    """What is sent of a conversation, and what the plan says about it."""
    prompt = dialect.parse(dialect.body(told, {"max_tokens": 60}, {"model": "m"}, {}))
    made = plan(prompt, LADDERS[ladder], facts(window, meter=METERS[meter]))
    return dialect.render(prompt, made), *said(made)


def said(made: Plan) -> Sent:
    return made.notes, made.draft.drops, [(m.index, m.why, m.tokens) for m in made.draft.messages]


def each(conversations: Sequence[Iterator[Told]]) -> Iterator[tuple[int, Told]]:
    """The turns of conversations, one of each in turn."""
    for turns in zip(*conversations, strict=True):
        yield from enumerate(turns)


@pytest.mark.parametrize("ladder", LADDERS)
@given(
    seed=SEEDS,
    window=st.sampled_from((500, 900, 1_600)),
    dialects=st.lists(st.sampled_from(DIALECTS), min_size=2, max_size=3),
    meters=st.lists(st.integers(0, len(METERS) - 1), min_size=3, max_size=3),
)
@settings(max_examples=6)
def test_with_without_and_with_a_wrong_memory_the_same_is_sent(
    ladder: str, seed: int, window: int, dialects: Sequence[Dialect], meters: Sequence[int]
) -> None:
    talks = [list(growing(8 * seed + place, 14)) for place in range(len(dialects))]
    dice = random.Random(seed)
    forget()
    told = list(each([iter(talk) for talk in talks]))
    remembering = [sent(dialects[at], messages, window, ladder, meters[at]) for at, messages in told]
    for (at, messages), known in zip(told, remembering, strict=True):
        forget(dice)  # some of it is left, that of other conversations, too
        assert sent(dialects[at], messages, window, ladder, meters[at]) == known
    for (at, messages), known in [*zip(told, remembering, strict=True)][::3]:
        forget()
        assert sent(dialects[at], messages, window, ladder, meters[at]) == known


def variants(told: Told) -> Iterator[tuple[Told, int]]:
    """A conversation changed in one thing, and the number of the meter that counts it: as after an edit of the client,
    or from somebody else who began alike."""
    users = [place for place, message in enumerate(told) if message["role"] == "user"]
    for place in {1, users[len(users) // 2]}:
        yield [*told[:place], told[place] | {"content": "Look at CraneError, ticket 4720."}, *told[place + 1 :]], 0
    for less in (1, 3):
        yield [*told[:-less], user("Now look at open_gate in src/tide/clock.py.") | {"x-uid": 999}], 0
    yield told, 2


@given(seed=SEEDS)
@settings(max_examples=8)
def test_what_is_remembered_of_a_conversation_changes_nothing_for_one_that_began_alike(seed: int) -> None:
    told = list(growing(seed, 14))[-1]
    for changed, meter in variants(told):
        forget()
        without = sent(CHAT, changed, 900, "default", meter)
        forget()
        for end in (-3, -1, len(told)):
            sent(CHAT, told[:end], 900, "default", 0)
        assert sent(CHAT, changed, 900, "default", meter) == without


def test_conversations_of_the_law_are_cut_and_claim_results() -> None:
    made = []
    for seed in range(12):
        told = list(growing(seed, 14))[-1]
        made.append(sent(CHAT, told, 700, "default", 0))
    reasons = "\n".join(why for each in made for _, why, _ in each[3])  # type: ignore[attr-defined]
    assert sum(bool(each[1]) for each in made) >= 9
    assert "kept: asked again" in reasons and "kept: definition" in reasons and "kept: named" in reasons
