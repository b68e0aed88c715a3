"""Texts and token ids are cut at one end, to one height, and nothing else is done to them."""

from __future__ import annotations

import json
from typing import Any

from proxy.apis.openai_completions.request import parse
from proxy.fit.ends import LINE, cut_at_ends
from proxy.fit.plan import start
from proxy.model.conversation import HEAD, TAIL
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts
from proxy.tokens.meter import meter_for
from tests.makers import ladder
from tests.tokens.remembering import Remembering


def draft(prompt: Any, window: int = 1000, pins: tuple[int, ...] = (), **fields: Any) -> Draft:
    body = json.dumps({"model": "davinci-002", "prompt": prompt, "max_tokens": 100, **fields}).encode()
    found = parse(body, pins)
    return start(found, ladder(), Facts(Window(window), meter_for(found, found.model, Remembering())))


def values(found: Draft) -> list[Any]:
    return [json.loads(m.raw) for m in found.messages]


IDS = list(range(2000))


def test_the_end_that_is_named_stays() -> None:
    before = draft(IDS)
    tail, head = (cut_at_ends(before, lambda m, end=end: end) for end in (TAIL, HEAD))  # type: ignore[misc]
    assert values(tail) == [IDS[-before.room :]] and values(head) == [IDS[: before.room]]
    assert tail.prompt == head.prompt == before.room and tail.excess <= 0


def test_what_is_not_named_or_pinned_stays_whole() -> None:
    before = draft(IDS)
    assert cut_at_ends(before, lambda m: "") is before
    pinned = draft(IDS, pins=(0,))
    assert cut_at_ends(pinned, lambda m: HEAD) is pinned


def test_of_inputs_that_are_apart_each_is_cut_to_the_room() -> None:
    before = draft([IDS, [1, 2], IDS[:900], IDS[:860]])
    after = cut_at_ends(before, lambda m: HEAD)
    assert [len(found) for found in values(after)] == [before.room, 2, min(900, before.room), min(860, before.room)]


def test_texts_that_share_the_window_come_down_to_one_height() -> None:
    before = draft("one two " * 900, suffix="three four " * 700)
    after = cut_at_ends(before, lambda m: m.keep)
    one, two = (m.tokens for m in after.messages)
    assert abs(one - two) <= 4 and 0 <= before.room - after.prompt <= 8


def test_no_line_is_cut_through_where_it_is_short() -> None:
    lines = "\n".join(f"line {i} of the log" for i in range(900))
    text, _ = values(cut_at_ends(draft(lines, suffix="x"), lambda m: m.keep))
    assert lines.endswith("\n" + text)
    long = "word" * 5 * LINE
    text, _ = values(cut_at_ends(draft(long, window=400, suffix="x"), lambda m: m.keep))
    assert text and long.endswith(text)
