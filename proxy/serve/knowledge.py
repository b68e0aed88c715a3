"""Gathers what is known of a model before a plan is made: window, counter, what was learned; it plans nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from proxy.bounded import Bounded
from proxy.config.windows import RULES, Windows, capped
from proxy.fit.plan import BODY, with_learned
from proxy.serve import log
from proxy.serve.cache import Cache
from proxy.serve.listing import Headers, Listing
from proxy.serve.shared.lessons import Lesson
from proxy.tokens.encodings import encoding, loaded
from proxy.tokens.families import family_of
from proxy.tokens.meter import Correction, meter_for
from proxy.types import NOTHING_LEARNED, Facts, Ladder, Learned, Meter, Prompt, Refusal, Rival, Window, replace

NOTCH = 0.02  # learned ratios move in steps: counts that change with every answer would move the cuts with them
MOST_MODELS = 1_000  # of which anything is remembered here: clients choose the names
MASK = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Standing:
    """What follows from a model's lesson for as long as that is the same: its window under the user's limit, and a
    number for all that its counts depend on besides the request."""

    lesson: Lesson
    window: Window
    counted_as: int


@dataclass(slots=True)
class Knowledge:
    """Windows from the user's rows, the tables, refusals and the upstream itself; counters with learned ratios.

    `limit` is the user's own bound on every window, in tokens; `offline` asks nobody.
    """

    limit: int | None
    windows: Windows
    cache: Cache
    listing: Listing
    offline: bool = False
    _warned: Bounded[str, bool] = field(default_factory=lambda: Bounded(MOST_MODELS))
    _steady: Bounded[str, float] = field(default_factory=lambda: Bounded(MOST_MODELS))
    _standing: Bounded[str, Standing] = field(default_factory=lambda: Bounded(MOST_MODELS))

    def known(self, model: str) -> Window:
        """A model's own window by what is known without waiting, what refusals taught included; a guess where that
        is nothing. A row that the user wrote outranks all."""
        found, learned = self._told(model), self.cache.learned_now(model)
        if learned is NOTHING_LEARNED or learned == NOTHING_LEARNED:
            return found
        if found.source == RULES:
            learned = Learned(alternates=learned.alternates)
        if learned.supposed and not found.guessed:  # from before the upstream's list came
            learned = replace(learned, window=None, supposed=False)
        return with_learned(found, learned)

    def _told(self, model: str) -> Window:
        """A model's window by what anybody states of it."""
        found = self.windows.find(model)
        listed = self.listing.now(model) if found.guessed else None
        return found if listed is None else replace(listed, limit_field=found.limit_field, alternates=found.alternates)

    def window_now(self, model: str, ladder: Ladder, cap: int | None) -> Window:
        """The window that is planned with: the model's own under the caps of the client and the user. A guess that a
        ladder assumes to be true is never raised by the user's limit."""
        if cap is None:
            standing = self._standing.get(model)
            if standing is None or standing.lesson is not self.cache.lesson_now(model):
                standing = self._stands(model, ladder)
            if standing is not None:
                return standing.window
        return self._under_caps(self.known(model), ladder, cap)

    def _stands(self, model: str, ladder: Ladder) -> Standing | None:
        """What stands as long as its lesson; None for what may change by itself: a guess, a lesson that ends."""
        lesson, known = self.cache.lesson_now(model), self.known(model)
        if known.guessed or lesson.learned.supposed:
            return None
        standing = Standing(lesson, self._under_caps(known, ladder, None), self._counted_as(model))
        return self._standing.put(model, standing)

    def _under_caps(self, window: Window, ladder: Ladder, cap: int | None) -> Window:
        if cap is not None:
            window = capped(window, cap, "header")
        if self.limit is not None and window.guessed and ladder.unknown == "assume":
            return replace(window, tokens=min(window.tokens, self.limit))
        return window if self.limit is None else capped(window, self.limit, "limit")

    async def ready(self, model: str, ladder: Ladder, cap: int | None, headers: Headers) -> None:
        """Waits for the upstream's list where nobody knows the model or one that it may be moved to, and for encodings
        that no request needed before."""
        for name in (model, *_allowed(ladder)):
            if self.known(name).guessed and (cap is None or name != model):
                await self._inquire(name, headers)
            if not loaded(needed := family_of(name).encoding):
                await asyncio.to_thread(encoding, needed)

    async def facts(self, prompt: Prompt, ladder: Ladder, cap: int | None, headers: Headers) -> Facts:
        """All that a plan for this prompt needs."""
        model = prompt.model
        await self.ready(model, ladder, cap, headers)
        window = self.window_now(model, ladder, cap)
        rivals = tuple(
            Rival(name, self._rivals_window(name, ladder, cap), partial(self.meter, prompt, name))
            for name in _allowed(ladder)
        )
        return Facts(window, self.meter(prompt, model), rivals, learned=self.cache.learned_now(model))

    async def refresh(self, model: str, ladder: Ladder) -> None:
        """Looks for what other replicas learned of the models that a request may go to: waits for Redis at most its
        budget, and only now and then."""
        for name in (model, *_allowed(ladder)):
            await self.cache.learn_of(name)

    def counted_as(self, model: str) -> int:
        """A number for all that a model's counts depend on besides the request."""
        standing = self._standing.get(model)
        if standing is not None and standing.lesson is self.cache.lesson_now(model):
            return standing.counted_as
        return self._counted_as(model)

    def _counted_as(self, model: str) -> int:
        return hash((model, self.cache.learned_now(model).scale, self._ratio(model))) & MASK

    def meter(self, prompt: Prompt, model: str) -> Meter:
        """Counts this prompt the way that a model does."""
        learned, path = self.cache.learned_now(model), self.windows.tokenizer(model)
        ratio = self._ratio(model)
        return meter_for(prompt, model, self.cache.memory, learned, None if ratio is None else Correction(ratio), path)

    def _ratio(self, model: str) -> float | None:
        """The learned ratio in steps of a `NOTCH`; it stays where it is until the mean is a whole one away."""
        ratio = self.cache.ratio_now(model)
        if ratio is None:
            return None
        steady = self._steady.get(model)
        if steady is None or abs(ratio - steady) >= NOTCH:
            steady = self._steady.put(model, round(ratio / NOTCH) * NOTCH)
        return steady

    def _rivals_window(self, model: str, ladder: Ladder, cap: int | None) -> Window:
        """A client's cap holds wherever its request goes; but it does not say what a model holds that nobody knows."""
        window = self.known(model)
        return window if window.guessed else self.window_now(model, ladder, cap)

    def taught(
        self, facts: Facts, before: Learned, prompt: Prompt, ladder: Ladder, cap: int | None, refusal: Refusal
    ) -> Facts:
        """Keeps what a refusal just taught, beyond what was learned `before`, for the next request and for other
        replicas; the caps stay. What cannot be counted well says nothing of how we count, and without a figure nothing
        of the model; a bound in bytes never does. Nor does a refusal without figures shrink a window that is known: it
        heals its own request alone."""
        learned = _new(facts.learned, before)
        if refusal.bounds == BODY or (learned.supposed and not self._told(prompt.model).guessed):
            learned = replace(learned, window=None, supposed=False)
        if prompt.opaque:
            known = Learned(alternates=learned.alternates)
            learned = known if refusal.limit is None else replace(learned, scale=1.0)
        if learned != NOTHING_LEARNED:
            self.cache.keep_learned(prompt.model, learned)
        return replace(facts, window=self._under_caps(facts.window, ladder, cap))

    async def _inquire(self, model: str, headers: Headers) -> None:
        """Asks the upstream for its own list of models; says once that nobody knows a model."""
        if not self.offline:
            await self.listing.ask(model, headers)
        guess = self.known(model)
        if guess.guessed and self._warned.get(model) is None:
            self._warned.put(model, True)
            log.event("nobody knows this model's window", model=log.printable(model), guess=guess.tokens)

    async def close(self) -> None:
        """Ends what it began."""
        await self.listing.close()


def _new(learned: Learned, before: Learned) -> Learned:
    """What was learned since: an old bound told again would outlive its being taken back."""
    same = (learned.window, learned.supposed) == (before.window, before.supposed)
    return Learned(
        None if same else learned.window,
        None if learned.max_input == before.max_input else learned.max_input,
        1.0 if learned.scale == before.scale else learned.scale,
        not same and learned.supposed,
        learned.alternates and not before.alternates,
    )


def _allowed(ladder: Ladder) -> dict[str, None]:
    """The models that a request may be moved to on its way down a ladder."""
    return {name: None for rung in ladder.rungs for name in rung.models}
