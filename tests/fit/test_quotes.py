"""Quotes of what was left out, before the question."""

from __future__ import annotations

import json
from typing import Any

from proxy.fit.excerpts import HEADING
from proxy.fit.long_texts import EXCERPTED
from proxy.fit.quotes import with_quotes
from proxy.fit.relevance.passages.data import left_out
from proxy.fit.relevance.text.question import question_of
from proxy.model.plan import Draft, Drop
from proxy.model.structs import replace
from tests.makers import assistant, contents, draft, fields, user

TEXT = "\n".join(f"line {i} is about {'lighthouses' if i % 25 == 7 else 'other things'} and more" for i in range(100))
TALK = [user("first"), assistant("ok"), user(TEXT), assistant("read"), user("Which lines are about lighthouses?")]


def shortened(before: Draft, place: int, text: str) -> Draft:
    """The draft with another text in one message, as an excerpt."""
    block = before.blocks[place]
    message = block.messages[0].edit([(block.messages[0].parts()[0], text)], EXCERPTED)
    blocks = [*before.blocks[:place], replace(block, messages=before.recount([message])), *before.blocks[place + 1 :]]
    return before.with_blocks(blocks)


def quoted(made: Draft) -> list[str]:
    """The lines of the quoting message."""
    [text] = [text for text in contents(made) if text.startswith(HEADING)]
    return text.splitlines()[1:]


def with_all(made: Draft, original: Draft, alike: list[float] | None = None) -> Draft:
    question = question_of(made.blocks)
    assert question is not None
    return with_quotes(made, made.blocks, {i: i for i in range(len(made.blocks))}, original, question, alike)


def test_what_an_excerpt_lacks_is_quoted_and_nothing_twice() -> None:
    before = draft(TALK, 250, max_tokens=10)
    after = with_all(shortened(before, 2, "line 7 is about lighthouses and more\n[…9-100]"), before)
    lines = quoted(after)
    assert [line for line in lines if "lighthouses" in line] == [
        f"line {i} is about lighthouses and more" for i in (32, 57, 82)
    ]
    assert "[…]" in lines and after.prompt <= after.room and contents(after)[-1] == TALK[-1]["content"]
    assert with_all(shortened(before, 2, "x"), before, [0.0, 0.0, 1.0, 0.0]).prompt <= after.room


def test_nothing_is_quoted_where_nothing_is_missing_or_no_room_is_left() -> None:
    before = draft(TALK, 2000, max_tokens=10)
    assert with_all(before, before) is before
    small = draft(TALK, 60, max_tokens=10)
    short = shortened(small, 2, "x")
    assert with_all(short, small) is short


def test_a_long_message_that_was_dropped_is_quoted_by_passages_and_a_short_one_whole() -> None:
    before = draft(TALK, 250, max_tokens=10)
    question = question_of(before.blocks)
    assert question is not None
    drops = tuple(Drop(i, "old") for i in (1, 2, 3))
    left = replace(before.with_blocks([before.blocks[0], before.blocks[4]]), drops=drops)
    after = with_quotes(left, before.blocks, {0: 0, 4: 1}, before, question)
    assert sum("lighthouses" in line for line in quoted(after)) == 4
    assert [drop.why.startswith("recalled: ") for drop in after.drops] == [False, True, False]
    unknown = with_quotes(left, before.blocks, {0: 0, 4: 1}, None, question)
    assert quoted(unknown) == ["assistant: ok", "[…]", "assistant: read"]  # the text does not fit whole


def test_a_passage_brings_the_line_that_it_stands_under() -> None:
    text = "# Towers\n\n" + "\n".join(f"about tower {i}" for i in range(30)) + "\n\n# Boats\n\n"
    text += "\n".join(f"about the boat {i} of the lighthouse" for i in range(30))
    told: list[dict[str, Any]] = [user(text), assistant("read"), user("Which boat has the lighthouse?")]
    before = draft(told, 100, max_tokens=10)
    lines = quoted(with_all(shortened(before, 0, "x"), before))
    assert "# Boats" in lines and "# Towers" not in lines


