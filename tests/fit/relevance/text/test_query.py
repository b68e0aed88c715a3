"""What a tool result was asked for."""

from __future__ import annotations

from proxy.fit.relevance.text.query import ResultQuery


def test_what_is_quoted_or_an_identifier_is_wanted_to_the_letter() -> None:
    text = (
        "State of \"Proposal: Dates\", “Das Ding”, 'one two', `x + y`, «le mot»; don't mind 12 but 55475, src/Named.py"
    )
    literals = ResultQuery(text).literals
    assert literals == ("proposal: dates", "das ding", "one two", "x + y", "le mot", "src/named.py", "55475")


def test_the_language_shows_in_the_prose_or_where_that_is_short_in_what_is_searched() -> None:
    english = "this is what they have to say about it"
    assert ResultQuery("What is the state of it?", "src/a.py").keys()[1]
    assert not ResultQuery("errors").keys()[1] and ResultQuery("errors").keys(english)[1]
    assert not ResultQuery("eins zwei drei vier fünf sechs").keys(english)[1]


def test_in_english_it_is_matched_by_stems_without_stop_words_and_each_word_of_the_arguments_counts_once() -> None:
    asked = ResultQuery("Which one has the files?", "files file files of it")
    assert asked.keys() == ({"one": 1, "fil": 3}, True)
    assert ResultQuery("Welche files?", "files file files").keys() == ({"welche": 1, "files": 2, "file": 1}, False)
    together = ResultQuery("Which files?\nThe filing of it", "", ("Which files?", "The filing of it"))
    assert together.keys() == ({"fil": 2}, True)
