"""A bounded memory of what was worked out before: it makes pure functions faster and never changes what they return."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import Generic, TypeVar

Value = TypeVar("Value")
DIGEST = 16  # bytes: as many as make an accidental or a sought collision out of reach


class Memo(Generic[Value]):
    """Keys to values, each with a weight; the longest unused go when all weigh more than `limit`. For many threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._weight = 0
        self._kept: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> Value | None:
        """What was put under the key, now the newest; None where nothing is."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Value, weight: int = 1) -> Value:
        """Remembers and returns it. What alone weighs more than the limit is not remembered."""
        with self._lock:
            self._drop(key)
            if weight <= self._limit:
                self._kept[key] = (value, weight)
                self._weight += weight
            while self._weight > self._limit:
                self._weight -= self._kept.popitem(last=False)[1][1]
        return value

    def take(self, key: Hashable) -> Value | None:
        """What was put under the key, which now is the caller's alone: for values that grow where they stand."""
        with self._lock:
            return self._drop(key)

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._kept.clear()
            self._weight = 0

    def _drop(self, key: Hashable) -> Value | None:
        found = self._kept.pop(key, None)
        if found is None:
            return None
        self._weight -= found[1]
        return found[0]


class Table(dict[str, Value]):
    """What `made` makes of a word, looked up as in a dict, which costs a third of what `lru_cache` does. At `limit`
    words all are forgotten; a word of more than `longest` characters is not remembered. For many threads."""

    def __init__(self, made: Callable[[str], Value], limit: int, longest: int) -> None:
        super().__init__()
        self._made = made
        self._limit = limit
        self._longest = longest

    def __missing__(self, word: str) -> Value:
        value = self._made(word)
        if len(word) <= self._longest:
            if len(self) >= self._limit:
                self.clear()
            self[word] = value
        return value


def digest(*parts: bytes | str) -> int:
    """A short number for contents, the same in every process; where one part ends and the next begins matters."""
    made = blake2b(digest_size=DIGEST)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        made.update(len(data).to_bytes(8, "little"))
        made.update(data)
    return int.from_bytes(made.digest(), "little")
