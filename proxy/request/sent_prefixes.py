"""How much of a prompt repeats what was sent before: of what the client sent, and of what went upstream.

Theory of operation. A provider's prompt cache holds prefixes of prompts. `SentPrefixes` remembers, by tenant and model,
the digests of prefixes that were answered and their tokens: of prompts as clients sent them and, apart from these, as
they were sent upstream. The two differ after a cut. The longest prefix of a new prompt that is remembered is the part
that it repeats. Digests are those of `proxy.wire.scan`; they stay in the process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from proxy.model.bounded import Bounded
from proxy.model.outcome import FIRST, KEPT, MOVED, Repeated
from proxy.model.plan import Draft
from proxy.model.scan import PrefixDigest

LEAST_TOKENS = 1_024  # of a prompt: hardly any provider caches shorter ones
MAX_PREFIXES = 20_000  # of prompts as they were sent, and as many of prompts as clients sent them
MOST_NEW = 2  # a cut is kept if all that was sent before is sent again but the question, and quotes of ours before it
Key = tuple[bytes, str, int]  # tenant, model, digest


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Some prefixes of one prompt, shortest first: their digests, and the tokens of the last ones of them."""

    digests: Sequence[int]
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class Sent:
    """A prefix that was sent: its tokens, how many messages came after it, and when, in seconds of the monotonic
    clock."""

    tokens: int
    more: int
    at: float


@dataclass(slots=True)
class SentPrefixes:
    """The prefixes of prompts as clients sent them (`_asked`) and as they went upstream (`_sent`)."""

    _asked: Bounded[Key, Sent] = field(default_factory=lambda: Bounded(MAX_PREFIXES))
    _sent: Bounded[Key, Sent] = field(default_factory=lambda: Bounded(MAX_PREFIXES))

    def add(
        self, tenant: bytes, models: tuple[str, str], asked: Prefixes, sent: Prefixes | None, at: float | None = None
    ) -> Repeated:
        """Adds a prompt that was answered, and returns what it repeated. `models`: that of the client, and that of the
        upstream. `sent` is None if the prompt was not cut. `at`: seconds of the monotonic clock (None: now)."""
        now = time.monotonic() if at is None else at
        before = _swap(self._asked, tenant, models[0], asked, now)
        known = _swap(self._sent, tenant, models[1], sent or asked, now)
        found = [one for one in (before, known) if one is not None]
        return Repeated(
            0 if before is None else before.tokens,
            0 if known is None else known.tokens,
            now - max([one.at for one in found], default=now),
            "" if sent is None else FIRST if before is None else _cut(known),
        )


def _swap(seen: Bounded[Key, Sent], tenant: bytes, model: str, prefixes: Prefixes, now: float) -> Sent | None:
    """The longest of the prefixes that was seen; then all whose tokens are known are seen."""
    digests, tokens = prefixes.digests, prefixes.tokens
    found = None
    for digest in reversed(digests):
        found = seen.get((tenant, model, digest))
        if found is not None:
            break
    for more, (digest, count) in enumerate(zip(reversed(digests), reversed(tokens), strict=False)):
        seen.put((tenant, model, digest), Sent(count, more, now))
    return found


def _cut(known: Sent | None) -> str:
    return KEPT if known is not None and known.more <= MOST_NEW else MOVED


def prefixes_of_draft(marks: PrefixDigest, draft: Draft) -> Prefixes:
    """The prefixes of a draft that was sent; `marks` are the digests of its payload."""
    after = [0, *accumulate(message.tokens for message in reversed(tuple(draft.messages)))]
    tokens = [draft.prompt - later for later in after[: len(marks.latest)]]
    return Prefixes(marks.latest, tokens[::-1])
