"""Which entries of lorebooks a text calls for."""

from __future__ import annotations

import pytest

from proxy.fit.lore import Entry, Logic, is_called, is_named


@pytest.mark.parametrize(
    ("key", "text", "found"),
    [
        ("dragon", "The DRAGON sleeps.", True),
        ("Dragon", "dragonfly", False),
        ("dragon", "a seadragon", False),
        ("dragon", "dragonflies and a dragon", True),
        ("Grey Harbour", "in the grey harbour, at night", True),
        ("grey harbour", "grey harbours", False),
        ("C++", "is C++ slow?", True),
        ("Straße", "in der STRASSE", True),
        ("龙", "那条龙很大", True),
        ("rich", "zürich", False),
        ("", "anything", False),
        ("  ", "anything", False),
    ],
)
def test_a_key_is_a_whole_word_in_capitals_or_not(key: str, text: str, found: bool) -> None:
    assert is_named(key, text.casefold()) is found


@pytest.mark.parametrize(
    ("logic", "neither", "one", "both"),
    [
        (Logic.AND_ANY, False, True, True),
        (Logic.NOT_ALL, True, True, False),
        (Logic.NOT_ANY, True, False, False),
        (Logic.AND_ALL, False, False, True),
    ],
)
def test_secondary_keys_decide_by_their_logic_once_a_primary_one_is_there(
    logic: Logic, neither: bool, one: bool, both: bool
) -> None:
    entry = Entry("x", keys=("dragon", "wyrm"), secondary=("red", "old"), logic=logic)
    told = ("a dragon", "a red wyrm", "an old red dragon")
    assert [is_called(entry, text) for text in told] == [neither, one, both]
    assert not is_called(entry, "red and old")


def test_a_constant_entry_is_called_for_always() -> None:
    assert is_called(Entry("x", constant=True, secondary=("never",)), "")


def test_an_entry_without_keys_is_not_called_for_by_them() -> None:
    assert not is_called(Entry("x", searched=True), "x")


def test_a_title_stands_before_what_an_entry_says() -> None:
    assert [Entry("A town.").text, Entry("A town.", "Vell").text] == ["A town.", "Vell: A town."]
