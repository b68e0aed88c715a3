"""What a scan of a request's bytes finds without reading its messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from proxy.model.limits import Margin, Quality


class PrefixDigest(msgspec.Struct, frozen=True):
    """Digests of the messages of a conversation, each of it and of all before it, under a `seed`: the first, how many
    there are, the latest ones (a bounded number), and the digest's `state`, to be copied and gone on with."""

    seed: int
    first: int
    count: int
    latest: Sequence[int]
    state: Any


class ScanState(msgspec.Struct, frozen=True):
    """What a look at messages one after another found so far.

    `opaque` and `heard` say that some cost is not bounded by bytes, `surplus` is by how much the others may cost more
    than their bytes. `led` says that instructions stand first, `late` that there are some behind other messages alone,
    `parallel` that the latest calls are several, `keyed` that a message bears the key of our own.
    """

    count: int = 0
    opaque: bool = False
    heard: bool = False
    surplus: int = 0
    late: bool = False
    parallel: bool = False
    keyed: bool = False
    led: bool = False


class KnownPrefix(msgspec.Struct, frozen=True):
    """The messages that a body begins with, read before: they stand between the bytes `start` and `end`. `lead` is the
    JSON of the first one where that holds instructions."""

    start: int
    end: int
    lead: bytes
    seen: ScanState
    marks: PrefixDigest


class Scan(msgspec.Struct, frozen=True):
    """What a first look at a body tells without reading its messages: enough to prove that it fits.

    `most` bounds its prompt tokens from above by its bytes; None where bytes prove nothing (images, `$ref`, ...).
    `head` are the bytes that what the prompt costs besides its messages depends on; `marks` makes digests of its
    messages under a seed; None where a count cannot be kept by bytes (images). `text` is the body without the messages
    that were `known`.
    """

    model: str
    reserve: int | None
    stream: bool
    most: int | None
    head: bytes = b""
    marks: Callable[[int], PrefixDigest | None] | None = None
    seen: ScanState = ScanState()
    known: KnownPrefix | None = None
    text: bytes = b""

    @property
    def new(self) -> int:
        """How many bytes had to be read."""
        return len(self.text)


class Total(msgspec.Struct, frozen=True):
    """What a request costs that was counted but not planned: all that can be said of one that need not be cut.

    `unit` is how many of the model's tokens one of its encoding was taken for; None where the count cannot teach.
    """

    prompt: int
    margin: Margin
    quality: Quality
    messages: int
    unit: float | None = None
