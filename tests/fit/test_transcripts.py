"""Messages as text for a model that is to sum them up."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.fit.blocks import group
from proxy.fit.transcripts import packed, transcript
from proxy.model.conversation import Block
from tests.makers import WordMeter, message, prompt, tool_round, user, words


def told(*messages: dict[str, Any]) -> str:
    return transcript(group(prompt(messages).messages)[0])


def test_a_message_is_told_with_who_said_it() -> None:
    assert told(user("Hello {you}")) == "user: Hello {you}"
    assert told({"role": "assistant", "content": None}) == ""


def test_calls_and_their_results_are_told_as_text() -> None:
    called = tool_round("c1", "three rows", "search", '{"q": "tide"}')
    assert told(*called) == 'assistant: [calls search with {"q": "tide"}]\n\nresult of a tool: three rows'


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}]}, "[calls f with x]"),
        ({"content": "Yes", "function_call": {"name": "f", "arguments": "{}"}}, "Yes [calls f with {}]"),
    ],
)
def test_other_shapes_of_calls_are_told_too(message: dict[str, Any], said: str) -> None:
    assert told({"role": "assistant", **message}) == f"assistant: {said}"


def test_of_what_is_no_text_the_kind_is_told() -> None:
    parts = [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}]
    assert told({"role": "user", "content": parts}) == "user: Look: [image_url]"


def test_what_cannot_be_read_is_left_out() -> None:
    assert transcript(Block((message(b'{"role":"user","content":"\xff"}'),))) == ""


def test_texts_are_packed_into_pieces_that_hold_them_all_in_order() -> None:
    texts = [words(n, f"p{n}x") for n in (5, 30, 8, 100, 1)]
    pieces = packed(texts, 40, WordMeter())
    assert all(WordMeter().text(piece) <= 40 for piece in pieces)
    assert " ".join(" ".join(pieces).split()) == " ".join(texts)
    assert packed([], 40, WordMeter()) == []


def test_what_cannot_be_cut_is_a_piece_of_its_own() -> None:
    assert packed(["one two three"], 2, WordMeter()) == ["one two three"]
