"""A conversation that grows: its cuts stay where they are until the room is passed again."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.fit.blocks import runs
from proxy.fit.plan import plan
from proxy.fit.steps.prune_history import Params
from proxy.model.conversation import Prompt
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace
from tests.laws.cases import conversation, exchanges
from tests.laws.dialects import DIALECTS, Dialect
from tests.laws.steps import ladder_step
from tests.makers import facts, ladder, tool_round, user, words

LOW = Params().low  # the depth of a cut
every_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
# One block a turn: users, assistants, tool rounds of one call and of several.
turn = st.tuples(st.sampled_from([0, *[1] * 4, *[2] * 4, 4]), st.integers(1, 6), st.just(5))
turns = st.lists(turn, min_size=5, max_size=60)
fewer = st.lists(turn, min_size=5, max_size=16)  # what plans each turn twice takes the square of their number


def drafts(
    dialect: Dialect, told: list[dict[str, Any]], starts: list[int], window: int, known: Facts | None = None
) -> list[Draft]:
    """What is sent at each turn of a conversation whose turns start at these places. A turn ends where no message that
    was sent is added to later."""
    found, whole = [], _runs(asked(dialect, told, window))
    for end in [*starts[1:], len(told)]:
        prompt = asked(dialect, told[:end], window)
        sent = _runs(prompt)
        if sent == whole[: len(sent)]:
            found.append(plan(prompt, ladder(ladder_step("prune_history")), known or facts(window)).draft)
    return found


def _runs(prompt: Prompt) -> list[list[bytes]]:
    return [[m.raw for m in run] for run in runs(prompt.messages)]


def asked(dialect: Dialect, told: list[dict[str, Any]], window: int) -> Prompt:
    """The request with these messages."""
    return dialect.parse(dialect.body(told, {"max_tokens": window // 10}, {"model": "m"}, {}))


def raws(draft: Draft) -> list[bytes]:
    return [m.raw for m in draft.messages]


def indices(draft: Draft) -> list[int]:
    return [m.index for m in draft.messages]


def numbered(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the keys by which a dialect knows them."""
    return [{**m, "x-uid": i} for i, m in enumerate(told)]


@every_dialect
@given(turns=turns, window=st.integers(300, 1500))
def test_cuts_are_seldom_deep_and_stay_where_they_are(
    dialect: Dialect, turns: list[tuple[int, int, int]], window: int
) -> None:
    told = conversation(turns, opening=4)
    starts = [i for i, m in enumerate(told) if m["role"] not in ("system", "tool")]
    sent = drafts(dialect, told, starts, window)
    for before, after in itertools.pairwise(sent):
        seen = indices(before)[-1] + 1
        left = [i for i in indices(after) if i < seen]
        if left == indices(before):
            continue  # the request before is a prefix of this one
        assert set(left) < set(indices(before))  # what was dropped never comes back
        pinned = after.fixed + sum(b.tokens for b in after.blocks if b.pinned)
        newest = after.blocks[-1].tokens
        freed = before.prompt + newest - after.prompt
        if pinned <= after.room:
            assert after.prompt <= pinned + LOW * (after.room - pinned)
            assert freed >= (1 - LOW) * (after.room - pinned) - 1e-6
        else:
            assert after.prompt == pinned


@given(dialect=st.sampled_from(DIALECTS), turns=fewer, window=st.integers(300, 800))
@settings(max_examples=40)  # each plans some sixty turns
def test_what_is_joined_for_turns_stays_as_it_is_until_the_next_cut(
    dialect: Dialect, turns: list[tuple[int, int, int]], window: int
) -> None:
    told = exchanges(turns, opening=4)
    starts = [i for i, m in enumerate(told) if m["role"] not in ("system", "tool")]
    known = facts(window)
    strict = replace(known, window=replace(known.window, alternates=True))
    plain, joined = drafts(dialect, told, starts, window), drafts(dialect, told, starts, window, strict)
    for (before, after), (then, now) in zip(itertools.pairwise(plain), itertools.pairwise(joined), strict=True):
        if indices(after)[: len(indices(before))] == indices(before):
            assert raws(now)[: len(raws(then))] == raws(then)


@every_dialect
def test_a_long_run_is_cut_as_often_as_its_length_asks_for(dialect: Dialect) -> None:
    told = [user(words(20))]
    for i in range(100):
        told += tool_round(f"c{i}", words(40, f"r{i}x"))
    window, ask, block = 2000, 100, 53 + 4
    sent = drafts(dialect, numbered(told), list(range(1, len(told), 2)), window)
    cuts = [t for t in range(1, len(sent)) if indices(sent[t])[: len(indices(sent[t - 1]))] != indices(sent[t - 1])]
    grown = 100 * block
    assert 1 <= len(cuts) <= grown / (0.4 * (window - ask - 24 - block) - block) + 1
    assert min(b - a for a, b in itertools.pairwise(cuts)) >= 10


@every_dialect
def test_the_cut_does_not_depend_on_what_was_sent_before(dialect: Dialect) -> None:
    told = [user(words(20))]
    for i in range(60):
        told += tool_round(f"c{i}", words(40, f"r{i}x"))
    told = numbered(told)
    alone = drafts(dialect, told, [0], 1500)[-1]
    later = drafts(dialect, told, list(range(1, len(told), 2)), 1500)[-1]
    assert indices(alone) == indices(later)