def test_a_text_in_parallel_parts_of_the_question_is_quoted_too() -> None:
    told = [user("first"), user(TEXT + "\n\nWhich lines are about lighthouses?")]
    before = draft(told, 250, max_tokens=10)
    after = with_all(shortened(before, 1, "Which lines are about lighthouses?"), before)
    assert sum("lighthouses" in line for line in quoted(after)) >= 4 and fields(after.blocks[-1].messages[0])


def test_every_quote_of_a_file_names_it_and_the_line_with_its_name_is_not_quoted() -> None:
    files = {"harbour/config.py": "boats", "harbour/moor.py": "ropes"}
    text = "\n\n".join(
        f"{name}\n```python\n" + "\n".join(f"{word} = {i}  # of the lighthouse" for i in range(12)) + "\n```"
        for name, word in files.items()
    )
    before = draft([user(text), assistant("read"), user("What has the lighthouse?")], 260, max_tokens=10)
    after = with_all(shortened(before, 0, "x"), before)
    lines = quoted(after)
    assert [line for line in lines if line.startswith("from ")] == [f"from {name}:" for name in files]
    ropes = lines.index("from harbour/moor.py:")
    assert all(line.startswith(("boats", "from", "[…]", "```")) for line in lines[:ropes])
    assert not files.keys() & set(lines) and after.prompt <= after.room


def test_turns_of_a_transcript_are_quoted_without_roles() -> None:
    turns = [f"{who}: I keep boat {i} in the cave." for i in range(10) for who in ("Ada", "Ben")]
    told = [*map(user, turns), user("Who keeps boat 3?")]
    before = draft(told, 250, max_tokens=10)
    question = question_of(before.blocks)
    assert question is not None
    left = before.with_blocks([before.blocks[0], before.blocks[-1]])
    after = with_quotes(left, before.blocks, {0: 0, len(turns): 1}, before, question)
    lines = quoted(after)
    assert {"Ada: I keep boat 3 in the cave.", "Ben: I keep boat 3 in the cave."} <= set(lines) <= {*turns, "[…]"}


def test_what_is_quoted_of_json_is_one_valid_value_and_what_stays_in_its_place_is_not_quoted() -> None:
    value = json.dumps([{"id": i, "about": "lighthouses" if i % 25 == 7 else "other things"} for i in range(100)])
    told = [user("first"), assistant("ok"), user(f"Lines:\n{value}"), *TALK[3:]]
    before = draft(told, 160, max_tokens=10)
    found = "\n".join(quoted(with_all(shortened(before, 2, f"Lines:\n{left_out(value)}"), before)))
    assert json.loads(found.splitlines()[-1])["result_count"] == 100 and all(
        f'"id":{i},' in found for i in (7, 32, 57, 82)
    )
    kept = shortened(before, 2, 'Lines:\n[{"id":7,"about":"lighthouses"}]')
    assert with_all(kept, before) is kept


def test_the_head_of_a_record_is_quoted_with_what_stands_under_it_also_where_it_stayed_in_its_place() -> None:
    notes = "\n\n".join(
        f"## Note {k}\n\n*Source: notes/{k}.md*\n\nother things\n{'lighthouses' if k == 17 else 'things'} of {k}"
        for k in range(1, 40)
    )
    before = draft([user("first"), assistant("ok"), user(notes), *TALK[3:]], 120, max_tokens=10)
    for stays in ("x", "## Note 17\n\n*Source: notes/17.md*\n[…]"):
        lines = quoted(with_all(shortened(before, 2, stays), before))
        at = lines.index("lighthouses of 17")
        assert [line for line in lines[:at] if "ote" in line][-2:] == ["## Note 17", "*Source: notes/17.md*"]
