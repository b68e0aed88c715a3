"""How much of a prompt its provider's prompt cache holds, given the prompts that were sent before. It has no clock and
counts nothing.

Theory of operation
-------------------

A prompt is a sequence of pieces. Each piece has a digest, which covers all pieces before it too, and the tokens of the
prompt up to its end. Two prompts share a prefix as far as their digests are equal. A provider reads from its cache

* the longest prefix that an earlier prompt of the same scope began with, in whole steps, or,
* where clients mark what is cached, the longest prefix that an earlier prompt had marked, up to the last mark of this
  one (Anthropic, Prompt caching, "How automatic prefix checking works"), or
* where a cache matches at breakpoints, the same, with one more mark behind the newest message of the user or a tool
  (OpenAI, Prompt caching, since gpt-5.6: no fallback to the longest prefix without one).

A prefix is forgotten `PromptCache.seconds` after its last use. `PromptCache` holds what differs between providers. What
no client sees is not modelled: which machine a request reaches, and evictions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import msgspec

from proxy.fit.money import BREAKPOINT, PromptCache
from proxy.model.bounded import Bounded

MAX_PREFIXES = 300_000  # of all scopes: about 40 MB


class Pieces(msgspec.Struct, frozen=True):
    """A prompt in pieces. `digests`: of each prefix. `tokens`: of each prefix, ascending. `marks`: the places of the
    pieces behind which the client marks that the prefix is to be cached, ascending. `newest`: the place of the piece
    that ends the newest message of the user or a tool; -1 if there is none."""

    digests: Sequence[int]
    tokens: Sequence[int]
    marks: Sequence[int] = ()
    newest: int = -1


class Hit(msgspec.Struct, frozen=True):
    """Tokens of a prompt that are read from the cache, and that are written to it."""

    read: int = 0
    written: int = 0


@dataclass(slots=True)
class PrefixStore:
    """The prefixes that providers' caches hold, each with the time of its last use, in seconds of any clock."""

    _seen: Bounded[int, float] = field(default_factory=lambda: Bounded(MAX_PREFIXES))

    def add(self, scope: Hashable, prompt: Pieces, at: float, cache: PromptCache) -> Hit:
        """Adds a prompt that was sent at `at`, and returns what the cache does for it. Prompts share what is cached
        within their `scope` alone: one model and one account."""
        if not prompt.digests:
            return Hit()
        if cache.marked or cache.match == BREAKPOINT:
            return self._marked(scope, prompt, at, cache)
        return self._automatic(scope, prompt, at, cache)

    def _automatic(self, scope: Hashable, prompt: Pieces, at: float, cache: PromptCache) -> Hit:
        """Every prefix of a stored prompt is stored, so the first that is not is found by bisection."""
        places = range(len(prompt.digests))
        known = bisect_left(places, True, key=lambda i: not self._holds(scope, prompt.digests[i], at, cache))
        for digest in prompt.digests:
            self._seen.put(_key(scope, digest), at)
        read = cache.cacheable(prompt.tokens[known - 1]) if known else 0
        return Hit(read, max(0, cache.cacheable(prompt.tokens[-1]) - read))

    def _marked(self, scope: Hashable, prompt: Pieces, at: float, cache: PromptCache) -> Hit:
        marks = set(prompt.marks)
        if cache.match == BREAKPOINT and prompt.newest >= 0:
            marks.add(prompt.newest)
        if not marks:
            return Hit()
        last = max(marks)
        places = (i for i in range(last, -1, -1) if self._holds(scope, prompt.digests[i], at, cache))
        found = next(places, None)
        for place in marks if found is None else marks | {found}:
            self._seen.put(_key(scope, prompt.digests[place]), at)
        read = 0 if found is None else cache.cacheable(prompt.tokens[found])
        return Hit(read, max(0, cache.cacheable(prompt.tokens[last]) - read))

    def _holds(self, scope: Hashable, digest: int, at: float, cache: PromptCache) -> bool:
        used = self._seen.get(_key(scope, digest))
        return used is not None and at - used <= cache.seconds


def _key(scope: Hashable, digest: int) -> int:
    """One number: tuples would take twice the memory."""
    return digest ^ hash(scope)
