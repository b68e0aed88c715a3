"""The terms of a growing index that a table of words contains, with their vectors."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice

from proxy.fit.relevance.text.word_table import WordTable, language_table, word_table
from proxy.fit.relevance.text.words import prefix, stem

SHORTEST = 3  # letters of an English word that is looked up in the word table
REMEMBERED = 256  # words of other languages whose neighbours are kept: a question is read clause by clause


class Vocabulary:
    """The terms of an index, each with the vector of its first word that a table contains.

    `language`: that of the words, whose table is used; empty: the table of English alone, by which English words are
    compared with each other."""

    __slots__ = ("_found", "_known", "_language", "_looked_up", "words")

    def __init__(self, language: str) -> None:
        self.words: list[tuple[int, str]] = []  # (vector, term)
        self._language = language
        self._known: set[str] = set()
        self._looked_up = 0
        self._found: dict[tuple[str, str], list[tuple[float, str]]] = {}

    def look_up(self, words: Collection[str]) -> None:
        """Adds the terms of new words. `words`: all of the index, in the order of their first appearance."""
        if self._looked_up == len(words):
            return
        self._found.clear()
        english = self._language in ("", "en")
        term: Callable[[str], str] = stem if english else prefix
        shortest = SHORTEST if english else 1
        table = _table(self._language)
        for word in islice(words, self._looked_up, None):
            key = term(word)
            if key not in self._known and len(key) >= shortest and (vector := table.vector(word)) is not None:
                self._known.add(key)
                self.words.append((vector, key))
        self._looked_up = len(words)

    def similar(self, word: str, language: str) -> list[tuple[float, str]]:
        """(similarity, term) of the terms that mean nearly the same as a word of a language, or of the table of English
        alone, the most similar first."""
        found = self._found.get((language, word))
        if found is None:
            vector = _table(language).vector(word)
            found = [] if vector is None else _table(language).nearest(vector, self.words)
            if language and len(self._found) < REMEMBERED:
                self._found[language, word] = found
        return found


def _table(language: str) -> WordTable:
    return language_table(language) if language else word_table()
