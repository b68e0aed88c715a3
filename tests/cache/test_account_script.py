"""What a worker tells the script, and what it answers; `test_accounts` runs it."""

from __future__ import annotations

import pytest

from proxy.cache.account_script import KEEP_MS, LEASE_MS, SCRIPT, Found, Write, found


def test_the_arguments_are_in_the_order_of_the_script() -> None:
    write = Write("w", 3_600, 7, 100, 20, 90, 400, 2, 1_000, (800, 867, 933), 3, (5, 6))
    figures = ["w", 3_600_000, 7, 100, 20, 90, 400, 2, 1_000, 800, 867, 933, LEASE_MS, KEEP_MS, 3, 5, 6]
    assert write.arguments == figures
    assert "for i = 16, #ARGV" in SCRIPT and figures.index(5) + 1 == 16, "the amounts that are asked for"


def test_an_answer_is_read_with_what_became_of_each_ask() -> None:
    assert found([7, 500, 30, 1, 60_000, 1, 0], 2) == Found(7, 500, 30, 1, 60.0, [1, 0])
    assert found([0, -1, -1, 0, -1], 0) == Found(0, 0, 0, 0, -0.001, [])


@pytest.mark.parametrize("answer", [None, b"OK", [1, 2, 3, 4], [1, 2, 3, 4, b"5"], [1, 2, 3, 4, 5, 6, 7]])
def test_anything_else_is_no_answer(answer: object) -> None:
    assert found(answer, 1) is None
