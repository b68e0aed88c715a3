"""One tool result, shortened to what bears on what was asked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.results.read_on import ReadOn
from proxy.fit.relevance.results.results import shorten, shorten_json
from proxy.fit.relevance.results.tables import compacted
from proxy.fit.relevance.text.query import ResultQuery
from proxy.model.ports import Meter
from tests.laws.meters import CharMeter
from tests.makers import WordMeter, words

METER = CharMeter()
ROWS = [{"id": f"row-{i}", "text": words(9, f"t{i}x")} for i in range(100)]
LOG = "\n".join(f"line {i} says {words(4, 'w')}" for i in range(400))
NEEDLE = LOG.replace("line 250 says", "line 250 of the budget says")


def shortened(text: str, limit: int, question: str = "", **more: Any) -> str:
    return shorten(text, limit, ResultQuery(question), METER, **more)


def test_a_text_within_the_limit_is_the_same_text() -> None:
    assert shortened(LOG, METER.text(LOG)) is LOG
    assert shortened("short", 100, cap_chars=5) == "short"


def test_rows_of_json_are_chosen() -> None:
    found = json.loads(shortened(json.dumps(ROWS), 300, "row-77"))
    assert found["result_count"] == 100 and ROWS[77] in found["results_preview"]


def test_rows_that_were_compacted_are_chosen_too() -> None:
    found = json.loads(shortened(compacted(json.dumps({"list": ROWS})).decode(), 300, "row-77"))
    assert found["result_count"] == 100 and "row-77" in json.dumps(found["list"])


def test_lines_of_text_are_chosen() -> None:
    found = shortened(NEEDLE, 200, "What about the budget?")
    assert "line 250 of the budget" in found and "lines …" in found


def test_of_json_that_is_mostly_one_string_that_string_is_shortened() -> None:
    whole = {"exit_code": 1, "output": {"stdout": NEEDLE, "stderr": ""}, "list": [1, 2, 3]}
    found = json.loads(shortened(json.dumps(whole), 250, "What about the budget?"))
    assert found["exit_code"] == 1 and found["list"] == [1, 2, 3]
    assert "line 250 of the budget" in found["output"]["stdout"]


def test_a_string_that_is_json_itself_is_read_as_such() -> None:
    whole = {"content": [{"type": "text", "text": json.dumps(ROWS)}]}
    found = json.loads(shortened(json.dumps(whole), 400, "row-77"))
    assert json.loads(found["content"][0]["text"])["result_count"] == 100


def test_escapes_that_make_a_string_longer_are_reckoned_with() -> None:
    for quoted in ('say "x" and "y"\n', 'say "x" '):
        whole = json.dumps({"stdout": quoted * 900})
        for limit in (60, 100, 200, 900):
            assert METER.text(shortened(whole, limit)) <= limit


def test_where_too_much_stands_around_the_string_the_json_is_cut_as_text() -> None:
    whole = json.dumps({"a": LOG, **{f"b{i}": words(9, f"b{i}x") for i in range(20)}})
    assert METER.text(shortened(whole, 90)) <= 90
    assert METER.text(shortened(json.dumps({"a": "\u0001" * 9_000}), 90)) <= 90


def test_other_json_is_made_slimmer() -> None:
    whole = {"id": 7, "none": None, "deep": {f"k{i}": words(20, f"v{i}") for i in range(30)}}
    found = json.loads(shortened(json.dumps(whole), 200, "id"))
    assert found["id"] == 7 and "none" not in found


def test_where_nothing_else_fits_head_and_tail_do() -> None:
    found = shortened(words(900), 14)
    assert "left out" in found and METER.text(found) <= 14
    assert METER.text(shortened(json.dumps(ROWS), 3)) <= 3
    assert METER.text(shortened(LOG, 0)) == 0


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"src/module{i}.py:{i}: budget" for i in range(400)),  # grep
        "\n".join(f"file{i}.txt" for i in range(400)),  # ls
        json.dumps([{"id": i, "name": f"n{i}"} for i in range(200)]),
        json.dumps([f"name {i}" for i in range(200)]),
        json.dumps({"deep": {f"k{i}": {"v": words(5, f"v{i}")} for i in range(90)}}),
        json.dumps({"stdout": LOG, "code": 0}),
        words(900),
        "x" * 9_000,
    ],
)
@pytest.mark.parametrize("says_who", [False, True])
def test_W8_what_was_shortened_reads_neither_complete_nor_empty(text: str, says_who: bool) -> None:
    for limit in (24, 40, 90, 300):
        found = shorten(text, limit, ResultQuery("budget"), METER, call=ReadOn(says_who=says_who))
        assert found != text and METER.text(found) <= limit
        assert "…" in found or "[Truncated" in found
        if limit >= 90:
            assert ("by a proxy" in found) is says_who


def test_a_cap_in_characters_is_heeded_too() -> None:
    for text in (json.dumps(ROWS), LOG, json.dumps({"a": LOG}), "x" * 9_000):
        assert len(shortened(text, 5_000, cap_chars=500)) <= 500
    assert len(json.loads(shortened(json.dumps(ROWS), 5_000, cap_chars=2_000, preview=2))["results_preview"]) == 2


def test_where_the_string_stays_too_long_the_json_is_cut_as_text() -> None:
    whole = json.dumps({"stdout": "a " * 100 + "\n".join(f"{'x' * 300}{i}" for i in range(50))})
    assert len(shorten(whole, 5_000, ResultQuery("x"), WordMeter(), cap_chars=250)) <= 250


def test_a_meter_that_cuts_more_than_fits_in_characters_is_cut_again() -> None:
    one = "word" * 100
    assert len(shorten(one, 5, ResultQuery(""), WordMeter(), cap_chars=50)) <= 50


def test_a_text_that_the_caller_knows_to_be_too_long_is_not_counted_again() -> None:
    class Counting(CharMeter):
        def text(self, text: str) -> int:
            assert text is not LOG
            return CharMeter.text(self, text)

    assert shorten(LOG, 200, ResultQuery("x"), Counting(), too_long=True) == shortened(LOG, 200, "x")


texts = st.one_of(
    st.text(max_size=300),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=40),
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=30,
    ).map(json.dumps),
)


@given(
    texts, st.integers(0, 80), st.sampled_from([METER, CharMeter(ratio=1.7), WordMeter()]), st.sampled_from([None, 100])
)
def test_it_is_always_within_the_limit_and_the_same_every_time(
    text: str, limit: int, meter: Meter, cap_chars: int | None
) -> None:
    found = shorten(text, limit, ResultQuery("what is it?"), meter, cap_chars=cap_chars)
    assert found == text or meter.text(found) <= limit
    assert cap_chars is None or len(found) <= max(cap_chars, 0)
    assert found == shorten(text, limit, ResultQuery("what is it?"), meter, cap_chars=cap_chars)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 5_000 + "1" + "}" * 5_000, '{"a":"\ud800' + "x" * 900 + '"}']
)
def test_what_no_parser_takes_is_text(text: str) -> None:
    assert METER.text(shortened(text, 50)) <= 50


def test_it_is_never_a_bare_note_of_what_is_missing() -> None:
    text = "".join(f"{words(90, f'w{i}x')}\n" for i in range(40))  # every line is too long, but for the empty last one
    found = shorten(text, 60, ResultQuery(""), METER)
    assert METER.text(found) <= 60 and "w0x" in found


def test_a_string_that_never_fits_into_its_json_is_given_up() -> None:
    class Costly(CharMeter):
        def text(self, text: str) -> int:
            return 301 if '{"log"' in text and "berth" in text else super().text(text)

    log = json.dumps({"log": "\n".join(["berth"] * 900)})
    assert "berth" not in shorten(log, 300, ResultQuery("q"), Costly())


def test_json_alone_is_shortened_as_a_result_is_and_stays_valid() -> None:
    value = json.dumps([{"id": i, "town": f"Town{i}"} for i in range(200)])
    query = ResultQuery("Which id has Town77?")
    made = shorten_json(value, 300, query, METER)
    assert made == shorten(value, 300, query, METER) and made is not None and json.loads(made)["result_count"] == 200
    assert "Town77" in made and METER.text(made) <= 300
    assert shorten_json(value, 3, query, METER) is None and shorten_json("no json", 60, query, METER) is None
