"""Shortening one tool result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.fit.results import FEWEST_ROWS, LONG_STRING, largest_list, shorten_result, with_rows
from proxy.types import Json
from tests.laws.meters import CharMeter
from tests.makers import WordMeter, words

CHARS = CharMeter()


def rows(count: int, size: int = 20) -> list[dict[str, Any]]:
    return [{"id": i, "text": words(size, f"r{i}x")} for i in range(count)]


def test_a_result_within_both_limits_is_the_same_text() -> None:
    text = json.dumps(rows(9))
    assert shorten_result(text, 10_000, CHARS, cap_chars=len(text)) is text


def test_json_keeps_its_metadata_a_count_and_as_many_rows_as_fit() -> None:
    whole: Json = {"status": "success", "results": rows(50), "metadata": {"freshness": "new", "sources": ["a"]}}
    short = shorten_result(json.dumps(whole), 300, CHARS)
    found = json.loads(short)
    assert CHARS.text(short) <= 300
    assert (found["status"], found["metadata"]) == (whole["status"], whole["metadata"])
    assert found["result_count"] == 50 and found["note"] == "[Truncated: 50 total results]"
    kept = found["results"]
    assert 1 <= len(kept) < 50 and kept == whole["results"][: len(kept)]
    more = with_rows(whole, whole["results"], len(kept) + 1)
    assert CHARS.text(more) > 300


def test_a_bare_list_becomes_a_preview_with_its_count() -> None:
    found = json.loads(shorten_result(json.dumps(rows(30)), 200, CHARS))
    assert list(found) == ["result_count", "results_preview", "note"] and found["result_count"] == 30
    assert found["results_preview"] == rows(30)[: len(found["results_preview"])]


def test_a_preview_bounds_the_rows() -> None:
    found = json.loads(shorten_result(json.dumps({"results": rows(30)}), 500, CHARS, preview=2))
    assert len(found["results"]) == 2 and found["result_count"] == 30


def test_characters_are_a_limit_of_their_own() -> None:
    short = shorten_result(json.dumps({"results": rows(30)}), 10_000, CHARS, cap_chars=900)
    assert len(short) <= 900 and json.loads(short)["result_count"] == 30


def test_long_strings_in_rows_are_cut_however_deep() -> None:
    row = {"a": "x" * 900, "b": [{"c": "y" * 900}, 1, None], "d": "z" * LONG_STRING}
    several = [row] * 4
    found = json.loads(with_rows(several, several, 1))["results_preview"][0]
    assert found["a"] == "x" * LONG_STRING + "…" and found["b"][0]["c"] == "y" * LONG_STRING + "…"
    assert found["b"][1:] == [1, None] and found["d"] == row["d"]


def test_keys_of_the_result_itself_are_never_overwritten() -> None:
    whole = {"results": rows(30), "note": "prices without tax", "result_count": 230, "_note": 1}
    found = json.loads(shorten_result(json.dumps(whole), 300, CHARS))
    assert (found["note"], found["result_count"], found["_note"]) == ("prices without tax", 230, 1)
    assert found["_result_count"] == 30 and found["__note"] == "[Truncated: 30 total results]"


def test_the_list_of_results_is_the_longest_within_a_few_levels() -> None:
    deep = {"a": {"b": {"c": rows(9)}}}
    assert largest_list(deep) == rows(9)
    assert largest_list({"a": deep}) is None
    assert largest_list({"short": rows(FEWEST_ROWS - 1), "ids": [1, 2, 3]}) == [1, 2, 3]
    assert largest_list({"one": rows(3), "two": rows(4)}) == rows(4)
    assert largest_list("text") is None


def test_rows_inside_objects_are_put_back_where_they_were() -> None:
    whole: Json = {"page": 1, "data": {"items": rows(20), "next": None}}
    found = json.loads(with_rows(whole, whole["data"]["items"], 1))
    assert found["data"] == {"items": rows(1), "next": None} and found["page"] == 1


@pytest.mark.parametrize("text", [words(900), json.dumps({"log": words(900)}), '{"results": [' + words(900)])
def test_what_has_no_rows_keeps_its_head_and_tail(text: str) -> None:
    short = shorten_result(text, 60, WordMeter())
    assert len(short.split()) <= 60 and "tokens left out" in short
    assert short[:20] == text[:20] and short[-5:] == text[-5:]


def test_rows_of_which_not_one_fits_keep_head_and_tail() -> None:
    text = json.dumps({"meta": words(900), "results": [1, 2, 3]})
    assert "tokens left out" in shorten_result(text, 60, WordMeter())


@pytest.mark.parametrize("deep", [700, 100_000])
def test_json_nested_too_deep_is_read_as_text(deep: int) -> None:
    text = "[" + ", ".join(["[" * deep + "]" * deep] * 4) + "]"
    assert "tokens left out" in shorten_result(text, 200, CHARS)


def test_numbers_too_large_for_json_are_read_as_text() -> None:
    assert "tokens left out" in shorten_result("[" + "1e999, " * 900 + "1]", 200, CHARS)


def test_a_large_integer_keeps_its_digits() -> None:
    wei = 123456789012345678901234567890
    found = json.loads(shorten_result(json.dumps([{"wei": wei}] * 200), 100, CHARS))
    assert found["results_preview"][0]["wei"] == wei


def test_plain_text_over_its_characters_is_cut_there_and_says_so() -> None:
    short = shorten_result("x" * 6000, 10_000, CHARS, cap_chars=5000)
    assert len(short) == 5000 and short.endswith("x\n[Truncated for context management]")


def test_plain_text_over_both_limits_says_how_much_of_the_whole_is_missing() -> None:
    short = shorten_result(words(10_000), 100, WordMeter(), cap_chars=5000)
    assert "[… 9908 tokens left out …]" in short and short.endswith("w9999")


def test_a_text_whose_beginning_is_dense_keeps_within_both_limits() -> None:
    text = "a " * 2000 + "b" * 20_000
    short = shorten_result(text, 500, WordMeter(), cap_chars=3000)
    assert len(short) <= 3000 + len("\n[… 1234 tokens left out …]\n") and WordMeter().text(short) <= 500
