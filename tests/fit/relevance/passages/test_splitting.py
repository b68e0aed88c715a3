"""Passages: together they are the text, and none is too long or blank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.passages import splitting
from proxy.fit.relevance.passages.splitting import CHUNK, LONG, split


@given(text=st.text(st.sampled_from("ab. \n\r\t。;é"), min_size=1, max_size=4000))
def test_the_passages_of_a_text_are_the_text(text: str) -> None:
    found = split(text)
    assert "".join(passage.text for passage in found) == text
    assert [passage.line for passage in found] == sorted(passage.line for passage in found)


def test_a_passage_is_a_line_with_the_blank_lines_after_it() -> None:
    found = split("one\n\n \ntwo\r\nthree")
    assert [(p.text, p.line, p.starts) for p in found] == [("one\n\n \n", 1, 3), ("two\r\n", 4, 1), ("three", 5, 1)]


def test_an_empty_text_has_no_passages() -> None:
    assert split("") == []


@pytest.mark.parametrize("sentence", ["Seven words are what this sentence has. ", "每句话有七个字。", "x=1;", "word "])
def test_a_very_long_line_is_split_where_a_sentence_or_a_word_ends(sentence: str) -> None:
    found = split(sentence * 1000)
    assert len(found) > 5 and all(len(p.text) <= CHUNK and p.text.endswith(sentence) for p in found)
    assert [p.starts for p in found] == [1, *[0] * (len(found) - 1)]


def test_a_line_without_blanks_is_split_anywhere() -> None:
    assert {len(p.text) for p in split("x" * (4 * LONG))} == {CHUNK}


def test_a_text_of_very_many_lines_has_fewer_passages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "LINES", 10)
    found = split("\n".join(f"line {i}" for i in range(95)))
    assert len(found) == 10 and (found[1].line, found[1].starts) == (11, 10)


@given(
    text=st.text(st.sampled_from("ab. \n\r\t。"), min_size=1, max_size=400),
    cuts=st.sets(st.integers(1, 399), max_size=4),
)
def test_passages_begin_at_every_cut_and_their_lines_are_those_of_the_text(text: str, cuts: set[int]) -> None:
    inside = sorted(cut for cut in cuts if cut < len(text))
    found, at = split(text, inside), 0
    starts = {}
    for passage in found:
        starts[at] = passage
        assert passage.line == text.count("\n", 0, at) + 1
        at += len(passage.text)
    assert starts.keys() >= set(inside) and at == len(text)
    assert sum(passage.starts for passage in found) == (text.count("\n") or 1) + (
        1 if "\n" in text and not text.endswith("\n") else 0
    )
