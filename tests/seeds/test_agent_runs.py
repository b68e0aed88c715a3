"""Seed 004: large tool results become a preview with count and metadata, and old messages of a long run go."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.fit.plan import plan
from proxy.fit.relevance.results.tables import expanded
from proxy.fit.steps.prune_history import newest_messages
from proxy.model.limits import Window
from proxy.model.plan import Facts, Plan
from proxy.model.structs import replace
from proxy.tokens.meter import meter_for
from tests.laws.laws import assert_valid
from tests.makers import WordMeter, assistant, draft, fields, prompt, system, tool_round, user, words
from tests.seeds.sizes import assert_fits, planned, shipped, text
from tests.tokens.remembering import Remembering

QUESTION = "What was discussed in all hands meetings?"
MODEL = "gpt-4o"


def meetings(tokens: int, year: int = 2025) -> str:
    """A result of a year's 23 meetings with their metadata, of so many tokens."""
    metadata = {"freshness": {"latest": f"{year}-10-30", "days": 4}, "sources": {"meetings": 23}, "confidence": "high"}
    content = text((tokens - 23 * 12) // 23, MODEL)
    rows = [{"meeting_title": f"All hands {i}", "content": f"{i}{content}"} for i in range(23)]
    return json.dumps({"status": "success", "results": rows, "metadata": metadata})


def run(*results: str, prompt_tokens: int = 8000) -> list[dict[str, Any]]:
    """The system prompt, the question, and a round of calls for each result."""
    told = [system("You are Sybil." + text(prompt_tokens - 11, MODEL)), user(QUESTION)]
    for i, result in enumerate(results):
        told += tool_round(f"call{i:05}", result, name="execute_cypher_query", arguments='{"query": "MATCH (m)"}')
    return told


def results(found: Plan) -> list[str]:
    return [m.text() for m in found.draft.messages if m.role == "tool"]


def counted(said: str) -> int:
    return meter_for(prompt([user("x")], model=MODEL), MODEL, Remembering()).text(said)


def test_a_result_of_50_000_tokens_comes_out_at_about_2_000_with_count_and_metadata() -> None:
    """The oldest first, and no further than the window asks for: the newest keep more than the seed's 2,000 tokens."""
    large = [meetings(50_000, 2018 + i) for i in range(8)]
    assert all(49_000 < counted(one) < 51_000 for one in large)
    found = planned(run(*large), shipped("default"), model=MODEL, window=131_072, max_tokens=4000)
    oldest, second, *_, newest = results(found)
    assert 10_000 < counted(newest) < 20_000  # what is to be read now gets more
    assert all(1500 < counted(one) <= 2000 for one in (oldest, second))
    for whole, told in zip(large, (expanded(json.loads(one)) for one in results(found)), strict=True):
        assert told["status"] == "success" and told["metadata"] == json.loads(whole)["metadata"]
        assert told["result_count"] == 23 and "23 total results" in told["note"]
        assert 2 <= len(told["results"]) < 23 and "All hands" in told["results"][0]["meeting_title"]
    assert_fits(found)


def test_the_agent_ladder_keeps_a_preview_of_two_within_5_000_characters() -> None:
    large = [meetings(50_000, 2018 + i) for i in range(8)]
    found = planned(run(*large), shipped("agent"), model=MODEL, window=131_072, max_tokens=4000)
    for whole, short in zip(large, results(found)[:2], strict=False):
        told = json.loads(short)
        assert len(short) <= 5000 and counted(short) <= 2000
        assert told["result_count"] == 23 and told["note"].startswith("[Truncated") and "23 total" in told["note"]
        assert len(told["results"]) == 2
        assert told["metadata"] == json.loads(whole)["metadata"]
        assert len(told["results"][0]["content"]) <= 501  # the seed's 500 characters, and a mark
    assert_fits(found)


def test_a_plain_text_result_over_5_000_characters_is_cut_there_and_says_so() -> None:
    told = [f"{text(2000, MODEL)} {i}" for i in range(30)]
    found = planned(run(*told), shipped("agent"), model=MODEL, window=32_072, max_tokens=4000)
    assert results(found)[-1] == told[-1]
    cut = [short for short in results(found) if short not in told]
    assert len(cut) > 4 and all(4000 < len(short) <= 5000 for short in cut[:-1])
    assert all(short.endswith("[Truncated for context management]") for short in cut[:-1])  # the last: as far as needed
    assert_fits(found)


def test_a_result_within_5_000_characters_is_left_alone() -> None:
    small = json.dumps({"results": [{"a": i} for i in range(100)]})
    found = planned(run(small, text(130_000, MODEL)), shipped("agent"), model=MODEL, max_tokens=4000)
    assert results(found)[0] == small


def long_run(*between: dict[str, Any], count: int = 35) -> list[dict[str, Any]]:
    """System, question, what the model said then, and calls and results up to so many messages."""
    told = [system(words(100)), user(QUESTION), *between]
    while len(told) < count:
        told += tool_round(f"c{len(told)}", words(400, f"r{len(told)}x"))
    return told


def fitted(told: list[dict[str, Any]]) -> Plan:
    return plan(prompt(told, max_tokens=500), shipped("agent"), Facts(Window(6000), WordMeter()))


def test_35_messages_become_22_with_system_question_and_the_last_20() -> None:
    told = long_run(assistant("I shall look."))
    found = fitted(told)
    assert len(told) == 35 and found.before.excess > 0
    assert [m.index for m in found.draft.messages] == [0, 1, *range(15, 35)]
    assert [n.step for n in found.notes] == ["prune_history"]
    assert_fits(found)


def test_a_pair_is_never_split_though_fewer_than_20_stay() -> None:
    told = [{**m, "x-uid": i} for i, m in enumerate([*long_run(count=34), assistant("so far")])]
    found = fitted(told)
    assert len(told) == 35 and [m.index for m in found.draft.messages] == [0, 1, *range(16, 35)]
    assert_valid([fields(m) for m in found.draft.messages], opened=99)


def test_25_messages_are_not_too_many() -> None:
    before = draft(long_run(assistant("I shall look."), count=25), 6000)
    assert len(newest_messages(before.blocks, 25, 20)) == len(before.blocks)
    assert len(newest_messages(before.blocks, 24, 20)) < len(before.blocks)


@pytest.mark.parametrize("ladder", ["default", "agent", "lossless"])
@pytest.mark.parametrize("model", [MODEL, "mistral-large-latest"])
def test_160_907_tokens_fit_131_072(model: str, ladder: str) -> None:
    told = run(*(meetings(25_000, 2020 + i) for i in range(6)))
    exact = planned(told, replace(shipped(ladder), steps=()), model=MODEL, window=131_072).before.prompt
    told.append(assistant(text(160_907 - exact - 4, MODEL)))
    found = planned(told, shipped(ladder), model=model, window=131_072)
    if model == MODEL:
        assert found.before.prompt == 160_907
    assert found.before.excess > 0
    assert_fits(found)
