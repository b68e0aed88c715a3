"""Protocols between packages: the meter, which counts tokens, and the memory, which caches counts."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import NamedTuple, Protocol

from proxy.model.conversation import Message
from proxy.model.limits import Margin, Quality


class Medium(NamedTuple):
    """A part whose cost the body does not show: an image by its URL, a file by its id.

    `digest` identifies its content in this process (0: usage teaches nothing about it). `tokens` is what it counts as:
    what it usually costs, or, if `known`, what usage showed of it.
    """

    digest: int
    tokens: int
    known: bool


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

    @property
    def key(self) -> str:
        """Identifies how it counts texts: meters with the same key count each text alike."""

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

    def media(self, messages: Sequence[Message]) -> tuple[Medium, ...]:
        """The parts of messages whose cost the body does not show. Empty if the upstream counted this prompt."""

    def with_media(self, rate: float, allowance: int = 0) -> Meter:
        """A meter that counts a part of unknown cost as `rate` times its usual cost, with a margin that is `allowance`
        tokens wider."""

    def with_fields(self, fields: Mapping[str, bytes]) -> Meter:
        """A meter of the same request with other values (raw JSON) of these fields besides the messages."""

    def pending(self, messages: Sequence[Message]) -> tuple[bytes, bytes] | None:
        """None if the block's cost is cached; else its cache key, and the bytes that the cost depends on (for a keyed
        hash that may leave the process)."""


class Memory(Protocol):
    """The cache of a meter: maps a short key to the costs of one block's messages. Bounded."""

    def get(self, key: bytes) -> tuple[int, ...] | None:
        """The cached costs, or None."""

    def put(self, key: bytes, value: tuple[int, ...]) -> object:
        """Stores costs; older entries may be dropped."""


ACCEPTED_S = 3_600.0  # how long an accepted answer vouches for a key: keys are revoked


class Spending(Protocol):
    """What all replicas spent of one budget."""

    @property
    def total(self) -> int | None:
        """In the current 24 hours; None where that is not known now."""

    @property
    def known(self) -> int | None:
        """The same, however old it is; None before the first answer."""

    def charge(self, amount: int) -> None:
        """Adds to what this process spent; a negative number takes some back."""


class Agreement(Protocol):
    """Which sets of labels of metrics all replicas tell apart."""

    def allows(self, kind: str, labels: Sequence[str], most: int) -> bool:
        """Whether a set is told apart: all do so already, or there are fewer than `most` of its kind."""


class Accepted(Protocol):
    """The callers whose own key an upstream accepted within `ACCEPTED_S` seconds, and has not refused since."""

    def has(self, caller: bytes) -> bool:
        """Whether a caller, a digest of 16 bytes, is one of them."""

    def knows(self, caller: bytes) -> bool:
        """Whether anything is known of its key within `ACCEPTED_S`: that it was accepted, or refused."""

    def learn(self, caller: bytes) -> Awaitable[None]:
        """Reads what other replicas know of a caller that is not known here; waits for no more than one such read."""

    def accept(self, caller: bytes) -> None:
        """Its key was accepted."""

    def refuse(self, caller: bytes) -> None:
        """Its key was refused."""
