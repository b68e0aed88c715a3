"""Why claimed messages stay, counted for reports."""

from __future__ import annotations

from proxy.fit.claims.reasons import counted
from proxy.model.plan import Drop
from proxy.model.structs import replace
from tests.makers import message, user


def test_a_message_that_two_reasons_keep_counts_for_both_and_the_strongest_reason_comes_first() -> None:
    kept = [
        replace(message(user("one")), why="kept: typed by the user"),
        replace(message(user("two")), why="shortened; kept: asked again, order"),
        replace(message(user("three")), why="kept: order"),
        replace(message(user("four")), why="relevance 0.50"),
        message(user("five")),
    ]
    assert counted(kept) == (("asked again", 1), ("order", 2), ("typed by the user", 1))
    assert counted(kept[3:]) == ()


def test_reasons_that_the_marks_of_a_plan_do_not_use_are_not_counted() -> None:
    assert counted([replace(message(user("one")), why="kept: something that a text says")]) == ()


def test_messages_that_are_quoted_for_a_reason_count_and_those_for_their_relevance_do_not() -> None:
    drops = [
        Drop(0, "recalled: order"),
        Drop(1, "recalled: changes what was said"),
        Drop(2, "recalled: relevance 0.50"),
        Drop(3, "older, and no room"),
    ]
    kept = [replace(message(user("one")), why="kept: order")]
    assert counted(kept, drops) == (("changes what was said", 1), ("order", 2))
