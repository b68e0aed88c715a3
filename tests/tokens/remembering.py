"""A memory for meters that tells what it was asked."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Remembering:
    """Keeps everything; counts the questions that it could not answer."""

    kept: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    missed: int = 0

    def get(self, key: bytes) -> tuple[int, ...] | None:
        found = self.kept.get(key)
        self.missed += found is None
        return found

    def put(self, key: bytes, value: tuple[int, ...]) -> None:
        self.kept[key] = value
