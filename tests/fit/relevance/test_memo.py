"""A bounded memory: what is unused longest goes first."""

from __future__ import annotations

import subprocess
import sys
import threading

from proxy.fit.relevance.memo import Memo, Table, digest


def test_what_was_put_is_there_until_others_weigh_too_much() -> None:
    memo: Memo[str] = Memo(10)
    assert memo.put(1, "one", 4) == "one"
    memo.put(2, "two", 4)
    assert memo.get(1) == "one"  # now the newest
    memo.put(3, "three", 4)
    assert (memo.get(1), memo.get(2), memo.get(3), len(memo)) == ("one", None, "three", 2)


def test_what_is_put_again_counts_once() -> None:
    memo: Memo[str] = Memo(10)
    for _ in range(9):
        memo.put("a", "a", 6)
    memo.put("b", "b", 4)
    assert len(memo) == 2


def test_what_alone_is_too_heavy_is_returned_but_not_remembered() -> None:
    memo: Memo[str] = Memo(10)
    memo.put("a", "a", 3)
    assert memo.put("b", "b", 11) == "b"
    assert memo.get("b") is None and memo.get("a") == "a"


def test_what_is_taken_is_gone() -> None:
    memo: Memo[list[int]] = Memo(10)
    memo.put("a", [1], 10)
    assert memo.take("a") == [1] and memo.take("a") is None
    memo.put("b", [2], 10)
    memo.clear()
    assert memo.get("b") is None and len(memo) == 0


def test_many_threads_may_use_it_at_once() -> None:
    memo: Memo[int] = Memo(50)

    def work(start: int) -> None:
        for i in range(2_000):
            memo.put(i % 97, start, 3)
            memo.get((i * 7) % 97)
            memo.take((i * 5) % 97)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(memo) <= 50 // 3


def test_a_table_makes_each_word_once_and_forgets_all_when_there_are_too_many() -> None:
    made: list[str] = []

    def length(word: str) -> int:
        made.append(word)
        return len(word)

    table = Table(length, limit=2, longest=3)
    assert [table[word] for word in ("a", "bb", "a", "bb")] == [1, 2, 1, 2] and made == ["a", "bb"]
    assert table["ccc"] == 3 and dict(table) == {"ccc": 3}
    assert table["dddd"] == 4 and dict(table) == {"ccc": 3}  # too long to be remembered


def test_a_digest_tells_where_one_part_ends_and_the_next_begins() -> None:
    assert digest("ab", "c") != digest("a", "bc") and digest("é") == digest("é".encode())
    assert digest("\ud800") != digest("")


def test_a_digest_is_the_same_in_every_process() -> None:
    code = "from proxy.fit.relevance.memo import digest; print(digest('a', b'b'))"
    seen = {subprocess.check_output([sys.executable, "-c", code], text=True).strip() for _ in range(2)}
    assert seen == {str(digest("a", b"b"))}
