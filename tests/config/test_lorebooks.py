"""Lorebooks in the three formats that they come in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.config.lorebooks import PARSERS, parse_json, parse_markdown
from proxy.fit.lore import Entry, Logic

# As SillyTavern writes them: all that it knows of an entry, and entries by their number.
INFO = {
    "uid": 0,
    "key": ["dragon", " wyrm ", ""],
    "keysecondary": ["red"],
    "comment": "The dragon",
    "content": "  Smoulder guards the pass.\n",
    "constant": False,
    "vectorized": False,
    "selective": True,
    "selectiveLogic": 3,
    "addMemo": True,
    "order": 100,
    "position": 0,
    "disable": False,
    "probability": 100,
    "depth": 4,
    "characterFilter": {"isExclude": False, "names": [], "tags": []},
}
CARD = {
    "keys": ["dragon"],
    "secondary_keys": ["red"],
    "content": "Smoulder guards the pass.",
    "enabled": True,
    "insertion_order": 7,
    "selective": True,
    "constant": False,
    "name": "The dragon",
    "extensions": {"selectiveLogic": 2, "position": 0},
}


def info(*rows: Any) -> str:
    return json.dumps({"entries": {str(i): row for i, row in enumerate(rows)}})


def card(*rows: Any, spec: str = "chara_card_v2") -> str:
    return json.dumps({"spec": spec, "spec_version": "2.0", "data": {"name": "A", "character_book": {"entries": rows}}})


def test_world_info_of_silly_tavern() -> None:
    (found,) = parse_json(info(INFO))
    assert found == Entry(
        "Smoulder guards the pass.", keys=("dragon", "wyrm"), secondary=("red",), logic=Logic.AND_ALL, order=100
    )


def test_world_info_may_leave_out_what_it_does_not_need() -> None:
    rows = {"content": "a", "key": ["k"]}, {"content": "b"}, {"content": "c", "key": None, "constant": True}
    assert parse_json(info(*rows)) == (
        Entry("a", keys=("k",)),
        Entry("b", searched=True),
        Entry("c", constant=True, searched=True),
    )
    assert parse_json(json.dumps({"entries": list(rows)})) == parse_json(info(*rows))


def test_what_is_switched_off_or_says_nothing_is_no_entry() -> None:
    assert parse_json(info({**INFO, "disable": True}, {**INFO, "content": " "})) == ()
    assert parse_json(card({**CARD, "enabled": False})) == ()


def test_secondary_keys_count_only_where_they_select() -> None:
    assert parse_json(info({**INFO, "selective": False}))[0].secondary == ()
    assert parse_json(card({**CARD, "selective": False}))[0].secondary == ()


def test_an_entry_that_is_found_by_its_meaning_may_be_searched() -> None:
    assert parse_json(info({**INFO, "vectorized": True}))[0].searched
    assert parse_json(card({**CARD, "extensions": {"vectorized": True}}))[0].searched


@pytest.mark.parametrize("spec", ["chara_card_v2", "chara_card_v3"])
def test_the_book_of_a_character_card(spec: str) -> None:
    (found,) = parse_json(card(CARD, spec=spec))
    assert found == Entry(
        "Smoulder guards the pass.", keys=("dragon",), secondary=("red",), logic=Logic.NOT_ANY, order=7
    )


def test_a_book_of_version_3_that_stands_alone() -> None:
    text = json.dumps({"spec": "lorebook_v3", "data": {"entries": [CARD]}})
    assert parse_json("\ufeff" + text) == parse_json(card(CARD))


def test_lines_for_the_program_are_not_for_the_model() -> None:
    row = {**CARD, "content": "@@depth 5\n@@@role system\nSmoulder guards the pass.\n@@ stays"}
    assert parse_json(card(row, spec="chara_card_v3"))[0].content == "Smoulder guards the pass.\n@@ stays"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Input data was truncated"),
        ("[]", "no entries: must be a world info"),
        ('{"spec": "chara_card_v2", "data": {"name": "A"}}', "no entries: must be a world info"),
        ('{"spec": "chara_card_v2", "data": 1}', "no entries: must be a world info"),
        ('{"entries": 3}', "no entries: must be a world info"),
        (info(INFO, {**INFO, "key": "dragon"}), "entry 1 (The dragon): key: expected array, got str"),
        (info({"key": ["a"]}), "entry 0: missing field content"),
        (info({**INFO, "selectiveLogic": 9}), "entry 0 (The dragon): selectiveLogic: invalid enum value 9"),
        (card(CARD, {**CARD, "content": 7}), "entry 2 (The dragon): content: expected str, got int"),
        (card("x"), "entry 1: expected object, got str"),
    ],
)
def test_what_is_wrong_is_told_by_its_entry(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_json(text)
    assert str(caught.value).lower().startswith(reason.lower())


MARKDOWN = """\ufeffA world of tides.

# Places
## Vell, the grey harbour ##
A town on the coast.

```
# no heading
```
##
Nameless.
   ### Oar
#hashtag
Rivers   meet here.
"""


def test_a_heading_of_markdown_is_an_entry() -> None:
    assert parse_markdown(MARKDOWN) == (
        Entry("A world of tides.", searched=True),
        Entry(
            "A town on the coast.\n\n```\n# no heading\n```",
            "Vell, the grey harbour",
            ("Vell", "the grey harbour"),
            searched=True,
        ),
        Entry("Nameless.", searched=True),
        Entry("#hashtag\nRivers   meet here.", "Oar", ("Oar",), searched=True),
    )


@pytest.mark.parametrize("text", ["", "# Only\n## Headings\n"])
def test_markdown_without_text_is_no_lorebook(text: str) -> None:
    with pytest.raises(ValueError, match="each heading with text below it is an entry"):
        parse_markdown(text)


def test_the_files_name_tells_its_format() -> None:
    assert PARSERS == {".json": parse_json, ".md": parse_markdown, ".markdown": parse_markdown}
