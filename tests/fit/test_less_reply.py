"""The reply that a cut leaves room for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.config.rules import load_rules
from proxy.fit.less_reply import as_asked, with_less_reply
from proxy.fit.plan import plan
from proxy.model.structs import replace
from tests.makers import draft, facts, prompt, system, tool_round, user, words


def run(instructions: int, count: int, size: int) -> list[dict[str, Any]]:
    """A run of an agent with instructions of so many words, in parts of a thousand, that read so many files."""
    parts = [system(words(min(1000, instructions - i), f"rule{i}x")) for i in range(0, instructions, 1000)]
    found = [*parts, user("Read all files.")]
    for i in range(count):
        found += tool_round(f"c{i}", words(size, f"f{i}x"), "Read", json.dumps({"path": f"src/f{i}.py"}))
    return found


@pytest.mark.parametrize(("instructions", "limit", "reserve"), [(10, 500, 500), (6000, 2000, 2000), (6000, 50, 50)])
def test_a_reply_that_leaves_the_history_room_keeps_its_limit(instructions: int, limit: int, reserve: int) -> None:
    before = draft(run(instructions, 1, 10), 10_000, max_tokens=limit)
    assert with_less_reply(before) is before and before.held == reserve


@pytest.mark.parametrize("limit", [3500, None])
def test_a_reply_that_would_leave_hardly_more_than_the_instructions_gets_a_quarter_of_the_rest(
    limit: int | None,
) -> None:
    before = draft(run(6100, 1, 10), 10_000, max_tokens=limit)
    before = before if limit else replace(before, default_reserve=3500)
    less = with_less_reply(before)
    assert 900 <= less.held <= 1000 and less.room > before.room + 2400
    assert as_asked(less, before) == before


def test_the_floor_is_reserved_in_any_case() -> None:
    before = draft(run(9000, 1, 10), 10_000, max_tokens=900)
    assert with_less_reply(before).held == 500
    assert with_less_reply(draft(run(9500, 1, 10), 10_000, max_tokens=500)).held == 500


@pytest.mark.parametrize("ladder", ["default", "agent"])
def test_an_agent_with_long_instructions_and_a_large_reply_limit_gets_what_it_reads(ladder: str) -> None:
    """21,700 of 30,000 tokens are tools and instructions, and the client reserves 8,000: of each file that it read next
    nothing was left, though 7,700 tokens were free."""
    ladders = load_rules(None).ladders
    for count in range(1, 14):
        told = run(21_700, count, 2600)
        made = plan(prompt(told, max_tokens=8000), ladders[ladder], facts(30_000))
        assert made.fits and made.draft.reply is not None and made.draft.reply >= 500
        newest = told[-1]["content"]
        assert newest in "\n".join(m.text() for m in made.draft.messages), count
