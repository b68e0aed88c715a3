"""Long texts that were pasted into messages."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.long_texts import EXCERPTED
from proxy.fit.relevance.passages import excerpt
from proxy.fit.steps import excerpt_texts, prune_history
from proxy.fit.steps.excerpt_texts import Params, apply
from proxy.model.plan import Draft
from proxy.model.structs import replace
from tests.makers import assistant, contents, draft, facts, prompt, system, tool_round, user, words

NEEDLE = "the lighthouse keeper keeps his boat in the cave"
ASKED = "Where does the lighthouse keeper keep his boat?"


def text(needle: int = 150, lines: int = 300, stem: str = "n") -> str:
    """A text of lines of seven words."""
    found = [words(7, f"{stem}{i}x") for i in range(lines)]
    return "\n".join([*found[:needle], NEEDLE, *found[needle:]])


def shortened(messages: Sequence[dict[str, Any]], window: int = 700, pins: Sequence[int] = (), **params: Any) -> Draft:
    """What the step makes of a conversation."""
    before = replace(draft(messages, window, max_tokens=100), pins=frozenset(pins))
    return apply(before, replace(facts(window), original=before), Params(**params))


PLACES: dict[str, list[dict[str, Any]]] = {
    "older": [user("hello"), assistant("hi"), user(text()), assistant("read"), user(ASKED)],
    "first": [user(text()), assistant("read"), user(ASKED)],
    "answer": [user("hello"), assistant(text()), user(ASKED)],
    "asking": [user("hello"), assistant("hi"), user(f"Here it is:\n\n{text()}\n\n{ASKED}")],
    "asking first": [user(f"{ASKED}\n\n{text()}")],
    "system": [system(f"You help.\n\n# Context\n\n{text()}\n\n# Rules\n\nBe short."), user(ASKED)],
    "parts": [user(text(150, 200, "a")), assistant("go on"), user(text(20, 200, "b")), assistant("read"), user(ASKED)],
}


@pytest.mark.parametrize("layout", ["best", "stable"])
@pytest.mark.parametrize("place", PLACES)
def test_what_bears_on_the_question_stays_wherever_it_was_pasted(place: str, layout: str) -> None:
    after = shortened(PLACES[place], layout=layout)
    together = "\n".join(contents(after))
    assert after.excess <= 0 and after.prompt > 0.8 * after.room
    assert NEEDLE in together and ASKED in together and "left out …]" in together
    assert [m.index for m in after.messages if m.index >= 0] == list(range(len(PLACES[place])))
    assert ("Be short." in together) == (place == "system") and shortened(PLACES[place], layout=layout) == after


def test_a_draft_that_fits_or_has_no_long_text_is_the_same_draft() -> None:
    for told, window in ((PLACES["first"], 9000), ([user(words(20)) for _ in range(50)], 700)):
        before = draft(told, window, max_tokens=100)
        assert apply(before, facts(window), Params()) is before


def test_a_few_words_of_the_message_around_the_text_stay() -> None:
    made = contents(shortened([user(f"Here it is:\n\n{text()}\n\nThanks!"), assistant("read"), user(ASKED)]))[0]
    assert made.startswith("Here it is:\n\n") and made.endswith("Thanks!")


def test_what_the_client_pinned_stays_whole() -> None:
    before = PLACES["older"]
    after = shortened(before, pins=[2])
    assert contents(after)[2] == before[2]["content"] and after.excess > 0


def test_results_of_tools_are_left_to_their_own_step() -> None:
    told = [user("q"), *tool_round("c", text()), assistant("read"), user(ASKED)]
    before = draft(told, 700, max_tokens=100)
    assert apply(before, facts(700), Params()) is before


def test_instructions_are_shortened_only_where_nothing_else_is_enough() -> None:
    orders = system(f"You help.\n\n# Context\n\n{text(5, 40)}")
    after = shortened([orders, user(text()), assistant("read"), user(ASKED)])
    assert contents(after)[0] == orders["content"] and after.excess <= 0


def test_instructions_without_context_are_never_shortened() -> None:
    rules = "\n\n".join(f"# Rule {i}\n\n{words(60, f'r{i}x')}" for i in range(20))
    before = draft([system(f"You help.\n\n{rules}"), user(ASKED)], 700, max_tokens=100)
    assert apply(before, facts(700), Params()) is before
    after = shortened([system(f"You help.\n\n{rules}"), user(ASKED)], sections=tuple(f"Rule {i}" for i in range(20)))
    assert after.prompt < before.prompt and "# Rule 7" in contents(after)[0]


def test_several_texts_share_the_room_by_what_they_are_worth() -> None:
    told = [user("hello"), user(text(150, 200, "a")), assistant("ok"), user(f"{text(50, 200, 'b')}\n{NEEDLE}")]
    after = shortened([*told, assistant("ok"), user(ASKED)], layout="best")
    _, one, _, two, *_ = after.messages
    assert one.why == two.why == EXCERPTED and two.tokens > one.tokens > 20
    assert one.text().count(NEEDLE) == 1 and two.text().count(NEEDLE) == 2


@pytest.mark.parametrize("turns", [0, 40])
def test_a_long_turn_that_does_not_bear_on_the_question_takes_no_room_from_those_that_do(turns: int) -> None:
    talk = [user(f"The lighthouse keeper has boat {i}. {words(12, f't{i}x')}") for i in range(turns)]
    story = user("\n".join(words(7, f"b{i}x") for i in range(200)))
    made = shortened([user("hello"), user(text()), *talk, story, assistant("ok"), user(ASKED)], layout="best")
    after = prune_history.apply(made, facts(700), prune_history.Params(recall=0.5, layout="best"))
    assert isinstance(after, Draft) and after.excess <= 0 and after.prompt >= 0.8 * after.room
    assert not any("b0x0" in each for each in contents(after)) and NEEDLE in "\n".join(contents(after))


def test_short_turns_compete_with_passages_and_the_newest_stay() -> None:
    talk = [m for i in range(30) for m in (user(words(12, f"t{i}x")), assistant(words(12, f"u{i}x")))]
    after = shortened([user("hello"), user(text()), *talk, user(ASKED)], layout="best")
    [long] = [m for m in after.messages if m.why == EXCERPTED]
    assert NEEDLE in long.text() and long.tokens < after.room


def test_in_a_run_with_tools_a_text_is_chosen_once_and_nothing_is_quoted() -> None:
    rounds = [part for i in range(4) for part in tool_round(f"c{i}", f"The keeper of lighthouse {i} has a boat.")]
    told = [user(f"{text(150, 800)}\n\nPlease look. {ASKED} Thank you."), *rounds]
    one, *others = (shortened(told[:end], 3000) for end in (3, 5, 7, 9))
    assert {contents(other)[0] for other in others} == {contents(one)[0]} and NEEDLE in contents(one)[0]
    assert len(contents(others[0])) == 5 and 0.25 * one.room < one.blocks[0].tokens <= 0.5 * one.room
    later = shortened([*told, user("And who rows it?"), *rounds[:2]], 3000)
    assert later.blocks[0].tokens <= 0.25 * later.room  # the question is another now


def test_in_its_place_a_text_stays_the_same_from_turn_to_turn() -> None:
    told = [user("hello"), assistant("hi"), user(text()), assistant("read"), user(ASKED)]
    sent = []
    for number in range(6):
        sent.append(contents(shortened(told)))
        told += [assistant("Answered."), user(f"And what of n{40 * number}x3?")]
    assert len({made[2] for made in sent}) == 1
    for number, made in enumerate(sent[1:]):
        assert any(f"n{40 * number}x3" in line for text in made[:-1] for line in text.splitlines())
    for before, after in itertools.pairwise(sent):
        assert after[: len(before) - 2] == before[:-2]


def test_the_newest_message_may_keep_more_until_the_next_one() -> None:
    told = [user("hello"), assistant("hi"), user(f"{ASKED}\n\n{text()}")]
    fresh = shortened(told)
    later = shortened([*told, assistant("In the cave."), user("And why?")])
    assert contents(fresh)[2].count("\n") > 3 * contents(later)[2].count("\n") and fresh.prompt > 0.8 * fresh.room


def test_a_text_whose_count_is_not_that_of_words_fits_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpt_texts, "FRAME", -30)
    assert shortened(PLACES["first"], layout="best").excess <= 0
    monkeypatch.setattr(excerpt_texts, "TRIES", 1)
    assert shortened(PLACES["first"], layout="best").prompt < draft(PLACES["first"], 700).prompt
    assert excerpt.TRIES > 1


def test_a_text_of_which_nothing_may_go_stays() -> None:
    told = [user("hello"), assistant("hi"), user("\n".join(words(7, f"q{i}x") for i in range(20)))]
    before = draft(told, 160, max_tokens=10)
    after = apply(before, facts(160), Params())
    assert contents(after)[2] == told[2]["content"] or after.prompt < before.prompt


def test_without_a_question_the_ends_stay() -> None:
    before = draft([assistant(text())], 700, max_tokens=100)
    after = apply(before, facts(700), Params(layout="best"))
    assert after.excess <= 0 and contents(after)[0].startswith("n0x0") and "left out" in contents(after)[0]
    assert apply(before, facts(700), Params()).excess <= 0


@given(sizes=st.lists(st.integers(1, 120), min_size=3, max_size=25), window=st.integers(450, 1500))  # of lines, tokens
def test_no_more_than_a_fifth_stays_empty_where_something_was_dropped(sizes: list[int], window: int) -> None:
    told = [
        (user if i % 2 == 0 else assistant)("\n".join(words(7, f"m{i}l{k}x") for k in range(size)))
        for i, size in enumerate(sizes)
    ]
    made = shortened([user("hello"), *told, user(ASKED)], window, layout="best")
    after = prune_history.apply(made, facts(window), prune_history.Params(recall=0.5, layout="best"))
    assert isinstance(after, Draft) and after.prompt <= after.room
    assert not after.drops or after.prompt >= 0.8 * after.room


def test_parameters_out_of_range_are_refused() -> None:
    for wrong in ({"share": 0.0}, {"share": 1.1}, {"layout": "other"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Params(**wrong)


def test_prompts_keep_their_pins() -> None:
    assert prompt([user("q")]).pins == frozenset()


TOWNS = [{"order": f"SO-{i:05}", "city": f"Town{i % 20}", "amount": f"{i}.50"} for i in range(300)]
ROWS = [row for row in TOWNS if row["city"] == "Town7"]
LIST = "List all orders that go to Town7, with their amounts."


def listed(place: str, value: str) -> list[dict[str, Any]]:
    return {
        "system": [system(f"Answer from the data.\n\n{value}"), user("hello"), assistant("hi"), user(LIST)],
        "asking": [system("Answer from the data."), user(f"{value}\n\n{LIST}")],
        "older": [user(f"The orders: {value}"), assistant("read"), user("hello"), assistant("hi"), user(LIST)],
        "run": [user(f"{value}\n\n{LIST}"), *tool_round("c", "fetched"), *tool_round("d", "fetched")],
    }[place]


@pytest.mark.parametrize("layout", ["best", "stable"])
@pytest.mark.parametrize("form", ["rows", "object"])
@pytest.mark.parametrize("place", ["system", "asking", "older", "run"])
def test_json_is_shortened_by_its_rows_and_stays_valid_wherever_it_stands(place: str, form: str, layout: str) -> None:
    value = json.dumps(TOWNS if form == "rows" else {"took": 3, "hits": TOWNS})
    after = shortened(listed(place, value), 1000, layout=layout)
    together = "\n".join(contents(after))
    assert after.excess <= 0 and LIST in together
    found = [
        json.JSONDecoder().raw_decode(together, m.start())[0] for m in re.finditer(r"\{\"(result_count|took)", together)
    ]
    assert len(found) == 1, "one valid value, and no part of another one"
    assert found[0]["result_count"] == 300 and "300 total results" in found[0]["note"]
    assert all(row["order"] in together and row["amount"] in together for row in ROWS)
    assert together.count('"SO-00007"') == 1, "nothing is there twice"


def test_of_json_that_is_quoted_a_note_stays_in_its_place() -> None:
    after = shortened(listed("system", json.dumps(TOWNS)), 1000, layout="stable")
    assert contents(after)[0] == "Answer from the data.\n\n[… JSON of 300 results left out …]"


CHUNKS = "\n\n".join(
    f"({k}) notes/{k}.md\n{words(12, f'c{k}x')}\n{NEEDLE if k == 23 else words(12, f'd{k}x')}" for k in range(1, 41)
)


@pytest.mark.parametrize("layout", ["best", "stable"])
@pytest.mark.parametrize(
    "told",
    [
        [system(f"Name the source.\n\n{CHUNKS}"), user("hello"), assistant("hi"), user(ASKED)],
        [user(f"{CHUNKS}\n\n{ASKED}")],
        [user(f"{ASKED}\n\n{CHUNKS}")],
        [user(CHUNKS), assistant("read"), user("hello"), assistant("hi"), user(ASKED)],
    ],
)
def test_of_a_retrieved_chunk_its_head_stays_with_it(told: list[dict[str, Any]], layout: str) -> None:
    after = shortened(told, 400, layout=layout)
    together = "\n".join(contents(after))
    assert after.excess <= 0 and NEEDLE in together and ASKED in together
    assert re.findall(r"notes/\d+\.md", together[: together.index(NEEDLE)])[-1] == "notes/23.md"
    assert "of 40 results shown in part …]" in together
