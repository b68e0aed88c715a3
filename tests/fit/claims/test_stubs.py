"""A client's stub says what of the earlier result is not sent, where there is room to say it."""

from __future__ import annotations

import pytest

from proxy.fit.claims.stubs import CUT, MISSING, noted
from proxy.model.claims import Back
from proxy.model.conversation import Block
from proxy.model.plan import Draft
from proxy.model.structs import replace
from tests.makers import contents, draft, tool_round, user

TEXT = "\n".join(f"line {i}" for i in range(10))
BACKS = [Back("later", "first")]


def made(window: int = 4_000) -> Draft:
    return draft([user("q"), *tool_round("first", TEXT), *tool_round("later", "unchanged")], window)


def shortened(found: Draft, lines: int) -> Draft:
    block: Block = found.blocks[1]
    message = block.messages[1]
    (part,) = [part for part in message.parts() if part.editable]
    cut = message.edit([(part, "\n".join(TEXT.split("\n")[:lines]))], "cut")
    first, _, last = found.blocks
    return found.with_blocks([first, replace(block, messages=found.recount((block.messages[0], cut))), last])


def test_a_stub_counts_the_lines_that_are_left() -> None:
    found = noted(made(), shortened(made(), 3), BACKS)
    assert contents(found)[-1] == "unchanged\n" + CUT.format(kept=3, lines=10)


def test_a_stub_says_that_its_result_is_gone() -> None:
    first = made()
    found = noted(first, first.with_blocks([first.blocks[0], first.blocks[2]]), BACKS)
    assert contents(found)[-1] == f"unchanged\n{MISSING}"


@pytest.mark.parametrize("backs", [[], [Back("first", "later")], [Back("later", "unknown")], [Back("gone", "first")]])
def test_a_stub_that_is_right_is_left_alone(backs: list[Back]) -> None:
    now = shortened(made(), 3) if backs and backs[0].target != "first" else made()
    assert noted(made(), now, backs) is now


def test_where_there_is_no_room_for_it_nothing_is_said() -> None:
    now = shortened(made(), 3)
    sizes = (replace(now, window=replace(now.window, tokens=tokens)) for tokens in range(1, 4_000))
    tight = next(one for one in sizes if one.excess <= 0)
    assert noted(made(), tight, BACKS) is tight
