"""Shortening one text to a number of tokens, and one message by its largest texts."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.shorten import ASKED, JOINTS, LEAST, head_and_tail, marker, shorten_message, spread, waterline
from proxy.model.conversation import Message
from proxy.model.ports import Meter
from proxy.model.structs import replace
from tests.laws.meters import CharMeter
from tests.makers import WordMeter, words
from tests.makers import message as make

METERS: tuple[WordMeter | CharMeter, ...] = (WordMeter(), WordMeter(ratio=1.7), CharMeter(), CharMeter(ratio=2.5))


def message(content: object, **more: object) -> Message:
    return make({"role": "user", "content": content, **more}, tokens=1)


def shortened(content: object, limit: int, meter: Meter | None = None) -> Message:
    counted = meter or WordMeter()
    return shorten_message(
        message(content), counted, limit, lambda text, room: head_and_tail(text, room, counted), "why"
    )


def test_a_text_within_the_limit_is_the_same_text() -> None:
    text = words(50)
    assert head_and_tail(text, 50, WordMeter()) is text


def test_the_beginning_and_the_end_stay_and_the_marker_says_how_much_is_missing() -> None:
    short = head_and_tail(words(1000), 108, WordMeter())
    assert short.startswith("w0 w1 w2") and short.endswith("w998 w999")
    kept = 108 - 6 - JOINTS
    assert f"[… {1000 - kept} tokens left out …]" in short
    assert len(short.split()) == kept + 6


@pytest.mark.parametrize(("head", "first", "last"), [(1.0, "w99\n", "…]\n"), (0.0, "\n[…", "w999")])
def test_how_much_of_it_is_the_beginning_is_a_share(head: float, first: str, last: str) -> None:
    short = head_and_tail(words(1000), 100 + 6 + JOINTS, WordMeter(), head)
    assert first in short and short.endswith(last)


@given(text=st.text(max_size=300), limit=st.integers(0, 120), head=st.floats(0, 1), kind=st.integers(0, 3))
def test_it_is_never_over_the_limit_nor_longer_than_it_was(text: str, limit: int, head: float, kind: int) -> None:
    meter = METERS[kind] if kind > 1 else METERS[kind + 2]
    short = head_and_tail(text, limit, meter, head)
    least = meter.text(marker(meter.text(text))) + JOINTS
    joints = math.ceil(JOINTS * (meter.ratio - 1))  # a joint is taken for a token, whatever the meter makes of one
    assert meter.text(short) <= max(limit + joints, min(least, meter.text(text)))


def test_a_limit_under_the_marker_leaves_the_marker_alone() -> None:
    assert head_and_tail(words(20), 3, WordMeter()).strip() == "[… 20 tokens left out …]"


def test_a_text_no_longer_than_the_marker_is_left_alone() -> None:
    assert head_and_tail(words(8), 3, WordMeter()) == words(8)


def test_a_meter_that_makes_more_of_the_marker_leaves_less_of_the_text() -> None:
    dear = head_and_tail(words(500), 100, WordMeter(ratio=2.0))
    assert WordMeter(ratio=2.0).text(dear) <= 100


def test_a_message_keeps_every_other_byte() -> None:
    raw = message(words(100), name="joël").raw.replace(b'"role"', b'"extra":{"b": 1, "a":[1.50]},"role"')
    before = replace(message(""), raw=raw)
    after = shorten_message(before, WordMeter(), 30, lambda text, room: head_and_tail(text, room, WordMeter()), "why")
    assert after.why == "why" and after.tokens == before.tokens
    now, then = json.loads(after.raw), json.loads(before.raw)
    assert list(now) == list(then) and {**now, "content": 0} == {**then, "content": 0}
    assert b'{"b": 1, "a":[1.50]}' in after.raw and len(now["content"].split()) <= 30


def test_a_message_with_nothing_to_shorten_is_the_same_message() -> None:
    for content in (words(10), None, 7, [{"type": "text", "text": words(10)}, {"type": "image_url"}, "odd"]):
        before = message(content)
        assert shorten_message(before, WordMeter(), 30, lambda text, room: text, "why") is before


def test_of_several_parts_the_largest_gives_way_first() -> None:
    parts = [
        {"type": "text", "text": words(40), "cache": 1},
        {"type": "image_url", "image_url": {"url": "u"}},
        {"type": "text", "text": words(200, "big")},
        {"type": "text", "text": 5},
    ]
    after = json.loads(shortened(parts, 140).raw)["content"]
    assert after[0] == parts[0] and after[1] == parts[1] and after[3] == parts[3]
    assert len(after[2]["text"].split()) <= 100


def test_several_parts_give_way_where_one_is_not_enough() -> None:
    parts = [{"type": "text", "text": words(100, f"p{i}x")} for i in range(3)]
    after = json.loads(shortened(parts, 150).raw)["content"]
    costs = [len(part["text"].split()) for part in after]
    assert sum(costs) <= 150 and LEAST - JOINTS <= costs[0] <= LEAST and costs[2] == 100


def test_parts_too_short_to_give_way_are_left_alone() -> None:
    parts = [{"type": "text", "text": words(10)}] * 30
    assert json.loads(shortened(parts, 20).raw)["content"] == parts


def test_a_rule_on_characters_reaches_every_part_though_the_tokens_are_within() -> None:
    parts = [{"type": "text", "text": "abcdef"}, {"type": "text", "text": "gh"}]
    after = shorten_message(message(parts), WordMeter(), 99, lambda text, room: text[:4], "why")
    assert [part["text"] for part in json.loads(after.raw)["content"]] == ["abcd", "gh"]


def test_a_message_that_cannot_be_read_is_left_alone() -> None:
    for raw in (b'{"role":"user","content":"\xff"}', b'{"role":"user","content":"x","n":1e999}'):
        broken = replace(message("x"), raw=raw)
        assert shorten_message(broken, WordMeter(), 1, lambda text, room: "", "why") is broken


@given(costs=st.lists(st.integers(0, 50), max_size=8), excess=st.integers(-5, 300))
def test_the_waterline_is_the_highest_that_frees_enough(costs: list[int], excess: int) -> None:
    height = waterline(sorted(costs, reverse=True), excess)

    def freed(level: int) -> int:
        return sum(max(0, cost - level) for cost in costs)

    if freed(0) < excess:
        assert height == 0
    elif costs and excess > 0:
        assert freed(height) >= excess and freed(height + 1) < excess


def test_the_longest_entries_of_a_text_come_down_to_one_height_and_the_short_ones_stay() -> None:
    short = [f"said {i}" for i in range(20)]
    text = "\n\n".join(f"{entry}\n\n{words(400, f'e{i}x')}" for i, entry in enumerate(short))
    made = spread(text, 3_500, WordMeter())
    assert all(entry in made for entry in short) and WordMeter().text(made) <= 3_500
    left = [len(entry.split()) for entry in made.split("\n\n") if entry.startswith("e")]
    assert left[-1] == 400 and max(left[:-2]) - min(left[:-2]) <= 2 and min(left) > 100


def test_what_is_asked_at_the_end_stays_whole_and_the_oldest_entries_go_if_nothing_else_is_enough() -> None:
    asked = words(300, "ask")
    text = "\n\n".join(["Here it is.", *[words(90, f"e{i}x") for i in range(100)], asked])
    made = spread(text, 2_000, WordMeter())
    assert made.startswith("Here it is.\n\n[…") and made.endswith(asked) and "e99x0" in made
    assert "e0x0" not in made and WordMeter().text(made) <= 2_000
    assert ASKED > 300


@pytest.mark.parametrize("text", [words(1000), "a\n\n" + words(1000)])
def test_a_text_without_entries_keeps_head_and_tail(text: str) -> None:
    assert spread(text, 100, WordMeter()) == head_and_tail(text, 100, WordMeter())
    assert spread(text, 2_000, WordMeter()) is text
