"""What nests deep in results and arguments, and the conversations that are full of it."""

from __future__ import annotations

import json
from functools import cache

import msgspec
import pytest

from proxy.apis.openai_chat import request
from proxy.config.rules import Rules, load_rules
from proxy.fit.nested import DEEPEST, decoded
from proxy.fit.plan import plan
from proxy.model.limits import LearnedLimits, Window
from proxy.model.plan import Facts
from proxy.tokens.meter import meter_for
from tests.makers import prompt, system, tool_round, user
from tests.tokens.remembering import Remembering

OBJECTS, LISTS = ('{"a":', "}"), ("[", "]")


def nested(kind: tuple[str, str], depth: int, inner: str) -> str:
    return kind[0] * depth + inner + kind[1] * depth


@cache
def rules() -> Rules:
    return load_rules(None)


@pytest.mark.parametrize("kind", [OBJECTS, LISTS])
def test_a_value_has_at_most_so_many_levels(kind: tuple[str, str]) -> None:
    text = nested(kind, DEEPEST, "1")
    assert decoded(text) == json.loads(text)
    assert decoded(f"[{','.join([nested(kind, 3, '1')] * DEEPEST)}]") == [json.loads(nested(kind, 3, "1"))] * DEEPEST
    for depth in (DEEPEST + 1, 600, 5_000, 100_000):
        with pytest.raises(msgspec.DecodeError):
            decoded(nested(kind, depth, "1"))


@pytest.mark.parametrize("text", ["", "[", "no JSON", '"\ud800', '{"a":1}}'])
def test_what_is_no_json_has_one_error(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        decoded(text)


@pytest.mark.parametrize("kind", [OBJECTS, LISTS])
@pytest.mark.parametrize("depth", [DEEPEST, DEEPEST + 1, 330, 490, 600, 950, 1_500])
@pytest.mark.parametrize("name", ["default", "chat", "agent", "economy", "rag"])
def test_conversations_full_of_deep_json_are_cut(name: str, depth: int, kind: tuple[str, str]) -> None:
    deep = nested(kind, depth, json.dumps("words of it " * 300))
    each = [f'{{"id":{i},"v":{nested(kind, depth, str(i))}}}' for i in range(9)]
    rows = f"[{','.join(each)}]"
    whole = prompt(
        (
            system("s"),
            user("which one?"),
            *tool_round("1", "fine " * 200, arguments=deep),
            *tool_round("2", deep),
            *tool_round("3", rows),
            *tool_round("4", "fine " * 300),
            user("and now?"),
        ),
        model="gpt-4o",
        max_tokens=50,
    )
    meter = meter_for(whole, "gpt-4o", Remembering(), LearnedLimits(), None)
    made = plan(whole, rules().ladders[name], Facts(Window(1_500), meter))
    assert made.fits and made.changed
    assert request.parse(request.render(whole, made))
