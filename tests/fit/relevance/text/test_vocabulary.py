"""The terms of an index with their vectors."""

from __future__ import annotations

import pytest

from proxy.fit.relevance.text import vocabulary
from proxy.fit.relevance.text.vocabulary import REMEMBERED, Vocabulary
from proxy.fit.relevance.text.word_table import WordTable


def test_a_term_is_compared_by_its_first_word_with_those_of_its_own_and_of_other_languages() -> None:
    english, german = Vocabulary(""), Vocabulary("de")
    english.look_up({"puppies": 0, "puppy": 0, "tree": 0, "an": 0})
    german.look_up({"hunde": 0, "hund": 0, "baum": 0})
    assert [term for _, term in english.words] == ["puppi", "tre"]
    assert english.similar("dog", "")[0][1] == "puppi"
    assert german.similar("dog", "en")[0][1] == "hunde"


def test_it_grows_with_its_index_and_what_was_similar_before_is_found_again() -> None:
    found = Vocabulary("de")
    words = {"baum": 0}
    found.look_up(words)
    assert not found.similar("dog", "en")
    found.look_up(words | {"hund": 0})
    assert [term for _, term in found.similar("dog", "en")] == ["hund"]


def test_a_word_is_compared_once_with_all_terms_and_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    class Counting(WordTable):
        def __init__(self) -> None: ...

        def vector(self, word: str) -> int | None:
            return len(word)

        def nearest(self, vector: int, vocabulary: object) -> list[tuple[float, str]]:
            compared.append(vector)
            return []

    monkeypatch.setattr(vocabulary, "language_table", lambda language: Counting())
    found = Vocabulary("de")
    for _ in range(3):
        found.similar("dog", "en")
    assert len(compared) == 1
    for number in range(2 * REMEMBERED):
        found.similar(f"word{number}", "en")
    assert len(found._found) == REMEMBERED
