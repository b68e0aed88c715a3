"""What became of the messages of one conversation over its requests."""

from __future__ import annotations

from typing import Any

from proxy.admin.conversations import MAX_CHANGES, MAX_LOST, columns, fates, summary
from proxy.wire.rows import Row


def request(at: float, *states: str, sent: int = 10, went: int = 1, planned: bool = False) -> dict[str, Any]:
    """A request whose messages have these states, and one that was added; `went`: how many of its messages were sent,
    `planned`: it was only planned, and sent as it came."""
    made = [Row(i, "user", state, "", f"{state} at {at}", 10, sent) for i, state in enumerate(states)]
    rows = columns([Row(None, "user", "added", "", "", 0, 5), *made])
    return {"id": f"0-{at}", "at": at, "messages_sent": went, "planned": [{}] * planned, "rows": rows}


def test_a_message_that_went_says_since_when_and_why() -> None:
    found = fates([request(1, "kept", "kept"), request(2, "kept", "dropped"), request(3, "kept", "dropped", "kept")])
    assert [(one["index"], one["state"], one["since"], one["request"], one["why"]) for one in found] == [
        (1, "dropped", 2, "0-2", "dropped at 3")
    ]
    assert summary(found) == {"gone": 1, "shortened": 0, "quoted": 0, "back": 0}


def test_what_came_back_is_told_with_how() -> None:
    found = fates([request(1, "dropped"), request(2, "recalled"), request(3, "kept"), request(4, "dropped")])
    assert [(change["state"], change["at"], change["back"]) for change in found[0]["changes"]] == [
        ("dropped", 1, False),
        ("recalled", 2, True),
        ("kept", 3, False),
        ("dropped", 4, False),
    ]
    assert summary(found) == {"gone": 1, "shortened": 0, "quoted": 0, "back": 1}


def test_what_was_never_changed_is_not_told() -> None:
    assert fates([request(1, "kept", "kept"), request(2, "kept", "joined")]) == []
    assert fates([request(1)]) == [], "of very many messages no rows are kept"


def test_a_request_that_was_not_sent_lost_nothing_and_one_that_was_only_planned_was_sent_whole() -> None:
    assert fates([request(1, "dropped", went=0)]) == fates([request(1, "dropped", planned=True)]) == []
    (found,) = fates([request(1, "dropped"), request(2, "dropped", planned=True), request(3, "dropped", went=0)])
    assert (found["state"], found["since"], found["tokens_sent"]) == ("kept", 2, 10)
    assert found["changes"][-1]["back"]


def test_what_is_shorter_or_quoted_is_counted_apart() -> None:
    found = fates([request(1, "shortened", "excerpted", "recalled", "summarised")])
    assert summary(found) == {"gone": 1, "shortened": 2, "quoted": 1, "back": 0}


def test_what_is_told_is_bounded() -> None:
    many = [request(at, *(["dropped", "kept"][at % 2] for _ in range(2_000))) for at in range(100)]
    found = fates(many)
    assert len(found) == MAX_LOST
    assert all(len(one["changes"]) <= MAX_CHANGES + 1 for one in found)
    assert found[0]["changes"][0]["at"] == 0, "when it went first stays"
