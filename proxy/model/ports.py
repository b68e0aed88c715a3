"""Protocols between packages: the meter, which counts tokens, and the memory, which caches counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from proxy.model.conversation import Message
from proxy.model.limits import Margin, Quality


class Meter(Protocol):
    """Counts tokens for one request, with its model, tools and other top-level fields.

    Every method is a pure function of its arguments; its cache only saves time.
    """

    @property
    def quality(self) -> Quality:
        """The accuracy of its counts."""

    @property
    def margin(self) -> Margin:
        """The margin that counts of this quality need."""

    @property
    def fixed(self) -> Mapping[str, int]:
        """Tokens besides the messages, by name: base, tools, schema, ..."""

    def text(self, text: str) -> int:
        """Tokens of a text on its own."""

    def cut(self, text: str, tokens: int, *, tail: bool = False) -> str:
        """The longest head (or tail) of a text of at most `tokens` tokens."""

    def costs(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens that each message of one block adds to the prompt. The sum is exact; the shares may not be."""

    def scaled(self, ratio: float) -> Meter:
        """A meter with counts `ratio` times as large, as learned from a refusal."""

    def counted(self, ratio: float, margin: Margin | None = None) -> Meter:
        """A meter with counts `ratio` times as large, because the upstream counted this prompt. `margin` replaces that
        of its quality."""

    def pending(self, messages: Sequence[Message]) -> tuple[bytes, bytes] | None:
        """None if the block's cost is cached; else its cache key, and the bytes that the cost depends on (for a keyed
        hash that may leave the process)."""


class Memory(Protocol):
    """The cache of a meter: maps a short key to the costs of one block's messages. Bounded."""

    def get(self, key: bytes) -> tuple[int, ...] | None:
        """The cached costs, or None."""

    def put(self, key: bytes, value: tuple[int, ...]) -> object:
        """Stores costs; older entries may be dropped."""
