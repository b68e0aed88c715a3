"""The tokens of a text, of many lines, of texts that are long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.text.splitting import LINE_BATCH, PIECE, TOKEN, distinct_tokens, pieces, tokens, tokens_by_line


@given(st.text(alphabet="ab \n.", max_size=60), st.integers(1, 9))
def test_the_pieces_of_a_text_are_the_text(text: str, times: int) -> None:
    long = text * times * (PIECE // 60)
    found = list(pieces(long))
    assert "".join(found) == long and all(len(piece) <= PIECE for piece in found)


def test_long_texts_are_read_in_pieces_without_breaking_words() -> None:
    text = "alpha beta\n" * PIECE
    assert set(tokens(text)) == {"alpha", "beta"}
    assert len(tokens("x" * (3 * PIECE))) == 3


@given(st.text(alphabet="aB9_@#$./:+- \t=()→…é\u0301中\ud800\xa0\u2028\x1c", max_size=40))
def test_splitting_finds_the_same_tokens_as_the_pattern(text: str) -> None:
    assert tokens(text) == TOKEN.findall(text)


@given(st.lists(st.text(alphabet="ab./:- =→é\r\x0b\u2028", max_size=12), max_size=5))
def test_lines_read_together_have_the_tokens_that_each_has_alone(lines: list[str]) -> None:
    assert tokens_by_line(lines) == list(map(tokens, lines))
    assert tokens_by_line([*lines, "x " * PIECE]) == [*map(tokens, lines), ["x"] * PIECE]


def test_many_lines_are_read_a_part_at_a_time() -> None:
    lines = [f"line_{i} of.many." for i in range(2 * LINE_BATCH + 1)]
    assert tokens_by_line(lines) == [[f"line_{i}", "of.many"] for i in range(len(lines))]


def test_all_tokens_of_many_texts_are_gathered_a_part_at_a_time() -> None:
    texts = [[f"t{i}", "same"] for i in range(2 * LINE_BATCH + 1)]
    assert distinct_tokens(iter(texts)) == {"same", *(f"t{i}" for i in range(len(texts)))}
    assert distinct_tokens([]) == distinct_tokens([[], []]) == set()
