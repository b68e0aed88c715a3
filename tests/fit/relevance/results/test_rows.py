"""The rows of a JSON result that bear on a question."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.results.rows import OTHERS, as_table, find_rows, is_tabular, row_values, shorten_rows
from proxy.fit.relevance.results.tables import expanded
from proxy.fit.relevance.text.query import ResultQuery
from proxy.model.lenient_json import Json
from tests.laws.meters import CharMeter
from tests.makers import words

METER = CharMeter()
ORDERS = [
    {"order_id": f"#W{7000 + i}", "user": f"user_{i}", "price": 100 + (i * 37) % 101, "note": words(8, f"n{i}")}
    for i in range(120)
]


def raw(whole: Json, limit: int, question: str) -> str:
    """The shortened JSON."""
    listed = find_rows(whole)
    assert listed is not None
    text = shorten_rows(listed, limit, ResultQuery(question), METER, lambda made: METER.text(made) <= limit)
    assert text is not None and METER.text(text) <= limit
    return text


def shown(whole: Json, limit: int, question: str, preview: int | None = None) -> dict[str, Any]:
    """The shortened JSON, its tables expanded."""
    listed = find_rows(whole)
    assert listed is not None
    text = shorten_rows(listed, limit, ResultQuery(question), METER, lambda made: METER.text(made) <= limit, preview)
    assert text is not None and METER.text(text) <= limit
    found: dict[str, Any] = expanded(json.loads(text))
    return found


def test_the_row_that_was_asked_for_stays_whole() -> None:
    found = shown(ORDERS, 400, "What are the details of order #W7077?")
    assert ORDERS[77] in found["results_preview"]


def test_it_says_how_many_rows_there_are_and_how_many_are_shown() -> None:
    found = shown(ORDERS, 400, "What is it?")
    rows = found["results_preview"]
    assert found["result_count"] == 120 and found["note"] == f"[Truncated: 120 total results, {len(rows)} shown]"
    assert 3 < len(rows) < 40


def test_rows_keep_their_order_and_where_nothing_bears_on_it_the_first_are_shown() -> None:
    found = shown(ORDERS, 400, "Any thoughts?")
    rows = found["results_preview"]
    assert rows == ORDERS[: len(rows)]
    both = shown(ORDERS, 400, "Compare order #W7090 and order #W7003!")["results_preview"]
    assert both.index(ORDERS[3]) < both.index(ORDERS[90])


def test_the_row_that_was_asked_for_stays_an_object_and_a_few_others_follow_as_a_table() -> None:
    found = json.loads(raw(ORDERS, 250, "What are the details of order #W7077?"))["results_preview"]
    assert found[0] == ORDERS[77] and found[-1].keys() == {"columns", "rows"}
    assert 2 <= len(found[-1]["rows"]) <= OTHERS, "what nobody asked for is a preview, no filling"


def test_rows_stay_objects_where_the_room_holds_all_that_is_shown() -> None:
    found = json.loads(raw(ORDERS, 3_000, "What are the details of order #W7077?"))["results_preview"]
    assert all(row in ORDERS for row in found) and ORDERS[77] in found


def test_of_a_question_about_more_rows_than_fit_as_objects_a_table_shows_more() -> None:
    rows = [{"order_id": f"#W{i}", "city": "Lima" if i % 5 == 0 else "Oslo", "price": i} for i in range(120)]
    lima = [row for row in rows if row["city"] == "Lima"]
    few, more = (json.loads(raw(rows, limit, "List all orders to Lima."))["results_preview"] for limit in (240, 330))
    assert few.keys() == {"columns", "rows"}
    assert sum(row[1] != "Lima" for row in few["rows"]) <= OTHERS < len(few["rows"])
    assert more[0] in lima and more[-1].keys() == {"columns", "rows"}
    told = [*more[:-1], *expanded(more[-1])]
    assert [row for row in told if row in lima] == lima, "all of them, before any of them as an object"


def test_what_stands_beside_the_rows_stays() -> None:
    whole = {"status": "success", "data": {"items": ORDERS, "page": 1}, "metadata": {"sources": ["a"]}}
    found = shown(whole, 500, "order #W7077")
    assert found["status"] == "success" and found["metadata"] == {"sources": ["a"]} and found["data"]["page"] == 1
    assert ORDERS[77] in found["data"]["items"] and found["result_count"] == 120


def test_a_key_of_the_results_own_is_not_written_over() -> None:
    found = shown({"items": ORDERS, "note": "theirs", "result_count": 9}, 400, "")
    assert found["note"] == "theirs" and found["result_count"] == 9
    assert found["_result_count"] == 120 and found["_note"].startswith("[Truncated")


def test_where_too_much_stands_beside_the_rows_it_is_slimmed() -> None:
    whole = {"summary": words(800), "empty": None, "more": {"rows": ORDERS}}
    found = shown(whole, 500, "order #W7077")
    assert ORDERS[77] in found["results_preview"] and len(found["summary"]) < 700
    assert whole["more"] == {"rows": ORDERS}


def test_at_most_so_many_rows_are_shown_as_a_preview_has() -> None:
    assert len(shown(ORDERS, 2_000, "order #W7077", preview=2)["results_preview"]) == 2


def test_of_a_superlative_the_extremes_are_shown_of_the_column_that_it_names_first() -> None:
    rows = [{"name": f"c{i}", "area": (i * 37) % 101, "people": (i * 53) % 103, "note": words(9)} for i in range(100)]
    most = max(rows, key=lambda row: int(str(row["area"])))
    least = min(rows, key=lambda row: int(str(row["people"])))
    assert shown(rows, 150, "Which country has the largest area?", preview=1)["results_preview"] == [most]
    assert shown(rows, 150, "Which one has the fewest people?", preview=1)["results_preview"] == [least]


def test_what_the_question_quotes_wins_over_many_common_words() -> None:
    rows: list[dict[str, Any]] = [
        {"id": 5_000_000 + i, "body": "details of the issue comment, please " * 3} for i in range(60)
    ]
    rows[44]["body"] = "short"
    found = shown(rows, 120, 'Details of issue comment "5000044" please', preview=1)
    assert found["results_preview"] == [rows[44]]


def test_rows_that_tell_of_trouble_are_preferred_where_trouble_is_asked_for() -> None:
    rows = [{"job": i, "state": "ok"} for i in range(50)]
    rows[30]["state"] = "job failed"
    worth = row_values(rows, ResultQuery("Why is it red?"))
    assert max(range(50), key=lambda i: worth[i]) == 30
    assert row_values(rows, ResultQuery("Which?"))[30] == 0.0


def test_the_best_row_is_slimmed_where_it_alone_is_too_long() -> None:
    rows = [{"id": f"row-{i}", "body": words(400, f"b{i}x"), "none": None, "size": i} for i in range(9)]
    found = shown(rows, 300, 'The size of "row-7"?')["results_preview"]
    assert found[0]["id"] == "row-7" and found[0]["size"] == 7 and found[0]["body"].endswith("…")
    assert "none" not in found[0]


def test_a_field_that_was_left_out_is_not_shown_as_null() -> None:
    rows = [{"id": f"row-{i}", "page_url": "x" * (1_500 if i else 9), "size": i} for i in range(9)]
    found = shown(rows, 500, 'The size of "row-7"?')["results_preview"]
    assert found[0] == {"id": "row-7", "size": 7, "…": "1 fields left out"}
    assert rows[0] in found[1] and {"id": "row-4", "page_url": "…", "size": 4} in found[1]


def test_rows_of_different_shape_stay_objects() -> None:
    assert (
        is_tabular(ORDERS) and not is_tabular([{"a": 1}]) and not is_tabular([1, 2]) and not is_tabular([{}, {"a": 1}])
    )
    assert not is_tabular([{"a": 1}, {"b": 1}, {"c": 1}])
    rows = [{f"field{i}": words(9)} for i in range(40)]
    assert all(row in rows for row in shown(rows, 150, "x")["results_preview"])


def test_a_field_that_a_row_never_had_is_null_in_a_table() -> None:
    assert as_table([{"a": 1, "b": 2}, {"a": 3}]) == {"columns": ["a", "b"], "rows": [[1, 2], [3, None]]}


def test_rows_may_be_anything() -> None:
    texts = [f"{words(9, 'x')} {i}" for i in range(200)]
    found = shown(texts, 120, "x 150")["results_preview"]
    assert texts[150] in found


def test_the_longest_list_holds_the_results() -> None:
    found = find_rows({"short": [1, 2, 3, 4], "deep": {"er": {"long": ORDERS}}, "few": ["x" * 9_000]})
    assert found is not None and found.rows is ORDERS
    assert (
        find_rows({"a": {"b": {"c": {"d": ORDERS}}}}) is None
        and find_rows({"few": [1, 2]}) is None
        and find_rows(7) is None
    )


RULES = {
    f"RULE_{i}": {"trigger": "periodic", "about": words(8, f"r{i}"), "rank": (i * 37) % 101, "takes": [1, 2, 3, i]}
    for i in range(70)
}


def test_the_entries_of_a_map_are_rows_with_names() -> None:
    for whole in (RULES, {"rules": RULES, "next": None}, {"data": {"rules": RULES}}):
        found = shown(whole, 500, "What does RULE_55 do?")
        rows = found.get("rules") or found.get("data", {}).get("rules") or found["results_preview"]
        assert rows["RULE_55"] == RULES["RULE_55"] and 1 < len(rows) < 40
        assert found["result_count"] == 70 and found["note"] == f"[Truncated: 70 total results, {len(rows)} shown]"


def test_a_list_in_one_entry_of_a_map_is_not_the_result() -> None:
    longest = RULES | {"RULE_3": {"takes": [{"name": f"n{i}"} for i in range(9)]}}
    assert shown({"rules": longest}, 500, "RULE_55")["rules"]["RULE_55"] == RULES["RULE_55"]
    most = RULES | {"RULE_3": {"takes": ORDERS}}
    held = find_rows(most)
    assert held is not None and held.rows is ORDERS


def test_an_object_with_a_few_parts_is_no_map() -> None:
    few = {name: RULES[name] for name in list(RULES)[:7]}
    mixed = {**RULES, "total": 70}
    assert all(
        found is None or not found.named for found in (find_rows(few), find_rows(mixed), find_rows({**RULES, "": {}}))
    )


def test_the_entry_with_an_extreme_value_stays() -> None:
    most = max(RULES, key=lambda name: int(str(RULES[name]["rank"])))
    assert most in shown(RULES, 300, "Which one has the highest rank?")["results_preview"]


def test_an_entry_that_is_too_long_keeps_its_name() -> None:
    long = RULES | {"RULE_3": {"about": words(900, "long"), "trigger": "change"}}
    entry = shown(long, 300, "RULE_3")["results_preview"]["RULE_3"]
    assert entry["trigger"] == "change"


def test_where_not_even_one_row_fits_there_is_none() -> None:
    listed = find_rows(ORDERS)
    assert listed is not None
    assert shorten_rows(listed, 10, ResultQuery(""), METER, lambda made: METER.text(made) <= 10) is None


fields = st.dictionaries(st.sampled_from("abcd"), st.integers() | st.text(max_size=30), min_size=1, max_size=4)


@given(
    st.dictionaries(st.text(max_size=9), fields, min_size=8), st.integers(1, 200), st.sampled_from(["", "highest a"])
)
@pytest.mark.filterwarnings("error")
def test_a_map_is_always_within_the_limit(found: dict[str, Any], limit: int, question: str) -> None:
    for whole in (found, {"results": found, "meta": "m"}):
        listed = find_rows(whole)
        assert listed is not None and listed.named

        def fits(made: str) -> bool:
            return METER.text(made) <= limit

        text = shorten_rows(listed, limit, ResultQuery(question), METER, fits)
        assert text is None or fits(text)


rows = st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers() | st.text(max_size=30), max_size=4), min_size=3)


@given(rows, st.integers(1, 200), st.sampled_from(["", "a highest 7", "Why did b fail?"]), st.sampled_from([None, 1]))
@pytest.mark.filterwarnings("error")
def test_it_is_always_within_the_limit(found: list[Any], limit: int, question: str, preview: int | None) -> None:
    listed = find_rows({"results": found, "meta": "m"})
    assert listed is not None

    def fits(made: str) -> bool:
        return METER.text(made) <= limit

    text = shorten_rows(listed, limit, ResultQuery(question), METER, fits, preview)
    assert text is None or fits(text)
    assert text == shorten_rows(listed, limit, ResultQuery(question), METER, fits, preview)
