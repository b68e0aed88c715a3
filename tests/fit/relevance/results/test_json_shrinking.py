"""One JSON value made smaller, gentlest first."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.fit.relevance.results.json_shrinking import LEFT_OUT, encoded, shrink
from proxy.model.lenient_json import Json
from tests.laws.meters import CharMeter
from tests.makers import words

METER = CharMeter()
ROW: dict[str, Any] = {
    "id": 55475,
    "title": "a title",
    "nothing": None,
    "empty": [],
    "avatar_url": "https://example.org/" + "x" * 300,
    "html_url": "https://example.org/page",
    "user": {"login": "ann", "bio": words(40), "starred_url": "https://example.org/" + "y" * 200},
    "body": words(100),
    "tags": list(range(10)),
}


def slimmed(value: Json, room: int, wanted: frozenset[str] = frozenset()) -> Json:
    made = shrink(value, room, wanted, METER)
    assert METER.text(encoded(made)) <= room
    return made


def test_empty_fields_go_first() -> None:
    made = slimmed(ROW, METER.text(encoded(ROW)) - 5)
    assert made == {k: v for k, v in ROW.items() if k not in ("nothing", "empty")}


def test_then_links_that_machines_follow_but_not_the_page_for_people() -> None:
    made = slimmed(ROW, METER.text(encoded(ROW)) - 110)
    assert "avatar_url" not in made and made["html_url"] and made["body"] == ROW["body"]
    assert made[LEFT_OUT] == "1 fields left out"


def test_W8_an_object_inside_says_how_many_fields_it_lost_and_is_never_empty() -> None:
    deep = {f"k{i}": [{"a": words(9, "x")}] for i in range(4)}
    made = slimmed({"id": 1, "inner": deep, "text": words(300, "y")}, 90)
    assert made["inner"] == {LEFT_OUT: "4 more"}


def test_links_stay_longer_where_they_are_asked_for() -> None:
    assert "avatar_url" in slimmed(ROW, 350, frozenset({"links"}))


def test_then_deep_parts_and_long_strings() -> None:
    made = slimmed(ROW, 140)
    assert made["id"] == 55475 and "starred_url" not in encoded(made)
    assert made["body"].endswith("…")


def test_a_list_says_how_many_items_went() -> None:
    assert slimmed({"items": [[f"item {i}" for i in range(50)]]}, 40) == {
        "items": [["item 0", "item 1", "item 2", "… 47 more"]]
    }


def test_at_last_the_wanted_fields_stay_and_then_the_short_ones() -> None:
    row = {f"field{i}": words(20, "x") for i in range(9)} | {"price": words(20, "y"), "note": "n"}
    made = slimmed(row, 75, frozenset({"price"}))
    assert made["price"] and made["note"] == "n" and made[LEFT_OUT].endswith("fields left out")
    assert list(made) == sorted(made, key=lambda key: [*row, LEFT_OUT].index(key))


def test_what_was_wanted_is_found_in_the_text_of_a_field_too() -> None:
    row = {f"field{i}": words(20, "x") for i in range(9)} | {"deep": "the prices " + words(18, "z")}
    assert "deep" in slimmed(row, 60, frozenset({"prices"}))


@pytest.mark.parametrize(("value", "room"), [(words(2_000), 60), (words(2_000), 20), ([words(2_000)], 60)])
def test_a_string_is_cut(value: Json, room: int) -> None:
    assert encoded(slimmed(value, room)).count("…") == 1
