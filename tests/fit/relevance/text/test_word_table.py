"""The word table: what is near in meaning, read from the shipped file."""

from __future__ import annotations

import hashlib
import struct
import zlib
from importlib.resources import files

import pytest

import proxy.fit.relevance
from proxy.fit.relevance.text.word_table import NEAREST, SHA256, WordTable, word_table


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
