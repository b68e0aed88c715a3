"""Gathers what is known of a model before a plan is made: window, counter, what was learned; it plans nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from proxy.cache.cache import Cache
from proxy.config.windows import GAP, RULES, TABLE, Windows, capped
from proxy.fit.learn import named_prompt, proven, with_learned
from proxy.model.bounded import Bounded
from proxy.model.conversation import Prompt
from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Proof, Window
from proxy.model.outcome import Outcome, Refusal
from proxy.model.plan import CandidateModel, Draft, Facts, Ladder
from proxy.model.ports import Meter
from proxy.model.structs import replace
from proxy.observe import log
from proxy.tokens.encodings import encoding, loaded
from proxy.tokens.families import Families
from proxy.tokens.meter import meter_for
from proxy.tokens.usage import SilentTruncation
from proxy.upstreams.internal_client import tenant_of
from proxy.upstreams.models_listing import Headers, ModelsListing

MOST_MODELS = 1_000  # of which anything is remembered here: clients choose the names
MASK = (1 << 63) - 1
SILENT = "silent_truncation"  # the rule of a proof that no refusal gave
HEADER, LIMIT, UPSTREAM = "header", "limit", "upstream"
STATED = frozenset({RULES, TABLE, GAP, HEADER, LIMIT})  # sources of windows that an error of ours may rest on


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """What follows from the upstream's list for as long as that is the same, where nothing was learned: a model's
    window under the user's limit, and a number for all that its counts depend on besides the request."""

    listed: int
    window: Window
    counted_as: int


