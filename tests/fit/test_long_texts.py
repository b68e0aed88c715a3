"""Long texts in messages."""

from __future__ import annotations

from typing import Any

from proxy.fit.long_texts import EXCERPTED, long_message, long_places, with_context_only
from tests.makers import assistant, draft, fields, system, tool_round, user, words

TEXT = "\n".join(words(6, f"line{i}x") for i in range(100))
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def places(messages: list[dict[str, Any]], *pins: int) -> list[tuple[int, int]]:
    return [*long_places(draft(messages, 9000).blocks, 300, pins)]


def test_long_messages_are_found_whoever_speaks() -> None:
    told = [system(TEXT), user("short"), assistant(TEXT), *tool_round("c", TEXT), user(TEXT)]
    assert places(told) == [(0, 0), (2, 0), (4, 0)]  # results are not among them
    assert places(told, 0, 5) == [(2, 0)]


def test_the_texts_of_a_message_are_its_long_parts() -> None:
    parts = [{"type": "text", "text": "short"}, {"type": "text", "text": TEXT}, IMAGE]
    before = draft([{"role": "user", "content": parts}], 9000)
    start = len("short") + TEXT.index("line50")
    long = long_message(before.blocks, (0, 0), before.meter, [(start, start + 10)])
    assert long is not None and len(long.texts) == 1 and 50 in long.texts[0].always
    made = long.keeping([{0, 50}], lambda text, room: text)
    content = fields(made)["content"]
    assert content[0]["text"] == "short" and content[2] == IMAGE and made.why == EXCERPTED
    assert content[1]["text"].splitlines()[2].startswith("line50x0")


def test_a_message_without_a_long_part_has_none() -> None:
    before = draft([{"role": "user", "content": [{"type": "text", "text": "short"}, IMAGE]}], 9000)
    assert long_message(before.blocks, (0, 0), before.meter) is None


def test_of_instructions_only_context_may_go() -> None:
    before = draft([system(f"Help.\n\n# Context\n\n{TEXT}\n\n# Rules\n\nBe kind."), user("q")], 9000)
    long = long_message(before.blocks, (0, 0), before.meter)
    assert long is not None
    found = with_context_only(long, 100, ())
    assert found is not None and len(found.texts[0].always) == len(found.texts[0].passages) - 100
    assert with_context_only(long, 10_000, ()) is None
