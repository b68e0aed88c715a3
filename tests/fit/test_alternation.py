"""Users and answers in turn: what is joined, and what is left alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.openai_chat.messages import BREAK
from proxy.fit.alternation import GONE, UNANSWERED, WHY, alternates, in_turn
from proxy.fit.excerpts import Excerpt, excerpts
from proxy.model.plan import Draft, Drop
from proxy.model.structs import replace
from tests.makers import WordMeter, assistant, contents, draft, prompt, system, tool_round, user, words


def strict(messages: list[dict[str, Any]]) -> Draft:
    """What a client sent to a model that takes nothing else."""
    found = draft(messages, 1_000)
    return replace(found, window=replace(found.window, alternates=True))


def without(found: Draft, *places: int) -> Draft:
    gone = [m for i in places for m in found.blocks[i].messages]
    kept = [b for i, b in enumerate(found.blocks) if i not in places]
    return found.with_blocks(kept, [Drop(m.index, "old") for m in gone])


def said(found: Draft) -> list[tuple[str, str]]:
    return [(m.role, m.text()) for m in found.messages]


TALK = [system("s"), user("a"), assistant("b"), user("c"), assistant("d"), user("e")]


@pytest.mark.parametrize(
    ("messages", "so"),
    [
        (TALK, True),
        (TALK[1:], True),
        ([system("s"), *TALK], True),
        ([user("a"), *tool_round("1", "x"), *tool_round("2", "x"), assistant("b"), user("c")], True),
        ([user("a"), *tool_round("1", "x")], True),
        ([], True),
        ([user("a"), user("b")], False),
        ([user("a"), assistant("b"), assistant("c")], False),
        ([assistant("a"), user("b")], False),
        ([user("a"), *tool_round("1", "x"), user("b")], False),
        ([user("a"), assistant("b"), system("s"), user("c")], False),
    ],
)
def test_users_and_answers_alternate_behind_instructions_and_calls_do_not_count(
    messages: list[dict[str, Any]], so: bool
) -> None:
    assert alternates(prompt(messages).messages if messages else ()) is so


def test_neighbours_of_one_role_are_joined_to_the_last_of_them() -> None:
    before = strict(TALK)
    after = in_turn(before, without(before, 2))
    assert said(after) == [("system", "s"), ("user", f"a{BREAK}c"), ("assistant", "d"), ("user", "e")]
    assert [(m.index, m.why) for m in after.messages][1] == (3, WHY)
    assert after.drops == (Drop(2, "old"), Drop(1, GONE))
    assert after.blocks[1].pinned  # as the first user message was
    assert after.prompt == after.fixed + sum(before.meter.costs(list(after.messages)))


def test_answers_are_joined_too_behind_a_round_whose_question_is_gone() -> None:
    rounds = [*tool_round("1", "x"), assistant("d")]
    before = strict([user("a"), assistant("b"), user("c"), *rounds, user("e")])
    after = in_turn(before, without(before, 2))
    assert [m.role for m in after.messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert contents(after)[3] == f"b{BREAK}d"


def test_what_is_quoted_joins_the_question_and_the_question_stays_whole() -> None:
    before = strict(TALK)
    quoted = excerpts(before, [Excerpt(2, "assistant: b", 1.0)])
    after = without(before, 2, 3, 4)
    after = in_turn(before, after.with_blocks([*after.blocks[:-1], quoted, after.blocks[-1]]))
    assert len(after.blocks) == 2
    assert contents(after)[1] == BREAK.join(("a", quoted.messages[0].text(), "e"))
    assert [m.index for m in after.messages] == [0, 5]


def test_behind_the_last_of_the_clients_own_a_message_of_ours_is_joined_to_it() -> None:
    before = strict(TALK[:2])
    quoted = excerpts(before, [Excerpt(0, "x", 1.0)])
    after = in_turn(before, before.with_blocks([*before.blocks, quoted]))
    assert [m.index for m in after.messages] == [0, 1] and contents(after)[1].startswith(f"a{BREAK}[")
    alone = in_turn(before, before.with_blocks([before.blocks[0], quoted, quoted]))
    assert [m.index for m in alone.messages] == [0, -1]


def test_parts_stay_as_they_are_and_texts_beside_them_become_parts() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    parts = [{"type": "text", "text": "c", "cache_control": {"type": "ephemeral"}}, image]
    before = strict([user("a"), assistant("b"), {"role": "user", "content": parts}, assistant("d"), user("")])
    after = in_turn(before, without(before, 1, 3))
    told = json.loads(next(iter(after.messages)).raw)["content"]
    assert told == [{"type": "text", "text": "a"}, *parts]


def test_other_keys_of_the_message_that_is_joined_to_are_kept() -> None:
    before = strict([user("a"), assistant("b"), {"x": 1, **user("c"), "name": "n"}])
    after = in_turn(before, without(before, 1))
    assert next(iter(after.messages)).raw == b'{"x": 1, "role": "user", "content": "a\\n\\nc", "name": "n"}'.replace(
        b": ", b":"
    ).replace(b", ", b",")


def test_what_cannot_be_read_is_not_joined() -> None:
    before = strict([user("a"), {"role": "assistant", "content": None, "refusal": "no"}, user("c"), assistant("d")])
    cut = without(before, 2)
    assert in_turn(before, cut) is cut


def test_it_leaves_alone_what_is_in_turn_and_what_never_was_and_models_that_take_any_order() -> None:
    before = strict(TALK)
    assert in_turn(before, before) is before
    cut = without(before, 2, 3)
    assert in_turn(before, cut) is cut
    messy = strict([user("a"), user("b"), assistant("c"), user("d")])
    cut = without(messy, 2)
    assert in_turn(messy, cut) is cut
    easy = draft(TALK, 1_000)
    cut = without(easy, 2)
    assert in_turn(easy, cut) is cut


def test_nothing_is_joined_that_would_fit_no_more_for_it() -> None:
    before = strict([user(words(30)), assistant(words(9)), user(words(20)), assistant("x"), user("y")])
    cut = without(before, 1)
    assert in_turn(before, cut).prompt < cut.prompt  # as a frame costs more than a blank line
    dear = replace(cut, meter=WordMeter(ratio=50.0))
    assert in_turn(before, dear) is dear


def test_results_that_the_user_would_follow_at_once_go_with_their_call() -> None:
    """Mistral takes no user after a tool: their answer was dropped, and the client sent none of that kind."""
    told = [user("a"), *tool_round("c1", "tide"), assistant("b"), user("c"), assistant("d"), user("e")]
    before = strict(told)
    kept = before.with_blocks([before.blocks[0], before.blocks[1], *before.blocks[3:]])
    found = in_turn(before, kept)
    assert [m.role for m in found.messages] == ["user", "assistant", "user"]
    assert sum(drop.why == UNANSWERED for drop in found.drops) == 2
