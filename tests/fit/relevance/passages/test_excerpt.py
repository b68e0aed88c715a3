"""One text within a number of tokens."""

from __future__ import annotations

import pytest

from proxy.fit.relevance.passages import excerpt as module
from proxy.fit.relevance.passages.excerpt import excerpt
from proxy.fit.relevance.text.question import question_in
from tests.makers import WordMeter

TEXT = "\n".join(f"line {i} is about {'lighthouses' if i == 77 else 'other things'} and more" for i in range(200))
ASKED = question_in("Which line is about lighthouses?")


@pytest.mark.parametrize("limit", [60, 100, 300])
def test_what_bears_on_the_question_stays_within_the_limit(limit: int) -> None:
    made = excerpt(TEXT, limit, ASKED, WordMeter())
    assert made is not None and "line 77 is about lighthouses" in made and 0.7 * limit < WordMeter().text(made) <= limit


def test_there_is_none_where_nothing_bears_on_the_question() -> None:
    assert excerpt(TEXT, 100, question_in("Quels sont les horaires?"), WordMeter()) is None


def test_there_is_none_where_what_must_stay_does_not_fit() -> None:
    assert excerpt(TEXT, 100, ASKED, WordMeter(), [(0, len(TEXT))]) is None


def test_an_estimate_that_was_too_small_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dear(WordMeter):
        def text(self, text: str) -> int:
            return len(text.split()) + 3 * text.count("…")

    made = excerpt(TEXT, 100, ASKED, Dear())
    assert made is not None and Dear().text(made) <= 100
    monkeypatch.setattr(module, "TRIES", 0)
    assert excerpt(TEXT, 100, ASKED, Dear()) is None
