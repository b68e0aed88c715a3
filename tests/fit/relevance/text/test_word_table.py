"""The word tables: what is near in meaning, read from the shipped files."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
import zlib
from importlib.resources import files

import pytest

import proxy.fit.relevance
from proxy.fit.relevance.text.word_table import (
    ENDING,
    LANGUAGE_FILE,
    LANGUAGE_SHA256,
    NEAREST,
    SHA256,
    TRANSLATIONS,
    WordTable,
    language_table,
    word_table,
)


def small(*vectors: int, magic: bytes = b"PLW1") -> WordTable:
    """A table of words a, b, c, ... with eight bits each."""
    packed = zlib.compress("\n".join("abcdefgh"[: len(vectors)]).encode())
    return WordTable(struct.pack("<4sHIII", magic, 8, len(vectors), len(packed), 0) + packed + bytes(vectors))


def test_the_shipped_table_is_the_one_that_was_published() -> None:
    folder = files(proxy.fit.relevance)
    digest = hashlib.sha256(folder.joinpath("words512.bin").read_bytes()).hexdigest()
    assert digest == SHA256 == folder.joinpath("words512.bin.sha256").read_text().split()[0]
    assert SHA256 in folder.joinpath("NOTICE").read_text()
    assert len(word_table()) == 21_358 and word_table() is word_table()


def test_a_file_that_was_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.fit.relevance.text.word_table.SHA256", "0" * 64)
    with pytest.raises(ValueError, match="not the published table"):
        word_table.__wrapped__()
    with pytest.raises(ValueError, match="not a word table"):
        small(1, magic=b"nope")


def test_words_that_mean_nearly_the_same_are_near() -> None:
    shipped = word_table()
    vocabulary = [(shipped.vector(w) or 0, w) for w in ("puppy", "tree", "cat", "committee", "kids")]
    dog, children = shipped.vector("dog"), shipped.vector("children")
    assert dog is not None and children is not None
    assert [word for _, word in shipped.nearest(dog, vocabulary)][:2] == ["puppy", "cat"]
    assert shipped.nearest(children, vocabulary)[0][1] == "kids"


def test_a_word_that_is_not_in_the_table_has_no_vector() -> None:
    assert word_table().vector("zzzz") is None


def test_the_first_word_of_the_table_is_the_most_frequent_and_a_word_beyond_it_is_as_rare_as_can_be() -> None:
    shipped = word_table()
    assert shipped.rarity("the") == 0.0 and shipped.rarity("zzzz") == 1.0
    assert 0 < shipped.rarity("school") < shipped.rarity("camping") < 1


def test_similarity_falls_with_every_bit_that_differs_and_noise_is_left_out() -> None:
    found = small(0b0, 0b1, 0b11, 0b1111)
    vocabulary = [(found.vector(w) or 0, w) for w in "abcd"]
    near = found.nearest(0, vocabulary)
    assert [word for _, word in near] == ["a", "b", "c"]
    assert near[0][0] == 1.0 and near[0][0] > near[1][0] > near[2][0] >= 0.25


def test_only_so_many_neighbours_are_looked_at_and_equals_come_by_their_names() -> None:
    found = small(0).nearest(0, [(0, f"w{i:03}") for i in range(100, 0, -1)])
    assert [word for _, word in found] == [f"w{i:03}" for i in range(1, NEAREST + 1)]


@pytest.mark.parametrize("language", LANGUAGE_SHA256)
def test_the_tables_of_languages_are_those_that_were_published_and_as_the_notice_says(language: str) -> None:
    folder, file = files(proxy.fit.relevance), LANGUAGE_FILE.format(language)
    data = folder.joinpath(file).read_bytes()
    assert hashlib.sha256(data).hexdigest() == LANGUAGE_SHA256[language]
    assert f"{LANGUAGE_SHA256[language]}  {file}" in folder.joinpath("NOTICE").read_text()
    magic, bits, count, _, reserved = struct.unpack_from("<4sHIII", data)
    assert (magic, bits, count, reserved) == (b"PLW1", 256, 30_000, 0)
    assert len(language_table(language)) == count and language_table(language) is language_table(language)


def test_all_tables_together_are_small() -> None:
    sizes = [
        len(files(proxy.fit.relevance).joinpath(LANGUAGE_FILE.format(each)).read_bytes()) for each in LANGUAGE_SHA256
    ]
    assert sum(sizes) < 9_000_000


def test_a_table_of_a_language_that_was_changed_or_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LANGUAGE_SHA256, "de", "0" * 64)
    with pytest.raises(ValueError, match=r"words256\.de\.bin: not the published table"):
        language_table.__wrapped__("de")
    with pytest.raises(KeyError):
        language_table("nl")


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("de", "hund schwester urlaub krankenhaus gekauft regen"),
        ("fr", "chien soeur vacances hopital achete pluie"),
        ("es", "perro hermana vacaciones hospital comprado lluvia"),
        ("it", "cane sorella vacanza ospedale comprato pioggia"),
        ("pt", "cao irma ferias hospital comprou chuva"),
        ("ru", "собака сестра отпуск больница купил дождь"),
        ("zh", "小狗 姐姐 假期 医院 购买 下雨"),
    ],
)
def test_words_of_different_languages_with_one_meaning_are_near(language: str, words: str) -> None:
    english, other = language_table("en"), language_table(language)
    meant = "dog sister vacation hospital bought rain".split()
    crowd = "tree committee window seven piano guilty yesterday soup engine police".split()
    vocabulary = [(english.vector(word) or 0, word) for word in meant + crowd]
    vectors = [other.vector(word) for word in words.split()]
    nearest = [other.nearest(vector, vocabulary)[:1] for vector in vectors if vector is not None]
    assert sum(found[0][1] == word for found, word in zip(nearest, meant, strict=True) if found) >= 5


def test_a_form_of_a_word_of_a_language_has_the_words_vector() -> None:
    german = language_table("de")
    assert german.vector("geigen") == german.vector("geige") and german.vector("qqqqqqqq") is None
    data = files(proxy.fit.relevance).joinpath("words256.de.bin").read_bytes()
    exact, forms = WordTable(data, compact=True), WordTable(data, compact=True, ending=ENDING)
    assert exact.vector("kerzenxy") is None and forms.vector("kerzenxy") == exact.vector("kerzen")
    assert forms.vector("kerzenxyz") is None and forms.vector("ab") == exact.vector("ab")


def test_a_compact_table_knows_the_same_words_in_the_same_order() -> None:
    data = files(proxy.fit.relevance).joinpath("words256.fr.bin").read_bytes()
    whole, compact = WordTable(data), WordTable(data, compact=True)
    for word in ("chien", "vacances", "zzzzzz", "\ud800", ""):
        assert (whole.vector(word), whole.rarity(word)) == (compact.vector(word), compact.rarity(word))
    assert compact.rarity("faire") < compact.rarity("chien") < compact.rarity("zzzzzz") == 1.0


def test_of_a_word_of_another_language_few_words_are_alike() -> None:
    dog = language_table("de").vector("hund")
    assert dog is not None
    assert len(language_table("de").nearest(dog, [(dog, f"w{i}") for i in range(50)])) == TRANSLATIONS


def test_no_table_of_a_language_is_read_before_a_question_in_another_one_is_asked() -> None:
    script = """
from proxy.fit.relevance.text.reading import read_text
from proxy.fit.relevance.text.bm25 import acquire_index, release_index
from proxy.fit.relevance.text.question import question_in
from proxy.fit.relevance.text.word_table import language_table

def ask(turns, text):
    index = acquire_index([(read_text(turn),) for turn in turns])
    index.scores(question_in(text).query(index), meaning=True)
    release_index(index)
    return language_table.cache_info().currsize

english = ["We have been to the zoo and they showed us what the lions eat.", "She would like to have a big dog."]
german = ["Wir waren im Zoo und haben gesehen, was die Löwen fressen.", "Sie möchte einen großen Hund haben."]
print(ask(english, "What do the lions eat?"), ask(german, "Was fressen die Löwen?"), ask(english, "Caroline 1984"),
      ask(english, "Was fressen die Löwen?"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["0", "0", "0", "2"]
