"""Conversations are known by the longest of their prefixes that was answered."""

from __future__ import annotations

from proxy.cache.conversations import Conversations
from proxy.cache.intervals import Interval

ONE, TWO = Interval(1, 3, 2, 1.0), Interval(4, 6, 5, 1.0)


def test_the_longest_prefix_that_is_known_says_which_conversation_it_is() -> None:
    known = Conversations()
    assert not known.filled and known.find("m", b"ann", (1, 2)) is None
    known.put("m", b"ann", (), ONE)
    assert not known.filled
    known.put("m", b"ann", (1, 2), ONE)
    known.put("m", b"ann", (1, 2, 3), TWO)
    assert [known.find("m", b"ann", found) for found in ((1,), (1, 2), (2, 3, 4), (1, 2, 9))] == [None, ONE, TWO, ONE]
    assert known.find("m", b"bob", (1, 2)) is known.find("n", b"ann", (1, 2)) is known.find("m", b"ann", ()) is None
    assert known.has("m", b"ann") and not known.has("m", b"bob") and not known.has("n", b"ann")
