"""Whatever tools a request defines, in every API: what a call must agree with stays, and what is planned is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from string import ascii_lowercase
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.fit.plan import plan
from proxy.fit.steps.trim_tool_schemas import Params, apply
from proxy.model.conversation import Prompt
from proxy.model.plan import LadderStep, Plan
from tests.laws.dialects import CHAT, MESSAGES, OLLAMA, RESPONSES, Dialect
from tests.makers import WordMeter, facts, ladder, tool_round, user, words

WORDS = ("state", "Only then call again. ", "e.g. ", "読む。", "\n", "items, ", "and more. ", "x" * 90, "\U0001f600 ")
texts = st.one_of(st.none(), st.just(7), st.lists(st.sampled_from(WORDS), max_size=40).map("".join))
names = st.sampled_from(["a", "b", "search", "description", "properties", "__class__", "mcp__x__y"])
leaves = st.builds(
    lambda about, more: {**more, **({} if about is None else {"description": about})},
    texts,
    st.sampled_from([{"type": "string", "enum": ["a"]}, {"type": "integer", "default": {"description": "d"}}, {}]),
)
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda one: {"type": "array", "items": one}, inner),
        st.builds(lambda several: {"anyOf": several}, st.lists(inner, max_size=3)),
        st.builds(
            lambda named, about: {"properties": named, "required": [*named][:1], "description": about},
            st.dictionaries(names, inner, max_size=4),
            texts,
        ),
    ),
    max_leaves=12,
)
functions = st.builds(
    lambda name, about, schema: {"name": name, "description": about, "parameters": schema}, names, texts, schemas
)
dialects = pytest.mark.parametrize("dialect", [CHAT, MESSAGES, OLLAMA, RESPONSES], ids=lambda dialect: dialect.name)


def written(dialect: Dialect, function: Mapping[str, Any], deferred: bool) -> dict[str, Any]:
    """A tool as an API has it."""
    more = {"defer_loading": True} if deferred else {}
    if dialect is MESSAGES:
        named = {"name": function["name"], "description": function["description"]}
        return {**named, "input_schema": function["parameters"], **more}
    if dialect is RESPONSES:
        return {"type": "function", **function, **more}
    return {"type": "function", "function": {**function}, **more}


def body(dialect: Dialect, tools: list[dict[str, Any]], called: list[str]) -> bytes:
    told = [
        user("go"),
        *(m for i, name in enumerate(called) for m in tool_round(f"c{i}", words(40), name)),
        user("on?"),
    ]
    made = json.loads(
        dialect.body([{**m, "x-uid": i} for i, m in enumerate(told)], {"max_tokens": 20}, {"model": "m"}, {})
    )
    if dialect is RESPONSES:
        made["max_output_tokens"] = made.pop("max_tokens", 20)
    return json.dumps({**made, "tools": tools}).encode()


def bare(value: Any, named: bool = False) -> Any:
    """A tool without its descriptions. Values are kept: they are no schemas."""
    if isinstance(value, list):
        return [bare(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {k: v for k, v in value.items() if named or k != "description" or not isinstance(v, str)}
    return {k: v if k == "default" and not named else bare(v, k == "properties" and not named) for k, v in kept.items()}


def made_of(dialect: Dialect, raw: bytes, window: int) -> tuple[Prompt, Plan]:
    prompt = dialect.parse(raw)
    meter = WordMeter().with_fields(prompt.definitions.fields)
    known = facts(window, meter=meter)
    step = LadderStep("trim_tool_schemas", lambda d, f: apply(d, f, Params()))
    return prompt, plan(prompt, ladder(step), known)


@dialects
@given(
    found=st.lists(functions, min_size=1, max_size=6),
    called=st.lists(names, max_size=3),
    deferred=st.integers(0, 63),
    window=st.integers(60, 2_000),
)
def test_the_laws_of_tools_hold(
    dialect: Dialect, found: list[dict[str, Any]], called: list[str], deferred: int, window: int
) -> None:
    tools = [written(dialect, function, bool(deferred >> i & 1)) for i, function in enumerate(found)]
    raw = body(dialect, tools, called)
    prompt, made = made_of(dialect, raw, window)
    sent = json.loads(dialect.render(prompt, made))
    assert [bare(tool) for tool in sent["tools"]] == [bare(tool) for tool in tools]
    for new, old in zip(sent["tools"], tools, strict=True):
        if old.get("defer_loading"):
            assert new == old
    assert made.draft.excess <= max(0, made.before.excess) and made.draft.fixed <= made.before.fixed
    assert [m.raw for m in made.draft.messages] == [m.raw for m in made.before.messages]
    assert (made.draft is made.before) == (sent["tools"] == tools)
    again = WordMeter().with_fields(dialect.parse(dialect.render(prompt, made)).definitions.fields)
    assert sum(again.fixed.values()) == made.draft.fixed  # what is planned is what is sent
    assert made_of(dialect, raw, window)[1].draft.definitions.fields == made.draft.definitions.fields


@dialects
@given(found=st.lists(functions, min_size=1, max_size=6), called=st.lists(names, min_size=1, max_size=3))
def test_called_tools_are_sent_as_they_came(dialect: Dialect, found: list[dict[str, Any]], called: list[str]) -> None:
    tools = [written(dialect, function, False) for function in found]
    prompt, made = made_of(dialect, body(dialect, tools, called), 60)
    sent = json.loads(dialect.render(prompt, made))["tools"]
    use = first_called(made)
    assert all(new == old for new, old, function in zip(sent, tools, found, strict=True) if function["name"] in use)


def first_called(made: Plan) -> set[str]:
    """The names called in the first round, which the smallest history that is looked at holds."""
    return {call.name for message in [*made.before.messages][:2] for call in message.calls}


@dialects
def test_what_leaves_the_history_its_share_is_sent_byte_for_byte(dialect: Dialect) -> None:
    tools = [written(dialect, {"name": "a", "description": "One. " + words(90), "parameters": {}}, False)]
    raw = body(dialect, tools, ["a"])
    prompt, made = made_of(dialect, raw, 5_000)
    assert not made.changed and json.loads(dialect.render(prompt, made)) == json.loads(raw)


@dialects
@settings(max_examples=8)
@given(called=st.lists(st.sampled_from(ascii_lowercase), min_size=30, max_size=40), window=st.integers(700, 1_600))
def test_the_list_changes_seldom_while_a_run_grows(dialect: Dialect, called: list[str], window: int) -> None:
    about = f"Does what it does. {words(40, 'W')}"
    tools = [written(dialect, {"name": n, "description": about, "parameters": {}}, False) for n in ascii_lowercase]
    plans = [made_of(dialect, body(dialect, tools, called[:end]), window)[1] for end in range(len(called))]
    lists = [made.draft.definitions.fields for made in plans if made.changed]
    before = plans[-1].before
    came = sum(message.tokens for message in before.messages)
    # It is chosen where the messages have doubled, then once for each room of them.
    assert sum(old != new for old, new in pairwise(lists)) <= 5 + came / max(1, before.room)
