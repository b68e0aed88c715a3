"""Reasoning behind what a cut changed."""

from __future__ import annotations

import json
from typing import Any

from proxy.apis.anthropic_messages.request import parse
from proxy.fit.binding import WHY, unbound
from proxy.fit.plan import start
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace
from tests.makers import WordMeter, ladder

THINKING = {"type": "thinking", "thinking": "t", "signature": "s"}
ASK = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": [THINKING, {"type": "text", "text": "a"}]}
CALLS = {"role": "assistant", "content": [THINKING, {"type": "tool_use", "id": "t", "name": "f", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}


def draft(*told: dict[str, Any], binds: bool | None = True) -> Draft:
    asked = parse(json.dumps({"model": "m", "messages": told}).encode())
    return start(asked, ladder(), Facts(Window(10_000, binds=binds), WordMeter()))


def without(before: Draft, *places: int) -> Draft:
    return before.with_blocks([block for place, block in enumerate(before.blocks) if place not in places])


def thinking(found: Draft) -> list[int]:
    """The messages that still have reasoning."""
    return [m.index for m in found.messages if b"thinking" in m.raw]


def test_reasoning_before_the_change_stays_and_all_behind_it_goes() -> None:
    before = draft(ASK, ANSWER, ASK, ANSWER, ASK, CALLS, RESULT)
    found = unbound(before, without(before, 2))
    assert thinking(found) == [1] and [m.index for m in found.messages] == [0, 1, 3, 4, 5, 6]
    changed = [m for m in found.messages if m.why]
    assert [(m.index, m.why) for m in changed] == [(3, WHY), (5, WHY)]
    assert json.loads(changed[1].raw)["content"] == CALLS["content"][1:]


def test_reasoning_of_the_very_block_that_changed_goes_from_the_change_on() -> None:
    before = draft(ASK, CALLS, RESULT, ANSWER)
    call, result = before.blocks[1].messages
    shorter = replace(before.blocks[1], messages=(call, replace(result, raw=result.raw.replace(b'"r"', b'"s"'))))
    after = before.with_blocks([before.blocks[0], shorter, before.blocks[2]])
    assert thinking(unbound(before, after)) == [1]


def test_a_message_of_reasoning_alone_is_dropped() -> None:
    before = draft(ASK, ANSWER, {"role": "assistant", "content": [THINKING]}, ASK)
    found = unbound(before, without(before, 0))
    assert [m.index for m in found.messages] == [1, 3] and (2, WHY) in [(d.index, d.why) for d in found.drops]


def test_where_nothing_changed_or_nothing_is_bound_nothing_goes() -> None:
    before = draft(ASK, ANSWER, ASK, ANSWER)
    assert unbound(before, before) is before
    moved = before.with_blocks(before.blocks)
    assert unbound(before, moved) is moved
    for binds in (None, False):
        other = draft(ASK, ANSWER, ASK, ANSWER, binds=binds)
        cut = without(other, 0)
        assert unbound(other, cut) is cut


def test_what_has_no_reasoning_is_left_alone() -> None:
    before = draft(ASK, {"role": "assistant", "content": "a"}, ASK)
    cut = without(before, 0)
    assert unbound(before, cut) is cut
