"""Messages that may not stand where a cut left them."""

from __future__ import annotations

import json
from typing import Any

from proxy.apis.anthropic_messages.request import parse
from proxy.fit.placement import WHY, in_place
from proxy.fit.plan import start
from proxy.model.plan import Draft
from tests.makers import facts, ladder

ASK, ANSWER, SYSTEM = ({"role": role, "content": "x"} for role in ("user", "assistant", "system"))


def draft(*told: dict[str, Any], pins: tuple[int, ...] = ()) -> Draft:
    return start(parse(json.dumps({"model": "m", "messages": told}).encode(), pins), ladder(), facts(10_000))


def without(before: Draft, *places: int) -> Draft:
    """The draft without some of its blocks."""
    return before.with_blocks([block for place, block in enumerate(before.blocks) if place not in places])


def kept(found: Draft) -> list[int]:
    return [m.index for m in found.messages]


def test_what_lost_its_answer_is_dropped_and_said_to_be() -> None:
    before = draft(ASK, SYSTEM, ANSWER, ASK)
    after = without(before, 1)
    found = in_place(before, after)
    assert kept(after) == [0, 1, 3] and kept(found) == [0, 3]
    assert [(drop.index, drop.why) for drop in found.drops] == [(1, WHY)] and found.prompt < after.prompt


def test_what_stands_right_stays() -> None:
    before = draft(ASK, ANSWER, ASK, SYSTEM, ANSWER, ASK)
    after = without(before, 1)
    assert in_place(before, after) is after and in_place(before, before) is before


def test_what_stood_wrong_before_is_the_clients() -> None:
    before = draft(ASK, SYSTEM, ASK, ANSWER, ASK)
    after = without(before, 2)
    assert in_place(before, after) is after


def test_what_the_client_pinned_stays() -> None:
    before = draft(ASK, SYSTEM, ANSWER, ASK, pins=(1,))
    after = without(before, 1)
    assert in_place(before, after) is after


def test_a_draft_of_nothing_is_left_alone() -> None:
    before = draft(ASK)
    assert in_place(before, without(before, 0)).blocks == ()


def test_what_a_client_misplaced_costs_no_other_message() -> None:
    before = draft(ASK, ANSWER, ASK, ANSWER, ASK, SYSTEM, ASK)
    after = without(before, 1, 2)
    assert kept(after) == [0, 3, 4, 5, 6] and in_place(before, after) is after
