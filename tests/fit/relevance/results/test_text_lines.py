"""A text in lines: long ones in chunks, and of very many the middle as one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.results.text_lines import CHUNK, LINES, LONG, lines_of


@given(st.text(alphabet="ab \n", max_size=200))
def test_short_lines_are_the_text(text: str) -> None:
    assert "\n".join(line.text for line in lines_of(text)) == text
    assert all(line.starts == 1 for line in lines_of(text))


def test_a_long_line_is_chunks_that_make_it_up_and_only_the_first_begins_a_line() -> None:
    long = "word " * (LONG // 5) + "x" * (2 * CHUNK)
    first, *chunks, last = lines_of(f"one\n{long}\ntwo")
    assert (first.text, last.text) == ("one", "two")
    assert "".join(chunk.text for chunk in chunks) == long and all(len(c.text) <= CHUNK + 1 for c in chunks)
    assert [chunk.starts for chunk in chunks] == [1] + [0] * (len(chunks) - 1)
    assert len(lines_of("x" * LONG)) == 1


def test_of_too_many_lines_the_middle_is_one_that_counts_them() -> None:
    many = "\n".join(map(str, range(3 * LINES)))
    found = lines_of(many)
    assert sum(line.starts for line in found) == 3 * LINES and len(found) <= LINES + 2
    assert found[0].text == "0" and found[-1].text == str(3 * LINES - 1)
    assert [line.text for line in found if line.starts > 1] == [f"… {2 * LINES} lines …"]
