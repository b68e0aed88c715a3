"""What was worked out before, remembered: it makes pure functions faster and never changes what they return."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import TypeVar

Value = TypeVar("Value")
DIGEST = 16  # bytes: as many as make an accidental or a sought collision out of reach


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
