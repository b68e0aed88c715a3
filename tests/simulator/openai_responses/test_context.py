"""What the server itself leaves out of a prompt that is long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.simulator.openai_responses.context import compaction, compacts, truncated


def counted(body: Mapping[str, Any]) -> int:
    return 10 * len(body["input"])


def items(number: int) -> dict[str, Any]:
    return {"model": "m", "input": [{"role": "user", "content": str(i)} for i in range(number)]}


def test_the_first_items_go_until_it_fits_and_the_last_one_stays() -> None:
    assert truncated(items(9), 45, counted) == 40
    assert truncated(items(9), 90, counted) == 90
    assert truncated(items(9), 5, counted) == 10


def test_it_compacts_above_the_threshold_alone() -> None:
    body = {"context_management": [{"type": "compaction", "compact_threshold": 1_000}]}
    assert compacts(body, 1_001) and not compacts(body, 1_000)
    assert not compacts({}, 10**6) and not compacts({"context_management": [{"type": "compaction"}]}, 10**6)


def test_a_compaction_is_sealed_for_its_owner() -> None:
    assert compaction("a") == compaction("a") != compaction("b")
