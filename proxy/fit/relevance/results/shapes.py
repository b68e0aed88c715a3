"""Recognises what repeats in the lines of a text: lines of one shape, and identifiers that are new on every line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

FRESH = 0.05  # identifiers of one kind per line, from which they are fresh ones (measured)
LETTER, DIGIT = re.compile(r"[^\W\d_]"), re.compile(r"\d")
RUN = re.compile(r"[^\W_]*\d[^\W_]*")  # letters and digits, at least one digit among them

Shape = tuple[str, ...]


def shapes_of(tokens: Sequence[Sequence[str]], said: Collection[str]) -> list[Shape]:
    """The shape of each line: its tokens without those that contain a digit or no letter. Lines have the same shape if
    they differ only in numbers, times, addresses and ids. `said`: all distinct tokens."""
    plain = frozenset(token for token in said if LETTER.search(token) and not DIGIT.search(token))
    return [tuple(filter(plain.__contains__, line)) for line in tokens]


def without_fresh(names: Collection[str], lines: int) -> frozenset[str]:
    """The identifiers without those of a kind that has more than `FRESH` different ones for each of these lines:
    request ids, times, addresses. They are new on every line, so they tell the model no name that it would have to
    know. Two identifiers are of one kind if they differ only in runs with digits."""
    kinds = {name: RUN.sub("0", name) for name in names}
    times = Counter(kinds.values())
    return frozenset(name for name, kind in kinds.items() if times[kind] <= max(1, FRESH * lines))