@dataclass(slots=True)
class Knowledge:
    """Windows from the user's rows, the tables, refusals and the upstream itself; counters by the model's family, with
    learned ratios.

    `limit` is the user's own bound on every window, in tokens; `offline` asks nobody.
    """

    limit: int | None
    windows: Windows
    families: Families
    cache: Cache
    listing: ModelsListing
    offline: bool = False
    _cuts: Bounded[tuple[str, bytes], SilentTruncation] = field(default_factory=lambda: Bounded(MOST_MODELS))
    _warned: Bounded[str, bool] = field(default_factory=lambda: Bounded(MOST_MODELS))
    _standing: Bounded[str, ResolvedModel] = field(default_factory=lambda: Bounded(MOST_MODELS))

    def known(self, model: str, learned: LearnedLimits = NOTHING_LEARNED) -> Window:
        """A model's own window by what is known without waiting, and by what was `learned`; a guess where that is
        nothing."""
        told = self._told(model)
        return with_learned(told, learned) if learned.bounds else told

    @property
    def shared(self) -> bool:
        """Whether other replicas share what they learn."""
        return self.cache.shared

    def claim_probe(self, model: str, caller: bytes) -> bool:
        """Whether this request is to test if a model's learned limits still hold; True once per interval."""
        return self.cache.claim_probe(model, caller)

    def caller(self, headers: Headers, model: str) -> bytes:
        """Who asks; empty as long as nobody need know."""
        return tenant_of(headers) if self.cache.shared or self.cache.has_caller_records(model) else b""

    def learned(self, model: str, caller: bytes) -> LearnedLimits:
        """What refusals proved of a model for a caller, and may be planned with, and what answers told of its counts. A
        row that the user wrote outranks what was proved, and what the upstream lists what was only supposed."""
        learned = self.cache.learned_limits(model, caller) if caller else NOTHING_LEARNED
        if self.cache.has_corrections(model):
            correction = self.cache.correction(model, caller, self.families.find(model).factor)
            learned = learned if correction is None else replace(learned, correction=correction)
        if not learned.bounds:
            return NOTHING_LEARNED if learned == NOTHING_LEARNED else learned
        told = self._told(model)
        if told.source == RULES:
            learned = replace(learned, window=None, max_input=None, supposed=False)
        if learned.supposed and not told.guessed:
            learned = replace(learned, window=None, supposed=False)
        return NOTHING_LEARNED if learned == NOTHING_LEARNED else learned

    def _told(self, model: str) -> Window:
        """A model's window by what anybody states of it."""
        found = self.windows.find(model)
        listed = self.listing.window(model) if found.guessed else None
        return found if listed is None else replace(listed, limit_field=found.limit_field, alternates=found.alternates)

    def window_now(
        self, model: str, ladder: Ladder, cap: int | None, learned: LearnedLimits = NOTHING_LEARNED
    ) -> Window:
        """The window that is planned with: the model's own under the caps of the client and the user. A guess that a
        ladder assumes to be true is never raised by the user's limit."""
        if cap is None and (learned is NOTHING_LEARNED or not learned.bounds):
            standing = self._stands_now(model) or self._stands(model, ladder)
            if standing is not None:
                return standing.window
        return self.under_caps(self.known(model, learned), ladder, cap)

    def _stands_now(self, model: str) -> ResolvedModel | None:
        standing = self._standing.get(model)
        return None if standing is None or standing.listed != self.listing.version else standing

    def _stands(self, model: str, ladder: Ladder) -> ResolvedModel | None:
        """What stands as long as the upstream's list; None for what may change by itself: a guess."""
        known = self.known(model)
        if known.guessed:
            return None
        window = self.under_caps(known, ladder, None)
        counted_as = self._counted_as(model, NOTHING_LEARNED)
        return self._standing.put(model, ResolvedModel(self.listing.version, window, counted_as))

    def under_caps(self, window: Window, ladder: Ladder, cap: int | None) -> Window:
        """A window under the caps of the client and the user."""
        if cap is not None:
            window = capped(window, cap, HEADER)
        if self.limit is not None and window.guessed and ladder.unknown == "assume":
            return replace(window, tokens=min(window.tokens, self.limit))
        return window if self.limit is None else capped(window, self.limit, LIMIT)

    async def ready(
        self, model: str, ladder: Ladder, cap: int | None, headers: Headers, learned: LearnedLimits = NOTHING_LEARNED
    ) -> None:
        """Waits for the upstream's list where nobody knows the model or one that it may be moved to, and for encodings
        that no request needed before."""
        for name in (model, *_allowed(ladder)):
            own = name == model and (cap is not None or learned.window is not None)
            if not own and self.known(name).guessed:
                await self._inquire(name, headers)
            if not loaded(needed := self.families.find(name).encoding):
                await asyncio.to_thread(encoding, needed)

    async def facts(
        self,
        prompt: Prompt,
        ladder: Ladder,
        cap: int | None,
        headers: Headers,
        caller: bytes = b"",
        learned: LearnedLimits = NOTHING_LEARNED,
    ) -> Facts:
        """All that a plan for this prompt needs, with what was `learned` of its model."""
        model = prompt.model
        await self.ready(model, ladder, cap, headers, learned)
        window = self.window_now(model, ladder, cap, learned)
        candidates = tuple(self._rival(prompt, name, ladder, cap, caller) for name in _allowed(ladder))
        return Facts(window, self.meter(prompt, model, learned), candidates, learned=learned)

    def _rival(self, prompt: Prompt, model: str, ladder: Ladder, cap: int | None, caller: bytes) -> CandidateModel:
        """A client's cap holds wherever its request goes; but it does not say what a model holds that nobody knows."""
        learned = self.learned(model, caller)
        window = self.known(model, learned)
        if not window.guessed:
            window = self.window_now(model, ladder, cap, learned)
        return CandidateModel(model, window, partial(self.meter, prompt, model, learned))

    async def refresh(self, model: str, ladder: Ladder, caller: bytes) -> None:
        """Looks for what other replicas learned of the models that a request may go to: waits for Redis at most its
        budget, and only now and then."""
        await self.cache.load_records([(name, caller) for name in (model, *_allowed(ladder))])

    def counted_as(self, model: str, learned: LearnedLimits = NOTHING_LEARNED) -> int:
        """A number for all that a model's counts depend on besides the request."""
        plain = learned.scale == 1.0 and learned.correction is None
        standing = self._stands_now(model) if plain else None
        return self._counted_as(model, learned) if standing is None else standing.counted_as

    def _counted_as(self, model: str, learned: LearnedLimits) -> int:
        return hash((model, learned.scale, learned.correction)) & MASK

    def meter(self, prompt: Prompt, model: str, learned: LearnedLimits = NOTHING_LEARNED) -> Meter:
        """Counts this prompt the way that a model does."""
        return meter_for(prompt, model, self.cache.memory, learned, self.windows.tokenizer(model), self.families)

    def prove(self, sent: Draft, refusal: Refusal, after: LearnedLimits, caller: bytes, *, opaque: bool) -> None:
        """Keeps what a refusal of `sent`, which taught `after`, proves for later requests of the same caller."""
        told = self._told(sent.model)
        proved = proven(sent, refusal, after, told, opaque=opaque)
        if told.source == RULES:
            proved = replace(proved, window=None, max_input=None, supposed=False)
        if proved != NOTHING_LEARNED:
            named, quality = named_prompt(sent, refusal) or 0, str(sent.meter.quality)
            proof = Proof(0, 0, refusal.rule[:64], sent.prompt, sent.reply or 0, named, quality)
            self.cache.record_proof(sent.model, caller, proved, proof)

    def read(self, model: str, sender: Headers, outcome: Outcome) -> None:
        """Learns from how much of a prompt was read: of several that differ the same is the most that is read."""
        usage, sent = outcome.usage, outcome.prompt_sent
        if usage is None or sent is None or not (outcome.truncated or self._cuts.filled):
            return
        key, used = (model, tenant_of(sender)), usage.prompt + usage.cached
        before = self._cuts.get(key)
        if not outcome.truncated:
            if before is not None and not before.holds(used):
                self._cuts.take(key)
            return
        cut = self._cuts.put(key, SilentTruncation(used, sent) if before is None else before.again(used, sent))
        if cut is not before and cut.proves and self._told(model).source != RULES:
            proof = Proof(0, 0, SILENT, sent, 0, cut.read, str(outcome.quality))
            self.cache.record_proof(model, key[1], LearnedLimits(max_input=cut.read), proof)

    async def listed_anew(self, model: str, headers: Headers) -> bool:
        """Asks for the upstream's list again where it is what a model's window is known from, and is old; whether it
        says something else now."""
        before = self.known(model)
        if self.offline or before.source != UPSTREAM:
            return False
        await self.listing.load(model, headers, max_age=self.cache.probe_after)
        return self.known(model) != before

    async def _inquire(self, model: str, headers: Headers) -> None:
        """Asks the upstream for its own list of models; says once that nobody knows a model."""
        if not self.offline:
            await self.listing.load(model, headers)
        guess = self.known(model)
        if guess.guessed and self._warned.get(model) is None:
            self._warned.put(model, True)
            log.event("nobody knows this model's window", model=log.printable(model), guess=guess.tokens)

    def mark_unreachable(self) -> None:
        """The upstream could not be reached: it may come back with other limits."""
        self.cache.mark_unreachable()
        self.listing.mark_unreachable()

    async def close(self) -> None:
        """Ends what it began."""
        await self.listing.close()


def _allowed(ladder: Ladder) -> dict[str, None]:
    """The models that a request may be moved to on its way down a ladder."""
    return {name: None for ladder_step in ladder.steps for name in ladder_step.models}
