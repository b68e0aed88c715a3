"""Long tool results, shortened to the room there is, or to the cap."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.results.read_on import ArgumentNames
from proxy.fit.steps.trim_tool_results import Params, allowances, apply
from proxy.model.plan import Draft
from proxy.model.structs import replace
from tests.laws.meters import CharMeter
from tests.makers import assistant, contents, draft, facts, fields, system, tool_round, user, words

KNOWN = facts(1000)


def trimmed(messages: list[dict[str, Any]], window: int, limit: int | None = 100, **params: Any) -> Draft:
    return apply(draft(messages, window, max_tokens=limit), KNOWN, Params(**params)).made()


def sizes(found: Draft) -> list[int]:
    return [len(text.split()) for text in contents(found)]


def rounds(*size: int) -> list[dict[str, Any]]:
    return [m for i, n in enumerate(size) for m in tool_round(f"c{i}", words(n, f"r{i}x"))]


def parallel(*size: int) -> list[dict[str, Any]]:
    """One turn with several calls, and a result of so many words for each."""
    pairs = [tool_round(f"c{i}", words(n, f"r{i}x")) for i, n in enumerate(size)]
    calls = [pair[0]["tool_calls"][0] for pair in pairs]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *(pair[1] for pair in pairs)]


def test_a_result_that_the_room_holds_is_left_whole_though_it_is_over_the_cap() -> None:
    before = draft([user("q"), *rounds(500), assistant("a"), user("b")], 1000, max_tokens=100)
    assert apply(before, KNOWN, Params(cap_tokens=50)) is before


def test_the_newest_result_comes_before_older_ones_and_may_take_all_the_room_that_is_left() -> None:
    after = trimmed([user("q"), *rounds(200, 5000)], 1000, cap_tokens=50)
    assert sizes(after)[2] <= 50 and after.excess <= 0 and after.prompt > 800
    assert [m.why for m in after.messages] == ["", "", "tool result over its cap", "", "tool result over its cap"]


def test_the_oldest_results_are_shortened_first_and_only_down_to_the_lower_mark() -> None:
    after = trimmed([user("q"), *rounds(*[150] * 6)], 1000, cap_tokens=50)
    assert sizes(after)[2] <= 50 and sizes(after)[-1] == 150 and sizes(after)[2::2] == sorted(sizes(after)[2::2])
    assert 0.5 * after.room < after.prompt <= 0.65 * after.room


def test_what_is_shortened_stays_so_until_the_room_is_passed_again() -> None:
    told = [user("q"), *rounds(*[60] * 60)]
    sent = [contents(trimmed(told[: 1 + 2 * n], 2000, cap_tokens=50)) for n in range(31, 36)]
    assert all(after[: len(before)] == before for before, after in itertools.pairwise(sent))
    long = [trimmed([user("q"), *rounds(*[150] * n)], 2000, cap_tokens=50) for n in range(13, 22)]
    cuts = [contents(b)[: len(contents(a))] != contents(a) for a, b in itertools.pairwise(long)]
    assert 1 <= sum(cuts) <= 3 and all(draft.excess <= 0 for draft in long)
    assert all(sizes(draft)[-1] == 150 for draft in long)


def test_where_the_newest_finds_no_room_beside_the_least_of_the_others_a_step_that_drops_blocks_is_due() -> None:
    sent = [[user("q"), *rounds(*[400] * n, 500)] for n in range(16, 26)]
    made = [apply(draft(told, 5000, max_tokens=100), KNOWN, Params(cap_tokens=200)) for told in sent]
    due = [after for after in made if after.excess > 0 >= after.made().excess]
    assert due
    newest = due[0].blocks[-1]
    assert newest.within(newest.whole).tokens == newest.whole and newest.made().tokens < newest.whole


def test_a_result_that_is_not_the_newest_keeps_more_than_the_cap_where_there_is_room() -> None:
    after = trimmed([user("q"), *rounds(800, 700, 30), user("b"), assistant(words(300))], 1000, cap_tokens=100)
    costs = [m.tokens for m in after.messages if m.role == "tool"]
    assert costs[0] <= 100 < costs[1] and costs[2] == 34 and 0.5 * after.room < after.prompt <= after.room


def test_where_the_cap_will_not_be_enough_nothing_is_made_before_it_is_known_to_stay() -> None:
    before = draft([user("q"), *rounds(*[200] * 20, 5000)], 1000, max_tokens=100)
    after = apply(before, KNOWN, Params(cap_tokens=100))
    assert contents(after) == contents(before) and after.prompt < before.prompt / 2
    assert [b.made().tokens <= b.tokens for b in after.blocks] == [True] * 22
    made = after.made()
    assert made.prompt <= after.prompt and all(m.tokens <= 100 for m in made.messages if m.role == "tool")
    assert made.made() is made and apply(after, KNOWN, Params(cap_tokens=100)).made().prompt == made.prompt


def test_what_is_shortened_to_less_than_the_cap_may_be_enough() -> None:
    rows = json.dumps([{"id": i, "text": words(90, f"r{i}x")} for i in range(50)])
    calls = [m for i in range(10) for m in tool_round(f"c{i}", rows)]
    after = apply(draft([user("q"), *calls], 1500, max_tokens=100), KNOWN, Params(cap_tokens=150))
    assert after.excess <= 0 and after.prompt == after.made().prompt and len(contents(after)) == 21


def test_an_answer_behind_the_newest_result_is_not_counted_on_to_go() -> None:
    after = trimmed([user("q"), *rounds(5000), assistant(words(100)), user("b")], 1000, cap_tokens=2000)
    assert 800 < after.prompt <= after.room and [m.why for m in after.messages if m.role != "tool"] == [""] * 4


def test_a_newest_result_that_fills_the_room_gives_way_once_another_is_newer() -> None:
    told = [user("q"), *rounds(300, 5000)]
    assert sizes(trimmed(told, 1000, cap_tokens=50))[4] > 450
    later = trimmed([*told, *rounds(5000)], 1000, cap_tokens=50)
    assert sizes(later)[2] <= 50 and sizes(later)[6] > 60 and later.excess <= 0


def test_results_that_not_even_stubs_of_them_fit_become_stubs() -> None:
    after = trimmed([user(words(700)), *parallel(*[60] * 20)], 1000)
    assert after.excess > 0 and set(sizes(after)[2:]) == {22}


def test_the_newest_result_is_never_cut_under_the_cap_while_the_pins_leave_room() -> None:
    after = trimmed([user("q"), assistant(words(900)), *rounds(500)], 1000, cap_tokens=300)
    assert 150 < sizes(after)[3] <= 225 and after.excess > 0  # pruning the old answer will make the room
    after = trimmed([user(words(850)), *rounds(500)], 1000, cap_tokens=200)
    assert sizes(after)[2] < 50 and after.excess <= 0  # here nothing else can give way


def test_results_of_parallel_calls_share_their_room_the_small_ones_whole() -> None:
    after = trimmed([user("q"), *parallel(30, 2000, 3000)], 1000)
    small, one, two = sizes(after)[2:]
    assert small == 30 and abs(one - two) <= 2 and after.excess <= 0


def test_json_keeps_rows_and_their_count() -> None:
    rows = [{"id": i, "text": words(9)} for i in range(100)]
    told = [user("q"), *tool_round("c", json.dumps({"results": rows, "metadata": {"source": "s"}}))]
    found = json.loads(contents(trimmed(told, 700))[2])
    assert found["result_count"] == 100 and found["metadata"] == {"source": "s"} and len(found["results"]["rows"]) > 20
    found = json.loads(contents(trimmed(told, 700, preview=2))[2])
    assert len(found["results"]) == 2


def test_characters_are_heeded_where_they_are_set_whatever_the_room() -> None:
    told = [user("q"), *rounds(300), assistant(words(900)), user("b")]
    assert len(contents(trimmed(told, 1000, cap_chars=500))[2]) <= 500
    assert sizes(trimmed(told, 1000, cap_chars=50_000))[2] == 300


def test_seed_004s_results_over_5000_characters_keep_a_preview_of_two_rows_their_count_and_metadata() -> None:
    rows = [{"id": i, "title": words(9), "text": words(20)} for i in range(60)]
    results = [json.dumps({"results": rows, "metadata": {"source": n}}) for n in range(3)]
    assert all(len(text) > 5000 for text in results)
    told = [user("q"), *[m for n, text in enumerate(results) for m in tool_round(f"c{n}", text)], user("b")]
    made = contents(trimmed(told, 5000, cap_chars=5000, preview=2))
    found = json.loads(made[2])
    assert len(found["results"]) == 2 and found["result_count"] == 60 and found["metadata"] == {"source": 0}
    assert len(made[2]) <= 5000 and made[-2] == results[-1]


def test_the_newest_can_be_left_whole() -> None:
    after = trimmed([user("q"), *rounds(500, 500, 500), user("b")], 1000, cap_tokens=50, keep_newest=2)
    assert sizes(after)[4] == sizes(after)[6] == 500 and sizes(after)[2] < 50


def test_what_the_client_pinned_is_left_whole() -> None:
    pinned = draft([user("q"), *rounds(500), assistant("a"), user("b")], 500, max_tokens=100)
    blocks = [b if not b.has_results else type(b)(b.messages, pinned=True) for b in pinned.blocks]
    before = pinned.with_blocks(blocks)
    assert apply(before, KNOWN, Params(cap_tokens=50)) is before


def test_a_result_in_parts_keeps_its_image_and_pays_for_it() -> None:
    call, result = tool_round("c", "")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    result["content"] = [{"type": "text", "text": "word " * 4000}, image]
    before = draft([user("q"), call, result], 1000, CharMeter(), max_tokens=100)
    after = apply(before, KNOWN, Params())
    assert after.excess <= 0 and fields(list(after.messages)[2])["content"][1] == image


def test_results_that_cost_more_when_escaped_are_not_cut_to_nothing() -> None:
    told = parallel(9, 9)
    for result in told[1:]:
        result["content"] = '"\n' * 4000
    before = draft([user("q"), *told, assistant("a" * 3000), user("b")], 3000, CharMeter(), max_tokens=100)
    after = apply(before, KNOWN, Params(cap_tokens=600))
    assert all(len(m.text()) > 900 for m in after.messages if m.role == "tool")


def test_a_result_whose_short_form_would_cost_more_is_left_alone() -> None:
    told = parallel(9, 9)
    told[1]["content"] = json.dumps([{"a": 1}] * 40)
    told[2]["content"] = words(30)
    before = draft([user("q"), *told, assistant("a" * 3000), user("b")], 900, CharMeter(), max_tokens=100)
    assert apply(before, KNOWN, Params(cap_chars=300)).prompt <= before.prompt


def test_a_reply_limit_that_is_too_long_costs_no_result_anything() -> None:
    before = draft([user("q"), *rounds(300), user("b")], 1000, max_tokens=990)
    assert before.excess > 0 and apply(before, KNOWN, Params(cap_tokens=50)) is before


def test_a_conversation_without_results_is_the_same_draft() -> None:
    before = draft([system(words(900)), user(words(900))], 1000)
    assert apply(before, KNOWN, Params()) is before


@given(costs=st.lists(st.integers(0, 500), max_size=6), room=st.integers(-50, 1500))
def test_allowances_stay_within_the_room_and_waste_none_of_it(costs: list[int], room: int) -> None:
    shares = allowances(costs, room)
    assert all(0 <= share <= cost for share, cost in zip(shares, costs, strict=True))
    assert sum(shares) <= max(0, room)
    assert sum(shares) >= min(sum(costs), room) - len(costs)
    cut = [share for share, cost in zip(shares, costs, strict=True) if share < cost]
    assert not cut or max(shares) <= min(cut) + len(costs)


def test_the_note_names_lines_by_the_arguments_that_a_rule_names() -> None:
    text = "\n".join(words(4, f"l{n}x") for n in range(500))
    told = [user("q"), *tool_round("c", text, "read", '{"path": "a.txt", "ab": 40, "wie_viele": 500}')]
    made = contents(trimmed(told, 700, arguments=ArgumentNames(offsets=("ab",), limits=("wie_viele",))))[2]
    assert "(ab " in made and ", wie_viele " in made
    assert "… lines " not in contents(trimmed(told, 700))[2]


@pytest.mark.parametrize("wrong", [{"cap_tokens": 23}, {"cap_chars": 99}, {"keep_newest": -1}, {"preview": 0}])
def test_parameters_that_would_leave_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cap|keep_newest"):
        Params(**wrong)


def test_in_a_small_window_the_least_of_a_result_is_a_tenth_of_the_room_down_to_three_quarters_of_the_cap() -> None:
    log = "\n".join(words(4, f"l{n}x") for n in range(125))

    def oldest(window: int) -> int:
        told = [user("q"), *[m for i in range(window // 200) for m in tool_round(f"c{i}", log)], user(words(99))]
        return next(m.tokens for m in trimmed(told, window, cap_tokens=200).messages if m.role == "tool")

    assert 100 < oldest(1200) < oldest(1900) < oldest(3000)
    assert oldest(1200) <= 150 and oldest(1900) <= 180 and oldest(3000) <= 200


def test_a_second_rung_shortens_further_what_the_first_left_for_later() -> None:
    log = "\n".join(words(4, f"l{n}x") for n in range(250))
    calls = [m for i in range(20) for m in tool_round(f"c{i}", log)]
    first = apply(draft([user("q"), *calls], 2000, max_tokens=100), KNOWN, Params(cap_tokens=400))
    second = apply(first, KNOWN, Params(cap_tokens=200)).made()
    assert any(b.later for b in first.blocks) and first.made().prompt > second.prompt
    assert all(m.tokens <= 200 for m in second.messages if m.role == "tool")


def test_where_the_least_reply_leaves_room_it_is_made_at_once_for_the_clamp_to_count_on() -> None:
    calls = [m for i in range(14) for m in tool_round(f"c{i}", words(500))]
    before = replace(draft([user("q"), *calls], 2000, max_tokens=1000), ladder_floor=100)
    after = apply(before, KNOWN, Params(cap_tokens=150))
    assert after.prompt > 1.25 * after.room and all(block.later is None for block in after.blocks)
    assert after.excess > 0 >= replace(after, reply=100).excess
