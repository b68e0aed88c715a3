"""How much of a prompt repeats what was sent before: of what the client sent, and of what went upstream.

Theory of operation. A provider's prompt cache holds prefixes of prompts. `SentPrefixes` remembers, by tenant and model,
the digests of prefixes that were answered and their tokens: of prompts as they were sent upstream and, apart from them,
as clients sent them. The two differ after a cut or a switch of the model; what went upstream as the client sent it is
remembered once, as both. The longest prefix of a new prompt that is remembered is the part that it repeats. Digests are
those of `proxy.wire.scan`; they stay in the process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import msgspec

from proxy.model.bounded import Bounded
from proxy.model.outcome import FIRST, KEPT, MOVED, Repeated
from proxy.model.plan import Draft
from proxy.model.scan import PrefixDigest

LEAST_TOKENS = 1_024  # of a prompt: hardly any provider caches shorter ones
MAX_PREFIXES = 20_000  # of prompts as they were sent, and as many of prompts as clients sent them
MOST_NEW = 2  # a cut is kept if all that was sent before is sent again but the question, and quotes of ours before it
Key = tuple[bytes, str, int]  # tenant, model, digest


class Prefixes(msgspec.Struct, frozen=True):
    """Some prefixes of one prompt, shortest first: their digests, and the tokens of the last ones of them."""

    digests: Sequence[int]
    tokens: Sequence[int]


class Sent(msgspec.Struct, frozen=True, gc=False):
    """A prefix that was sent: its tokens, how many messages came after it, and when, in seconds of the monotonic
    clock."""

    tokens: int
    more: int
    at: float


@dataclass(slots=True)
class SentPrefixes:
    """The prefixes of prompts as they went upstream (`_sent`), and of those that clients sent otherwise (`_asked`)."""

    _asked: Bounded[Key, Sent] = field(default_factory=lambda: Bounded(MAX_PREFIXES))
    _sent: Bounded[Key, Sent] = field(default_factory=lambda: Bounded(MAX_PREFIXES))

    def add(
        self, tenant: bytes, models: tuple[str, str], asked: Prefixes, sent: Prefixes | None, at: float | None = None
    ) -> Repeated:
        """Adds a prompt that was answered, and returns what it repeated. `models`: that of the client, and that of the
        upstream. `sent` is None if the prompt was not cut. `at`: seconds of the monotonic clock (None: now)."""
        now = time.monotonic() if at is None else at
        model, model_sent = models
        known = _longest((self._sent,), tenant, model_sent, (sent or asked).digests)
        same = sent is None and model == model_sent
        if same and not self._asked.filled:
            before = known
        else:
            before = _longest((self._sent, self._asked), tenant, model, asked.digests)
        if not same:
            _put(self._asked, tenant, model, asked, now)
        _put(self._sent, tenant, model_sent, sent or asked, now)
        return Repeated(
            0 if before is None else before.tokens,
            0 if known is None else known.tokens,
            _idle(now, before, known),
            "" if sent is None else FIRST if before is None else _cut(known),
        )

    def expected(self, tenant: bytes, model: str, sent: Prefixes) -> Repeated | None:
        """What a prompt will repeat of what was sent before, if it is sent now; None if that is nothing. It adds
        nothing."""
        known = _longest((self._sent,), tenant, model, sent.digests) if self._sent.filled else None
        return None if known is None else Repeated(0, known.tokens, time.monotonic() - known.at)


def _idle(now: float, before: Sent | None, known: Sent | None) -> float:
    """Seconds since the later of these two was sent; 0 if there is none."""
    if before is None or known is None:
        one = known if before is None else before
        return 0.0 if one is None else now - one.at
    return now - max(before.at, known.at)


def _longest(seen: Sequence[Bounded[Key, Sent]], tenant: bytes, model: str, digests: Sequence[int]) -> Sent | None:
    """The longest of these prefixes that was seen."""
    for digest in reversed(digests):
        for one in seen:
            found = one.get((tenant, model, digest))
            if found is not None:
                return found
    return None


def _put(seen: Bounded[Key, Sent], tenant: bytes, model: str, prefixes: Prefixes, now: float) -> None:
    """All prefixes whose tokens are known are seen now."""
    more = 0
    for digest, count in zip(reversed(prefixes.digests), reversed(prefixes.tokens), strict=False):
        seen.put((tenant, model, digest), Sent(count, more, now))
        more += 1


def _cut(known: Sent | None) -> str:
    return KEPT if known is not None and known.more <= MOST_NEW else MOVED


def prefixes_of_draft(marks: PrefixDigest, draft: Draft) -> Prefixes:
    """The prefixes of a draft that was sent; `marks` are the digests of its payload."""
    after = [0, *accumulate(message.tokens for message in reversed(tuple(draft.messages)))]
    tokens = [draft.prompt - later for later in after[: len(marks.latest)]]
    return Prefixes(marks.latest, tokens[::-1])
