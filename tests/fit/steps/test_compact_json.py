"""The JSON of tool results written shorter, and nothing lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.results.tables import expanded
from proxy.fit.steps import compact_json
from proxy.fit.steps.compact_json import COMPACTED, Params, apply
from proxy.model.conversation import Message
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace
from tests.laws.meters import CharMeter
from tests.makers import assistant, contents, draft, fields, system, tool_round, user, words

ROWS = [{"order_id": f"#W{i}", "user": f"user_{i}", "price": 9.50 + i} for i in range(20)]


def drafted(*results: Any, name: str = "search", window: int = 500) -> Draft:
    """A conversation with these results, none of them the newest."""
    made = [m for i, result in enumerate(results) for m in tool_round(f"c{i}", result, name)]
    return draft([system("s"), user("q"), *made, assistant("so")], window, CharMeter())


def compact(before: Draft, **params: bool) -> Draft:
    return apply(before, Facts(Window(500), before.meter), Params(**params))


def test_where_white_space_is_enough_objects_stay_objects() -> None:
    before = drafted(json.dumps(ROWS, indent=2), json.dumps({"orders": ROWS}, indent=2), window=1_100)
    after = compact(before)
    assert before.excess > 0 >= after.excess and after.prompt < before.prompt
    assert contents(after)[3] == json.dumps(ROWS, separators=(",", ":"))
    assert json.loads(contents(after)[5]) == {"orders": ROWS}


def test_rows_get_one_header_only_where_white_space_is_not_enough() -> None:
    texts = [json.dumps(ROWS, indent=2)] * 3
    forms = [contents(compact(drafted(*texts, window=window)))[3] for window in range(300, 2_400, 50)]
    tables = ["columns" in form for form in forms]
    assert tables == sorted(tables, reverse=True) and 3 < sum(tables) < len(tables) - 3
    assert all(expanded(json.loads(form)) == ROWS for form in forms)


def test_a_table_is_written_at_once_where_all_white_space_is_less_than_what_is_too_long() -> None:
    class Counting(CharMeter):
        def costs(self, messages: Sequence[Message]) -> tuple[int, ...]:
            counted.extend(m.text() for m in messages)
            return CharMeter.costs(self, messages)

    counted: list[str] = []
    before = draft([user("q"), *tool_round("a", json.dumps(ROWS)), assistant("so")], 150, Counting())
    counted.clear()
    assert "columns" in contents(compact(before))[2]
    assert not any(text.startswith('[{"order_id"') for text in counted), "no time is spent on what cannot be enough"


def test_rows_have_their_header_once_and_no_white_space() -> None:
    before = drafted(json.dumps({"orders": ROWS, "status": "ok"}, indent=2), window=300)
    after = compact(before)
    short = contents(after)[3]
    assert after.prompt < before.prompt and short.count("order_id") == 1 and " " not in short
    assert expanded(json.loads(short)) == {"orders": ROWS, "status": "ok"}
    assert [m.why for m in after.messages][3]


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=9), lambda x: st.lists(x) | st.dictionaries(st.text(max_size=3), x)
    )
)
def test_the_original_can_be_rebuilt(value: Any) -> None:
    short = json.loads(contents(compact(drafted(json.dumps([value, ROWS], indent=1))))[3])
    assert short == [value, ROWS] or expanded(short) == [value, ROWS]


def test_it_counts_anew_and_keeps_every_other_key() -> None:
    before = drafted(json.dumps(ROWS))
    after = compact(before)
    message = list(after.messages)[3]
    assert message.tokens == after.meter.costs([message])[0] and fields(message)["tool_call_id"] == "c0"
    assert after.prompt == after.fixed + sum(m.tokens for m in after.messages)


def test_texts_in_a_list_of_parts_are_compacted_alike() -> None:
    parts = [{"type": "text", "text": json.dumps(ROWS)}, {"type": "image_url", "image_url": {"url": "x"}}, "odd"]
    after = compact(drafted(parts[:2]))
    found = fields(list(after.messages)[3])["content"]
    assert expanded(json.loads(found[0]["text"])) == ROWS and found[1] == parts[1]


@pytest.mark.parametrize(
    "text",
    [
        words(90),
        "[not json at all, but long enough to be tried]",
        '{"tight":[1,2,3,4,5,6,7,8,9,10,11,12,13,14]}',
        "[1, 2]",
        "",
        None,
        "[" * 200,
    ],
)
def test_what_is_no_json_or_short_already_stays_as_it_is(text: str | None) -> None:
    before = drafted(text)
    assert compact(before) is before
    assert compact(before) is before  # as it is remembered


def test_where_fewer_bytes_are_no_fewer_tokens_the_text_stays() -> None:
    class Fickle(CharMeter):
        def text(self, text: str) -> int:
            return 99 if text.startswith('{"columns"') else CharMeter.text(self, text[:30])

    before = draft([user("q"), *tool_round("a", json.dumps(ROWS)), assistant("so")], 50, Fickle())
    assert compact(before) is before


def test_a_result_without_content_stays_though_something_in_it_looks_like_json() -> None:
    before = drafted(None)
    block = before.blocks[2]
    odd = replace(block.messages[1], raw=b'{"role":"tool","tool_call_id":"c0","x":{"content":"[1, 2]"},"content":null}')
    before = before.with_blocks(
        [*before.blocks[:2], replace(block, messages=(block.messages[0], odd)), before.blocks[3]]
    )
    assert compact(before) is before


def test_only_results_are_touched() -> None:
    text = json.dumps(ROWS, indent=2)
    before = draft([user("q"), assistant(text), user(text), assistant("x")], 50, CharMeter())
    assert compact(before) is before


def test_what_is_pinned_stays_and_the_newest_only_where_that_is_wanted() -> None:
    text = json.dumps(ROWS, indent=2)
    before = draft([user("q"), *tool_round("a", text)], 50, CharMeter())
    assert compact(before) is before
    assert expanded(json.loads(contents(compact(before, newest=True))[2])) == ROWS


def test_it_is_made_once_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    COMPACTED.clear()
    before = drafted(json.dumps(ROWS))
    first = compact(before)
    monkeypatch.setattr(compact_json, "compacted", None)
    assert contents(compact(drafted(json.dumps(ROWS)))) == contents(first)


def test_it_changes_nothing_twice() -> None:
    after = compact(drafted(json.dumps({"a": ROWS}, indent=2)))
    assert compact(after) is after


def test_a_conversation_without_messages_stays() -> None:
    before = draft([user("q")], 50).with_blocks(())
    assert compact(before, newest=True) is before


def test_of_parallel_results_only_those_are_replaced_that_cost_less() -> None:
    call, one = tool_round("a", json.dumps(ROWS))
    other = {**one, "tool_call_id": "b", "content": words(40)}
    call["tool_calls"] = [*call["tool_calls"], {**call["tool_calls"][0], "id": "b"}]
    before = draft([user("q"), call, one, other, assistant("so")], 50, CharMeter())
    after = compact(before)
    assert expanded(json.loads(contents(after)[2])) == ROWS and contents(after)[3] == words(40)
    assert after.prompt < before.prompt
