"""The words of a text: identifiers and their parts, English and other languages."""

from __future__ import annotations

import time

import pytest

from proxy.fit.relevance.text.splitting import count_tokens, tokens
from proxy.fit.relevance.text.words import (
    BLOB,
    KNOWN,
    LONGEST,
    identifiers_in,
    is_english,
    parts,
    stem,
    summarised,
    unescaped,
    words_of,
)

ENGLISH = "When did the two of them go to the museum, and what did they say about it?"
OTHERS = (
    "Wann sind die beiden ins Museum gegangen, und was haben sie da über den alten Hut an der Wand gesagt?",
    "Quand est-ce qu'ils sont allés au musée, et qu'ont-ils dit des tableaux qui sont sur le mur d'en face?",
    "¿Cuándo fueron los dos al museo y qué dijeron de los cuadros que no les gustaron a sus padres?",
    "Wanneer gingen ze naar het museum, en wat was het dat we er over hoorden of wie had het gezien?",
    "Quando sono andati al museo, e che cosa hanno detto a proposito dei quadri in fondo alla sala?",
    "Kdy šli do muzea a co o tom to jejich okolí řeklo?",
)


def counts(text: str) -> dict[str, int]:
    return words_of(count_tokens(tokens(text)).items())


@pytest.mark.parametrize(
    ("token", "found"),
    [
        ("file_path", ["file_path", "file", "path"]),
        ("getHTTPResponse", ["gethttpresponse", "get", "http", "response"]),
        ("cmd/entire/cli.go", ["cmd/entire/cli.go", "cmd", "entire", "cli", "go"]),
        ("#W7534214", ["#w7534214", "7534214"]),
        ("2023-05-08", ["2023-05-08", "2023", "05", "08"]),
        ("LGBTQ", ["lgbtq"]),
        ("hello", ["hello"]),
        ("42", ["42"]),
        ("x", ["x"]),
        ("a_b", ["a_b"]),
        ("___", []),
    ],
)
def test_an_identifier_is_found_by_itself_and_by_its_parts(token: str, found: list[str]) -> None:
    assert list(parts(token)) == found


def test_what_is_too_long_to_be_an_identifier_is_known_by_its_parts_alone() -> None:
    long = "someLong_" * (1 + LONGEST // 9)
    assert long.lower() not in parts(long) and "some" in parts(long)


def test_of_an_endless_run_only_the_beginning_is_read() -> None:
    assert len(parts("aB" * 9 * BLOB)) <= BLOB
    assert parts("a" * 9 * BLOB) == ("a" * BLOB,)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("café déjà-vu", ["cafe", "deja-vu", "deja", "vu"]),
        ("cafe\u0301", ["cafe"]),
        ("Привет, мир!", ["привет", "мир"]),
        ("东京都 hello你", ["东京", "京都", "hello", "你"]),
        ("안녕하세요", ["안녕", "녕하", "하세", "세요"]),
        ("สวัสดี", ["สว", "วั", "ัส", "สด", "ดี"]),
        ("मानक हिन्दी", ["मानक", "हिन्दी"]),
        ("ｆｕｌｌ ①", ["full", "1"]),
    ],
)
def test_other_scripts_have_words_or_pairs_of_characters(text: str, found: list[str]) -> None:
    assert list(counts(text)) == found


def test_words_are_counted_in_order_of_first_appearance() -> None:
    text = "b a b some_name b some_name."
    assert list(counts(text).items()) == [("b", 3), ("a", 1), ("some_name", 2), ("some", 2), ("name", 2)]
    assert summarised(count_tokens(tokens(text))) == (("b", "a", "some_name"), 10, 0, ("some_name",))


@pytest.mark.parametrize(
    ("token", "name"), [("some_name", True), ("a_b", False), ("internet", False), ("#W7534214", True)]
)
def test_an_identifier_names_something(token: str, name: bool) -> None:
    assert identifiers_in([token]) == ({token} if name else set())


@pytest.mark.parametrize("token", ["2023-05-08", "10:02:33.123"])
def test_dates_and_times_are_no_names(token: str) -> None:
    assert not identifiers_in([token])


def test_english_is_known_and_others_are_not_taken_for_it() -> None:
    assert is_english(counts(ENGLISH))
    assert [other for other in OTHERS if is_english(counts(other))] == []
    assert not is_english({})


@pytest.mark.parametrize(
    ("word", "root"),
    [
        ("instruments", "instrument"),
        ("parties", "parti"),
        ("party", "parti"),
        ("classes", "class"),
        ("class", "class"),
        ("running", "run"),
        ("runs", "runs"),
        ("telling", "tell"),
        ("moved", "mov"),
        ("moves", "mov"),
        ("move", "mov"),
        ("the", "the"),
        ("quickly", "quick"),
        ("markedly", "mark"),
        ("dress", "dress"),
        ("being", "being"),
        ("dogs", "dogs"),
        ("file_path", "file_path"),
        ("über", "über"),
    ],
)
def test_a_word_is_stemmed_lightly(word: str, root: str) -> None:
    assert stem(word) == root


def test_escapes_do_not_grow_onto_words() -> None:
    assert unescaped(r'{"a":"one\ntwo\"three\u00e9"}').split() == ['{"a":"one', "two", "three", '"}']
    assert unescaped("plain") == "plain"


@pytest.mark.parametrize("unit", ["#", "a:", ".", "_", "a.", "$a", "\u0301", "a\u0301:", "1"])
def test_no_input_is_read_more_than_once(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    start = time.process_time()
    for token in tokens(text):
        parts(token)
    assert time.process_time() - start < 30  # quadratic, it would take hours


def test_what_is_too_long_to_be_an_identifier_is_not_remembered() -> None:
    long = "a1" * LONGEST
    assert parts(long) and long not in KNOWN and parts("some_name") and "some_name" in KNOWN
