"""Protocols between packages: what counts, and what remembers counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from proxy.model.conversation import Message
from proxy.model.limits import Margin, Quality


class Meter(Protocol):
    """Counts for one request: bound to its model, its tools and whatever else its head adds to the prompt.

    Every method is a pure function of its arguments; what it remembers only makes it faster.
    """

    @property
    def quality(self) -> Quality:
        """How far its counts may be trusted."""

    @property
    def margin(self) -> Margin:
        """The gap that counts of this quality need."""

    @property
    def fixed(self) -> Mapping[str, int]:
        """What the prompt costs besides its messages, by what takes it: base, tools, schema, ..."""

    def text(self, text: str) -> int:
        """Tokens of a bare text."""

    def cut(self, text: str, tokens: int, *, tail: bool = False) -> str:
        """The longest head (or tail) of a text that costs at most so many tokens."""

    def costs(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """What each message of one block adds to the prompt; the sum is exact, shares within the block may not be."""

    def scaled(self, ratio: float) -> Meter:
        """A meter whose counts are this one's times a ratio that an upstream taught us."""

    def pending(self, messages: Sequence[Message]) -> tuple[bytes, bytes] | None:
        """None where this block's cost is remembered; else the key it will be remembered by, and the bytes it
        depends on (for a keyed hash that may leave the process)."""


class Memory(Protocol):
    """Where a meter remembers counts: a bounded map of a short key to the costs of one block's messages."""

    def get(self, key: bytes) -> tuple[int, ...] | None:
        """What was remembered, or None."""

    def put(self, key: bytes, value: tuple[int, ...]) -> object:
        """Remember it; the oldest may go."""
