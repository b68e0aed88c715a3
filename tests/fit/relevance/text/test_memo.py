"""What was worked out before, remembered."""

from __future__ import annotations

import subprocess
import sys

from proxy.fit.relevance.text.memo import MemoTable, digest


def test_a_table_makes_each_word_once_and_forgets_all_when_there_are_too_many() -> None:
    made: list[str] = []

    def length(word: str) -> int:
        made.append(word)
        return len(word)

    table = MemoTable(length, limit=2, longest=3, characters=100)
    assert [table[word] for word in ("a", "bb", "a", "bb")] == [1, 2, 1, 2] and made == ["a", "bb"]
    assert table["ccc"] == 3 and dict(table) == {"ccc": 3}
    assert table["dddd"] == 4 and dict(table) == {"ccc": 3}  # too long to be remembered


def test_a_table_is_bounded_by_the_characters_of_its_words() -> None:
    table = MemoTable(len, limit=100, longest=9, characters=11)
    assert [table[word] for word in ("abcd", "efgh")] == [4, 4] and len(table) == 2
    assert table["ijkl"] == 4 and dict(table) == {"ijkl": 4}
    assert table["港口"] == 2 and dict(table) == {"港口": 2}  # a character of another script counts several times


def test_a_digest_tells_where_one_part_ends_and_the_next_begins() -> None:
    assert digest("ab", "c") != digest("a", "bc") and digest("é") == digest("é".encode())
    assert digest("\ud800") != digest("")


def test_a_digest_is_the_same_in_every_process() -> None:
    code = "from proxy.fit.relevance.text.memo import digest; print(digest('a', b'b'))"
    seen = {subprocess.check_output([sys.executable, "-c", code], text=True).strip() for _ in range(2)}
    assert seen == {str(digest("a", b"b"))}
