"""What cuts cost is billed by the contract of the cache, from the first request that no longer fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.bench.prices import Bills, Spent, contracts, pieces, script

SYSTEM = {"role": "system", "content": "s" * 8_000}
ASKED = {"role": "user", "content": "u" * 8_000}
SAID = {"role": "assistant", "content": "a" * 8_000}
TOLD = {"role": "tool", "content": "t" * 8_000}


def count(message: Mapping[str, Any]) -> int:
    return len(message["content"]) // 4  # 2,000 each


def billed(match: str, *requests: Sequence[Mapping[str, Any]]) -> Spent:
    bills = Bills(contracts()[match], Spent())
    for place, request in enumerate(requests):
        bills.add(request, count, billed=place > 0)
    return bills.spent


def test_what_was_sent_before_the_first_cut_is_read_and_not_billed() -> None:
    spent = billed("prefix", (SYSTEM, ASKED), (SYSTEM, ASKED, SAID, TOLD))
    assert (spent.requests, spent.tokens, spent.written) == (1, 8_000, 0)
    assert 3_800 < spent.read <= 4_000  # whole steps of 128
    assert spent.price == pytest.approx(8_000 - 0.9 * spent.read)


def test_a_change_behind_the_system_prompt_costs_more_where_only_breakpoints_are_read() -> None:
    before, after = (SYSTEM, SAID, ASKED, SAID, TOLD), (SYSTEM, SAID, TOLD, SAID, ASKED)
    prefix, breakpoint = billed("prefix", before, after), billed("breakpoint", before, after)
    assert prefix.read > 3_800
    assert breakpoint.read == 0
    assert breakpoint.price == pytest.approx(1.25 * breakpoint.written + breakpoint.tokens - breakpoint.written)


def test_the_newest_breakpoint_stands_behind_the_newest_message_of_a_user_or_a_tool() -> None:
    assert pieces((SYSTEM, ASKED, SAID), count).newest == pieces((SYSTEM, ASKED), count).newest
    assert pieces((SYSTEM, SAID), count).newest == -1
    assert pieces((SYSTEM, ASKED), count).tokens[-1] == 4_000


def test_a_folder_without_the_script_of_runs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        script(tmp_path)
    assert ended.value.code == 2
    assert "there is no bench/work_bench.py" in capsys.readouterr().err
