"""The result of scanning a request's bytes, without decoding its messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from proxy.model.limits import CountUnit, Margin, Quality
from proxy.model.ports import Medium


class PrefixDigest(msgspec.Struct, frozen=True):
    """Digests of the prefixes of a conversation: each covers a message and all before it, under `seed`. `first` is the
    digest of the first message, `count` the number of messages, `latest` the last digests (a bounded number), `state`
    the hash state, to be copied and continued."""

    seed: int
    first: int
    count: int
    latest: Sequence[int]
    state: Any


class ScanState(msgspec.Struct, frozen=True):
    """What the scan of consecutive messages found so far.

    `opaque`, `heard`: the cost of an image or of audio is not bounded by its bytes. `surplus`: tokens by which other
    parts may exceed their bytes. `led`: the first message is a system message; `late`: there are system messages, but
    only after others. `parallel`: the latest message with calls has several. `keyed`: a message has our own key.
    `hidden`: there is encrypted reasoning, which is read until the user speaks again (1) or for good (2). `compacts`:
    the last message asks the provider to compact the conversation.
    """

    count: int = 0
    opaque: bool = False
    heard: bool = False
    surplus: int = 0
    late: bool = False
    parallel: bool = False
    keyed: bool = False
    led: bool = False
    hidden: int = 0
    compacts: bool = False


class KnownPrefix(msgspec.Struct, frozen=True):
    """The first messages of a body, scanned before with an earlier request: the bytes from `start` to `end`. `lead` is
    the JSON of the first message if it is a system message."""

    start: int
    end: int
    lead: bytes
    seen: ScanState
    marks: PrefixDigest


class Scan(msgspec.Struct, frozen=True):
    """The result of scanning a body: enough to prove that it fits.

    `most`: an upper bound of its prompt tokens, from its bytes; None if bytes are no bound (images, `$ref`, ...).
    `head`: the bytes that the cost besides the messages depends on. `marks`: makes the digests under a seed; None if a
    count cannot be cached by bytes (images). `text`: the body without the `known` messages. `background`: the client
    need not wait for the reply, so nothing of a stream may wait for it. `compacts`: the provider is to compact the
    conversation. `window`: the one that the request makes its server load, in tokens. `tier`: of
    service, as it asks for it; a value of `proxy.model.outcome.TIERS`. `choices`: how many replies are made for it,
    each as long as the limit.
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
    background: bool = False
    compacts: bool = False
    window: int | None = None
    tier: str = ""
    choices: int = 1

    @property
    def new(self) -> int:
        """How many bytes were scanned."""
        return len(self.text)


class Total(msgspec.Struct, frozen=True):
    """The count of a request that fits and needs no plan. `prompt` is in tokens.

    `unit`: how it was counted; None if nothing can be learned from this request. `fixed`:
    the tokens besides its messages. `digests`: the last of its prefixes' digests. `longest`: the tokens of the longest
    message where each has the window to itself; else 0. `media`: the parts whose cost the body does not show.
    """

    prompt: int
    margin: Margin
    quality: Quality
    messages: int
    unit: CountUnit | None = None
    fixed: int = 0
    digests: Sequence[int] = ()
    longest: int = 0
    media: Sequence[Medium] = ()

    @property
    def shown(self) -> int:
        """The tokens without those of parts of unknown cost."""
        return self.prompt - sum(medium.tokens for medium in self.media if not medium.known)
