"""Gathers what is known of a model before a plan is made: window, counter, what was learned; it plans nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from proxy.config.answers import from_models_answer
from proxy.config.windows import RULES, Windows, capped
from proxy.fit.plan import with_learned
from proxy.serve import log
from proxy.serve.cache import Cache
from proxy.serve.upstream import Upstream, UpstreamError
from proxy.tokens.meter import meter_for
from proxy.types import Facts, Ladder, Learned, Meter, Prompt, Rival, Window

ASK_SECONDS = 2.0  # what the first request for a model that no table knows may wait for the upstream's own list
ASK_AGAIN_SECONDS = 600.0  # a list that did not name the model may name it later
NOTCH = 0.02  # learned ratios move in steps: counts that change with every answer would move the cuts with them
NOTHING_LEARNED = Learned()
LIST_BYTES = 8 * 1024 * 1024  # OpenRouter's list of models has about 1 MB

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(slots=True)
class Knowledge:
    """Windows from the table, the user's rows, refusals and the upstream itself; counters with learned ratios."""

    limit: int | None
    windows: Windows
    cache: Cache
    upstream: Upstream
    offline: bool = False
    _asked: dict[str, tuple[float, Window | None]] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)

    def window_now(self, model: str, cap: int | None) -> Window:
        """The model's window by what is known without waiting, what refusals taught included, under the caps."""
        found = self._listed(model) or self.windows.find(model)
        learned = self.cache.learned_now(model)
        if found.source != RULES and learned != NOTHING_LEARNED:
            found = with_learned(found, learned)
        return self._under_caps(found, cap)

    def _listed(self, model: str) -> Window | None:
        known = self._asked.get(model)
        return None if known is None else known[1]

    def _under_caps(self, window: Window, cap: int | None) -> Window:
        if cap is not None:
            window = capped(window, cap, "header")
        if self.limit is not None and not window.guessed:
            window = capped(window, self.limit, "limit")
        return window

    async def facts(self, prompt: Prompt, ladder: Ladder, cap: int | None, headers: Headers) -> Facts:
        """All that a plan for this prompt needs. Waits for Redis at most its own budget, and for the upstream's list
        only where nobody knows the model."""
        await self.cache.learn_of(prompt.model)
        window = self.window_now(prompt.model, cap)
        if window.guessed and not self.offline:
            await self._ask(prompt.model, headers)
            window = self.window_now(prompt.model, cap)
        if window.guessed:
            self._warn(prompt.model, window)
        learned = self.cache.learned_now(prompt.model)
        return Facts(window, self.meter(prompt, prompt.model), self._rivals(prompt, ladder, cap), learned=learned)

    def meter(self, prompt: Prompt, model: str) -> Meter:
        """Counts this prompt the way that a model does."""
        ratio = self.cache.ratio_now(model)
        steady = None if ratio is None else round(ratio / NOTCH) * NOTCH
        return meter_for(prompt, model, self.cache.memory, self.cache.learned_now(model), steady)

    def _rivals(self, prompt: Prompt, ladder: Ladder, cap: int | None) -> tuple[Rival, ...]:
        names = dict.fromkeys(name for rung in ladder.rungs for name in rung.models)
        return tuple(Rival(n, self.window_now(n, cap), partial(self.meter, prompt, n)) for n in names)

    def taught(self, facts: Facts, prompt: Prompt, cap: int | None) -> Facts:
        """Keeps what a refusal just taught for the next request and for other replicas; the caps stay."""
        learned = facts.learned if not prompt.opaque else replace(facts.learned, scale=1.0)
        if learned != NOTHING_LEARNED:
            self.cache.keep_learned(prompt.model, learned)
        return replace(facts, window=self._under_caps(facts.window, cap))

    async def _ask(self, model: str, headers: Headers) -> None:
        """Asks the upstream's own list of models, once in a while for each model that nobody knows."""
        known = self._asked.get(model)
        if known is not None and (known[1] is not None or time.monotonic() - known[0] < ASK_AGAIN_SECONDS):
            return
        if len(self._asked) > 1000:
            self._asked.clear()  # a client that invents names must not fill the memory
        self._asked[model] = (time.monotonic(), None)
        try:
            body = await asyncio.wait_for(self._list(headers), ASK_SECONDS)
        except (UpstreamError, TimeoutError):
            return
        self._asked[model] = (time.monotonic(), from_models_answer(body, model))

    async def _list(self, headers: Headers) -> bytes:
        kept = [(k, v) for k, v in headers if k not in (b"content-length", b"content-type", b"transfer-encoding")]
        identity = [(k, v) for k, v in kept if k != b"accept-encoding"]
        answer = await self.upstream.send("GET", b"/v1/models", identity, None)
        try:
            return await answer.read(LIST_BYTES) if answer.status == 200 else b""
        finally:
            await answer.close()

    def _warn(self, model: str, window: Window) -> None:
        if model in self._warned or len(self._warned) > 1000:
            return
        self._warned.add(model)
        log.event("nobody knows this model's window", model=log.printable(model), guess=window.tokens)
