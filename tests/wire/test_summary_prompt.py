"""What is asked for a summary, and what counts as one."""

from __future__ import annotations

import pytest

from proxy.wire.summary_prompt import NoSummary, prompt_for, summary_in


def test_the_prompt_gives_the_length_and_the_text_with_the_summary_so_far() -> None:
    system, user = prompt_for("In {words} words, {please}.", 100, "Red {it} is.", "user: And?")
    assert system == "In 60 words, {please}."
    assert "<summary>\nRed {it} is.\n</summary>" in user and user.index("Red") < user.index("user: And?")
    _, first = prompt_for("", 100, "", "user: And?")
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
    assert summary_in(text) == found


@pytest.mark.parametrize(
    "text", ["", "Red.", "<summary>Red, and then it was cut", "Red.</summary>", "<summary> </summary>"]
)
def test_without_both_marks_it_is_none(text: str) -> None:
    with pytest.raises(NoSummary, match="it contains no summary"):
        summary_in(text)
