"""What is asked for a summary, and what counts as one."""

from __future__ import annotations

import json

import pytest

from proxy.wire.summary_call import Unusable, question, summary_in


def body(text: str) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


def test_a_question_tells_the_length_and_what_was_said_with_the_summary_so_far() -> None:
    asked = json.loads(question("m", "In {words} words, {please}.", 100, "Red {it} is.", "user: And?"))
    assert asked["model"] == "m" and asked["messages"][0]["content"] == "In 60 words, {please}."
    said = asked["messages"][1]["content"]
    assert "<summary>\nRed {it} is.\n</summary>" in said and said.index("Red") < said.index("user: And?")
    assert set(asked) == {"model", "messages"}
    first = json.loads(question("m", "", 100, "", "user: And?"))["messages"][1]["content"]
    assert first.startswith("user: And?") and first.endswith("between <summary> and </summary>.]")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<summary>Red.</summary>", "Red."),
        ("Sure!\n<summary>\nRed.\nBlue.\n</summary>\nAnything else?", "Red.\nBlue."),
        ("<think>I shall write <summary>a</summary></think><summary>Red.</summary>", "Red."),
        ("<summary>It said <b>red</b>.</summary>", "It said <b>red</b>."),
    ],
)
def test_a_summary_stands_between_its_marks(text: str, found: str) -> None:
    assert summary_in(body(text)) == found


@pytest.mark.parametrize(
    "text", ["", "Red.", "<summary>Red, and then it was cut", "Red.</summary>", "<summary> </summary>"]
)
def test_without_both_marks_it_is_none(text: str) -> None:
    with pytest.raises(Unusable, match="it holds no summary"):
        summary_in(body(text))


def test_parts_of_text_are_joined() -> None:
    parts = [{"type": "text", "text": "<summary>Red"}, {"type": "text", "text": ".</summary>"}]
    assert summary_in(json.dumps({"choices": [{"message": {"content": parts}}]}).encode()) == "Red."


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"error":{"message":"no"}}', b"\xff", b"[" * 100_000])
def test_what_is_no_answer_is_unusable(payload: bytes) -> None:
    with pytest.raises(Unusable, match="it is no answer"):
        summary_in(payload)
