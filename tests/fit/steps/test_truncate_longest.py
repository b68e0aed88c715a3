"""The last resort."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.apis.openai_embeddings.request import parse as parse_embeddings
from proxy.fit.plan import start
from proxy.fit.shorten import LEAST
from proxy.fit.steps.truncate_longest import SLACK, Params, apply
from proxy.model.limits import Margin, Window
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace
from proxy.tokens.meter import meter_for
from tests.laws.meters import CharMeter
from tests.makers import (
    WordMeter,
    assistant,
    contents,
    draft,
    facts,
    fields,
    ladder,
    prompt,
    system,
    tool_round,
    user,
    words,
)
from tests.tokens.remembering import Remembering

KNOWN = facts(1000)


def cut(messages: list[dict[str, Any]], window: int = 1000, limit: int | None = 100, **params: Any) -> Draft:
    return apply(draft(messages, window, max_tokens=limit), KNOWN, Params(**params))


def sizes(found: Draft) -> list[int]:
    return [len(text.split()) for text in contents(found)]


def test_the_longest_text_gives_way_and_the_others_stay() -> None:
    after = cut([assistant(words(100)), assistant(words(2000)), user("why " * 200)])
    assert after.excess <= 0 and after.excess >= -2 * SLACK
    assert sizes(after)[0] == 100 and sizes(after)[2] == 200
    assert [m.why for m in after.messages] == ["", "longest text", ""]
    assert "tokens left out" in contents(after)[1] and contents(after)[1].endswith("w1999")


def test_texts_of_like_length_come_down_to_one_height() -> None:
    after = cut([assistant(words(700, "a")), assistant(words(900, "b")), user("why " * 50)])
    one, two, three = sizes(after)
    assert after.excess <= 0 and abs(one - two) <= 1 and three == 50


def test_what_bears_on_the_question_stays_of_the_longest_text() -> None:
    lines = [f"line {i} is about {'lighthouses' if i == 400 else 'other things'} and more" for i in range(600)]
    after = cut([user("\n".join(lines)), assistant("read"), user("Which line is about lighthouses?")])
    assert after.excess <= 0 and lines[400] in contents(after)[0] and "left out …]" in contents(after)[0]


def test_what_the_client_pinned_stays_whole() -> None:
    before = replace(draft([user(words(2000)), user(words(500))], 1000, max_tokens=100), pins=frozenset({0}))
    after = apply(before, KNOWN, Params())
    assert sizes(after)[0] == 2000 and sizes(after)[1] <= LEAST


def test_the_share_of_the_beginning_can_be_set() -> None:
    assert contents(cut([assistant(words(2000))], head=1.0))[0].startswith(words(600))


def test_instructions_give_way_only_where_the_ladder_allows_it_and_all_else_is_not_enough() -> None:
    kept = cut([system(words(500)), user(words(2000))], instructions=True)
    assert sizes(kept)[0] == 500 and kept.excess <= 0
    after = cut([system(words(2000)), user(words(500))], instructions=True)
    assert after.excess <= 0 and sizes(after)[0] < 1000 and sizes(after)[1] <= LEAST
    refused = cut([system(words(2000)), user(words(500))])
    assert refused.excess > 0 and sizes(refused)[0] == 2000


def test_only_what_can_give_way_counts() -> None:
    calls = tool_round("c", words(600), arguments=words(3000, "a"))
    after = cut([user("q"), *calls], window=3700)
    assert after.excess <= 0  # the call's 3,000 tokens cannot be freed, so the result alone must make room


def test_an_image_stays_beside_its_shortened_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    told = {"role": "user", "content": [{"type": "text", "text": "word " * 5000}, image]}
    before = draft([told], 2000, CharMeter(), max_tokens=100)
    after = apply(before, KNOWN, Params())
    assert after.excess <= 0 and fields(next(iter(after.messages)))["content"][1] == image


def test_results_of_parallel_calls_fit_though_their_text_costs_more_when_escaped() -> None:
    call, first = tool_round("1", '"\n' * 3000)
    second_call, second = tool_round("2", "é\\" * 3000)
    call["tool_calls"] += second_call["tool_calls"]
    before = draft([user("q"), call, first, second], 2500, CharMeter(), max_tokens=100)
    assert apply(before, KNOWN, Params()).excess <= 0


def test_where_not_even_this_is_enough_it_does_what_it_can() -> None:
    after = cut([user(words(30)) for _ in range(60)])
    assert after.excess > 0 and max(sizes(after)) <= LEAST


def test_texts_too_short_for_a_marker_are_left_alone() -> None:
    before = draft([user(words(LEAST - 4)) for _ in range(60)], 1000, max_tokens=100)
    assert apply(before, KNOWN, Params()) is before


def indented(window: int) -> Draft:
    """Results of parallel calls whose many blanks are not sent: as JSON they cost a fraction of what they cost as
    text, and cut they are text."""
    call, first = tool_round("1", json.dumps([{"a": [i, [i, [i]]]} for i in range(300)], indent=16))
    second_call, second = tool_round("2", first["content"])
    call["tool_calls"] += second_call["tool_calls"]
    sent = prompt([user("q"), call, first, second], max_tokens=100)
    return start(sent, ladder(), facts(window, meter=meter_for(sent, sent.model, Remembering())))


def test_what_costs_less_in_json_than_as_text_fits_all_the_same() -> None:
    whole = indented(10**6)
    results = [m for m in whole.messages if m.role == "tool"]
    assert all(m.tokens < 0.8 * whole.meter.text(m.text()) for m in results)
    for window in range(1500, whole.prompt, 1500):
        after = apply(indented(window), KNOWN, Params())
        assert after.excess <= 0


def test_a_cut_that_would_cost_more_is_not_made_but_a_deeper_one() -> None:
    before = indented(indented(10**6).prompt + 180)
    after = apply(before, KNOWN, Params())
    assert 0 < before.excess <= 20 and after.excess <= 0
    missing = [int(number) for text in contents(after) for number in re.findall(r"… (\d+) tokens left out", text)]
    assert len(missing) == 2 and min(missing) > 7000  # of the whole text, not of one that was cut before


def test_a_reply_that_does_not_count_against_the_window_is_left_alone() -> None:
    before = draft([user(words(900))], 500, max_tokens=60_000)
    after = apply(replace(before, window=Window(500, separate=True)), facts(500), Params())
    assert after.reply == 60_000 and after.excess <= 0 and after.prompt < before.prompt


def test_a_reply_that_leaves_no_room_for_any_text_is_lowered_first() -> None:
    after = cut([user(words(2000))], window=2000, limit=2000)
    assert after.reply == 1000 and after.excess <= 0 and 900 < after.prompt <= 1000
    assert cut([user(words(20))], window=2000, limit=1990).reply == 1000


def test_a_draft_that_fits_is_the_same_draft() -> None:
    before = draft([user(words(500))], 1000, max_tokens=100)
    assert apply(before, KNOWN, Params()) is before


def test_a_head_that_is_no_share_is_refused() -> None:
    for head in (-0.1, 1.1):
        with pytest.raises(ValueError, match="head"):
            Params(head=head)


@given(sizes=st.lists(st.integers(0, 400), min_size=1, max_size=8), window=st.integers(300, 2000))
def test_one_pass_reaches_the_goal_wherever_it_can_be_reached(sizes: list[int], window: int) -> None:
    before = draft([assistant(words(size)) for size in sizes], window, max_tokens=100)
    after = apply(before, KNOWN, Params())
    least = before.fixed + sum(min(m.tokens, LEAST + 4) for m in before.messages) + SLACK
    assert after.excess <= 0 or least + 100 > window


def test_what_the_user_asked_stays_whole_where_others_hold_what_must_go() -> None:
    call, result = tool_round("1", words(900))
    after = cut([user("first"), user(words(800)), call, result], window=1800)
    assert after.excess <= 0 and contents(after)[1] == words(800)


def test_what_the_user_asked_gives_way_where_nothing_else_holds_what_must_go() -> None:
    after = cut([user("first"), user(words(3000))], window=1800)
    assert after.excess <= 0 and "left out …]" in contents(after)[1]


def test_long_arguments_of_the_newest_call_give_way_and_stay_json() -> None:
    call, result = tool_round("1", "done", arguments=json.dumps({"path": "a.py", "text": "\n".join([words(40)] * 90)}))
    after = cut([user(words(200)), call, result], window=1800)
    made = fields(next(m for m in after.messages if m.calls))["tool_calls"][0]["function"]["arguments"]
    assert after.excess <= 0 and contents(after)[0] == words(200)
    assert json.loads(made)["path"] == "a.py"


def test_W23_what_is_embedded_is_left_alone() -> None:
    sent = parse_embeddings(json.dumps({"model": "unheard-of", "input": ["word " * 300, "short"]}).encode())
    known = facts(310, meter=meter_for(sent, "unheard-of", Remembering()))
    before = start(sent, ladder(), known)
    assert before.excess > 0 and apply(before, known, Params()) is before


def test_spread_ranks_nothing_and_keeps_the_least_of_each_text() -> None:
    """The middle of the text bears on the question; head and tail stay."""
    long = f"{words(900, 'a')} harbour crane harbour crane {words(900, 'b')}"
    asked = [assistant(long), user("What of the harbour crane?")]
    assert "crane" in contents(cut(asked, 600))[0]
    made = contents(cut(asked, 600, spread=True))[0]
    assert "crane" not in made and made.startswith("a0 ") and made.endswith(" b899")
    several = cut([*[assistant(words(300, f"e{i}x")) for i in range(9)], user("And?")], 1_000, spread=True, least=200)
    assert several.excess > 0 and min(sizes(several)[:9]) >= 200 - SLACK
    with pytest.raises(ValueError, match="nothing but a marker"):
        Params(least=3)


def test_where_counts_are_estimates_no_more_is_cut_than_the_margin_of_what_is_left_requires() -> None:
    meter = WordMeter(margin=Margin(10, 0.25))
    before = start(prompt([user(words(6_000))], max_tokens=100), ladder(), Facts(Window(2_000), meter))
    made = apply(before, KNOWN, Params())
    assert made.excess <= 0 and made.prompt > 0.9 * made.room
