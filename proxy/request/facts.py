"""The facts that a plan is made from: a model's window, its meter, and the limits learned for it; it plans nothing."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from proxy.cache.cache import Cache
from proxy.cache.media_costs import MediaCosts
from proxy.cache.replicated import Lookup
from proxy.config.windows import GAP, RULES, TABLE, Windows, capped
from proxy.fit.learn import named_prompt, proven, suspicion, with_learned
from proxy.model.bounded import Bounded
from proxy.model.conversation import CHAT, Prompt
from proxy.model.limits import NOTHING_LEARNED, Correction, CountUnit, LearnedLimits, Proof, Shape, Suspicion, Window
from proxy.model.outcome import Outcome, Refusal, Unmoved, Usage
from proxy.model.plan import CandidateModel, Draft, Facts, Ladder
from proxy.model.ports import Meter
from proxy.observe import log
from proxy.request.resolved import Remembered, ResolvedModel
from proxy.tokens.encodings import encoding, loaded
from proxy.tokens.families import Families
from proxy.tokens.formats import FORMATS
from proxy.tokens.meter import is_noise, meter_for, sample_of
from proxy.tokens.truncation import SilentTruncation
from proxy.upstreams.internal_client import tenant_of
from proxy.upstreams.key_checks import KeyChecks
from proxy.upstreams.loaded_models import LoadedModels
from proxy.upstreams.models_listing import Headers, ModelsListing

MOST_MODELS = 1_000  # entries of each cache by model: clients choose the names
BYTES_PER_TOKEN = 4  # of bodies, about: says how a prompt compares with those that taught a correction
MASK = (1 << 63) - 1
BY_NAME = ("limit_field", "alternates", "separate", "binds", "requires_reasoning", "effective")
SILENT = "silent_truncation"  # the rule of a proof that does not come from a refusal
HEADER, LIMIT, UPSTREAM = "header", "limit", "upstream"
LOADED, REQUESTED = "loaded", "request"
STATED = frozenset({RULES, TABLE, GAP, HEADER, LIMIT, REQUESTED})  # sources of a window that allow an error of our own


@dataclass(frozen=True, slots=True)
class Sample:
    """What one answer teaches about the counts of a model's prompts of a shape: tokens of the encoding and of the
    upstream, and what holds without it (`Family.start`)."""

    model: str
    shape: Shape
    pair: tuple[int, int]
    start: Correction | None


class Peers(Protocol):
    """The knowledge of the other upstreams."""

    def of(self, model: str, api: str) -> Knowledge:
        """The knowledge of the upstream that requests of an API for a model go to."""

    def denied(self, home: Knowledge, model: str, api: str, headers: Headers) -> tuple[Unmoved, str] | None:
        """Why `serving` has none, and the name of the upstream that has the model; None if it has one."""

    async def introduce(self, home: Knowledge, models: Sequence[str], api: str, headers: Headers) -> None:
        """Has a caller's own key tried where `serving` depends on that for one of these models. Never raises."""

    def caller(self, headers: Headers) -> Sequence[Lookup]:
        """The read of what other replicas know of a caller, if that decides which upstreams it may use."""

    def serving(self, home: Knowledge, model: str, api: str, headers: Headers) -> Knowledge | None:
        """The knowledge of the upstream that a request of an API goes to if it is moved from `home` to a model; None
        if it may not be moved there."""


@dataclass(slots=True, eq=False)
class Knowledge:
    """Windows from the operator's rows, the tables, refusals and the upstream's model list. Meters by the model's
    family, with learned ratios.

    `limit` is the operator's bound on every window, in tokens. `offline`: no upstream is called. `peers`: if there are
    other upstreams. `loaded`: what the upstream has loaded, if its API tells.
    `media`: what usage showed of images and files whose cost no body shows. `keys`: whether the upstream checks keys.
    """

    limit: int | None
    windows: Windows
    families: Families
    cache: Cache
    listing: ModelsListing
    offline: bool = False
    peers: Peers | None = field(default=None, repr=False)
    loaded: LoadedModels | None = None
    keys: KeyChecks = field(default_factory=KeyChecks)
    media: MediaCosts = field(default_factory=MediaCosts)
    _cuts: Bounded[tuple[str, bytes], SilentTruncation] = field(default_factory=lambda: Bounded(MOST_MODELS))
    _warned: Bounded[str, bool] = field(default_factory=lambda: Bounded(MOST_MODELS))
    _models: Bounded[str, ResolvedModel] = field(default_factory=lambda: Bounded(MOST_MODELS))
    _remembered: Bounded[tuple[str, bytes], Remembered] = field(default_factory=lambda: Bounded(MOST_MODELS))

    def with_rules(self, windows: Windows, families: Families) -> Knowledge:
        """The same knowledge under other rules, with what was learned of models."""
        models: Bounded[str, ResolvedModel] = Bounded(MOST_MODELS)
        return dataclasses.replace(
            self, windows=windows, families=families, _models=models, _remembered=Bounded(MOST_MODELS)
        )

    def known(self, model: str, learned: LearnedLimits = NOTHING_LEARNED) -> Window:
        """A model's own window, from what is known now and what was `learned`; a guess if nothing is known."""
        stated = self._stated(model)
        if learned.requested is not None:
            stated = _requested(stated, learned.requested)
        return with_learned(stated, learned) if learned.bounds else stated

    @property
    def shared(self) -> bool:
        """Whether other replicas share what they learn."""
        return self.cache.shared

    def claim_probe(self, model: str, tenant: bytes, digests: Sequence[int] = ()) -> bool:
        """Whether this request is to test if a model's learned limits still hold; True once per interval."""
        return self.cache.claim_probe(model, tenant, digests)

    def tenant(self, headers: Headers, model: str, others: Sequence[str] = ()) -> bytes:
        """The tenant of a request with these headers (`tenant_of`), which may be moved to `others`. Empty if nothing
        was learned that depends on it."""
        depends = self.cache.shared or self.peers is not None or self.cache.has_tenant_records(model)
        if not depends and not self.media.filled and not (others and any(map(self.cache.has_tenant_records, others))):
            return b""
        return tenant_of(headers)

    def serving(self, model: str, api: str, headers: Headers) -> Knowledge | None:
        """The knowledge of the upstream that a request of an API goes to if it is moved to a model; None if it may not
        be moved there."""
        return self if self.peers is None else self.peers.serving(self, model, api, headers)

    def of(self, model: str, api: str) -> Knowledge:
        """The knowledge of the upstream that serves a model which a request was moved to."""
        return self if self.peers is None else self.peers.of(model, api)

    def candidates(self, ladder: Ladder, api: str, headers: Headers, bound: bool = False) -> dict[str, Knowledge]:
        """The models that a request may be moved to, in order, each with the knowledge of its upstream. A request that
        is `bound` stays on its own."""
        if self.peers is None:
            return dict.fromkeys(ladder.models, self)
        found = ((name, self.serving(name, api, headers)) for name in ladder.models)
        return {name: one for name, one in found if one is self or (one is not None and not bound)}

    def learned(self, model: str, tenant: bytes, digests: Sequence[int] = ()) -> LearnedLimits:
        """The limits that refusals proved for a model, a tenant and the conversation with these prefixes, and the
        correction of its counts from answers.
        A row of the operator overrides proved limits; the upstream's list overrides inferred ones (`supposed`), the
        tables do not: they know the model's name, not the server. What is loaded overrides none: another client may
        have had it loaded."""
        learned = self._limits(model, tenant, digests)
        media = self.media.known(tenant, model) if self.media.filled and tenant else None
        return learned if media is None else replace(learned, media=media)

    def remembered(self, model: str, tenant: bytes, size: int) -> LearnedLimits | None:
        """The same for a body of `size` bytes, where only the usage of prompts like it taught something, as mostly;
        else None. It costs a look-up."""
        version = self.cache.records_version()
        if version is None or self.cache.shared or self.media.filled:
            return None
        found, keyed = self._remembered.get((model, tenant)), self.keys.checked
        if found is None or found.version != version or found.keyed is not keyed:
            learned = self.learned(model, tenant)
            made = Remembered(version, keyed, learned.at(0), BYTES_PER_TOKEN * learned.nearest)
            found = self._remembered.put((model, tenant), made)
        return found.learned if size <= found.most else None

    def _limits(self, model: str, tenant: bytes, digests: Sequence[int]) -> LearnedLimits:
        learned = self.cache.learned_limits(model, tenant, digests) if tenant else NOTHING_LEARNED
        if self.cache.has_corrections(model):
            start = self.families.find(model).start
            correction = self.cache.correction(model, tenant, start, self.keys.checked)
            if learned is NOTHING_LEARNED and correction is not None:  # as mostly
                return LearnedLimits(correction=correction)
            learned = learned if correction is None else replace(learned, correction=correction)
        if not learned.bounds:
            return NOTHING_LEARNED if learned.correction is None and learned == NOTHING_LEARNED else learned
        stated = self._stated(model)
        if stated.source == RULES:
            learned = learned.without_figures()
        if learned.supposed and not stated.guessed and stated.source not in (TABLE, GAP):
            learned = replace(learned, window=None, supposed=False, refused=0)
        return NOTHING_LEARNED if learned == NOTHING_LEARNED else learned

    def learned_for(self, learned: LearnedLimits, model: str, size: int, cap: int | None = None) -> LearnedLimits:
        """The same for a body of `size` bytes: corrections of counts hold for prompts like those that taught them. No
        more of a long one is sent than the model's window holds, under the caps of the client and the operator."""
        if learned.correction is None:
            return learned
        window = self.known(model, learned)
        bounds = (None if window.guessed else window.tokens, cap, self.limit)
        return learned.at(min([size // BYTES_PER_TOKEN, *(tokens for tokens in bounds if tokens is not None)]))

    def sample(self, model: str, api: str, counted: tuple[int, CountUnit | None], usage: Usage) -> Sample | None:
        """What the upstream's count of a prompt that we counted teaches about ours; None if nothing, as mostly."""
        family, unit = self.families.find(model).of(FORMATS[api].figures), counted[1]
        if unit is None or (is_noise(family, unit, counted[0], usage) and not self.cache.has_corrections(model)):
            return None
        pair = sample_of(model, family, unit, counted[0], usage)
        return None if pair is None else Sample(model, unit.shape, pair, family.start)

    def record_sample(self, found: Sample, tenant: bytes, caller: bytes | None = None) -> None:
        """Learns from a sample of a tenant; `caller` is whose vote on the counts of others it may become, if the
        upstream checks keys."""
        self.cache.record_sample(found.model, tenant, found.shape, found.pair, found.start, caller)

    def _stated(self, model: str) -> Window:
        """A model's window from the operator's rows, from what the upstream has loaded, the tables, the upstream's
        list."""
        found = self.windows.find(model)
        if self.loaded is not None and found.source != RULES and (tokens := self.loaded.window(model)) is not None:
            return replace(found, tokens=tokens, max_input=None, source=LOADED, guessed=False)
        listed = self.listing.window(model) if found.guessed else None
        if listed is None:
            return found
        about = {name: getattr(found, name) for name in BY_NAME}
        return replace(listed, **about)

    def window_now(
        self, model: str, ladder: Ladder, cap: int | None, learned: LearnedLimits = NOTHING_LEARNED
    ) -> Window:
        """The window that a plan uses: the model's own under the caps of the client and the operator. The operator's
        limit never raises a guess that a ladder assumes to be true."""
        if learned is NOTHING_LEARNED or (learned.requested is None and not learned.bounds):
            resolved = self._resolved(model) or self._resolve(model, ladder)
            if resolved is not None:
                held = resolved.window if cap is None else resolved.capped.get(cap)
                return held or resolved.capped.put(cap or 0, self.under_caps(self.known(model), ladder, cap))
        return self.under_caps(self.known(model, learned), ladder, cap)

    def _resolved(self, model: str) -> ResolvedModel | None:
        found = self._models.get(model)
        return None if found is None or found.listed != self.listing.version else found

    def _resolve(self, model: str, ladder: Ladder) -> ResolvedModel | None:
        """What holds for this version of the upstream's list; None for a guess, which may change at any time."""
        known = self.known(model)
        if known.guessed:
            return None
        window = self.under_caps(known, ladder, None)
        counted_as = self._counted_as(model, NOTHING_LEARNED)
        return self._models.put(model, ResolvedModel(self.listing.version, window, counted_as))

    def under_caps(self, window: Window, ladder: Ladder, cap: int | None) -> Window:
        """A window under the caps of the client and the operator."""
        if cap is not None:
            window = capped(window, cap, HEADER)
        if self.limit is not None and window.guessed and ladder.unknown == "assume":
            return replace(window, tokens=min(window.tokens, self.limit))
        return window if self.limit is None else capped(window, self.limit, LIMIT)

    async def ready(
        self,
        model: str,
        ladder: Ladder,
        cap: int | None,
        headers: Headers,
        learned: LearnedLimits = NOTHING_LEARNED,
        api: str = CHAT,
    ) -> None:
        """Waits for the upstream's list if the model or a candidate is unknown, and until its encodings are loaded."""
        others = self.candidates(ladder, api, headers).items() if ladder.models else ()
        for name, knowledge in ((model, self), *others):
            own = name == model and (cap is not None or learned.window is not None)
            if not own and knowledge.known(name).guessed:
                await knowledge.inquire(name, headers)
            if not loaded(needed := knowledge.families.find(name).encoding):
                await asyncio.to_thread(encoding, needed)

    async def facts(
        self,
        prompt: Prompt,
        ladder: Ladder,
        cap: int | None,
        headers: Headers,
        tenant: bytes = b"",
        learned: LearnedLimits = NOTHING_LEARNED,
    ) -> Facts:
        """The facts for this prompt, with what was `learned` of its model."""
        model = prompt.model
        moves = not (prompt.form.embeds or prompt.placed)  # a vector of another model means nothing beside its client's
        if moves and ladder.models and self.peers is not None and not prompt.stored.bound:
            await self.peers.introduce(self, ladder.models, prompt.api, headers)
        await self.ready(model, ladder, cap, headers, learned, prompt.api)
        window = self.window_now(model, ladder, cap, learned)
        if window.source == LOADED:
            window = self.under_caps(_doubtful(self.known(model, learned)), ladder, cap)
        if prompt.form.embeds and window.max_inputs is None and window.source in (TABLE, GAP):
            window = replace(window, guessed=True)  # it is that of a model with a similar name which writes text
        allowed = self.candidates(ladder, prompt.api, headers, prompt.stored.bound).items() if moves else ()
        candidates = tuple(one.candidate(prompt, name, ladder, cap, tenant) for name, one in allowed)
        return Facts(window, self.meter(prompt, model, learned), candidates, learned=learned)

    def candidate(self, prompt: Prompt, model: str, ladder: Ladder, cap: int | None, tenant: bytes) -> CandidateModel:
        """A client's cap applies to every model that its request may be moved to; but it is no window of an unknown
        model."""
        size = sum(len(message.raw) for message in prompt.messages)
        learned = self.learned_for(self.learned(model, tenant), model, size, cap)
        window = self.known(model, learned)
        if not window.guessed:
            window = self.window_now(model, ladder, cap, learned)
        return CandidateModel(model, window, partial(self.meter, prompt, model, learned))

    async def refresh(
        self,
        model: str,
        ladder: Ladder,
        tenant: bytes,
        api: str = CHAT,
        headers: Headers = (),
        caller: Sequence[Lookup] | None = None,
    ) -> None:
        """Reads what other replicas learned of the models that a request may go to, and of its `caller`, if that is
        not in the reads given. Waits for Redis once, at most its time budget, and only if the records are not
        fresh."""
        named = {model: self, **{name: self.of(name, api) for name in ladder.models}}
        lookups: list[Lookup] = []
        for knowledge in dict.fromkeys(named.values()):
            theirs = [(name, tenant) for name, one in named.items() if one is knowledge]
            lookups += knowledge.cache.record_reads(theirs)
        if caller is None and ladder.models and self.peers is not None:
            caller = self.peers.caller(headers)
        await self.cache.read([*lookups, *(caller or ())])

    def counted_as(self, model: str, learned: LearnedLimits = NOTHING_LEARNED) -> int:
        """A hash of everything that a model's counts depend on besides the request."""
        plain = learned.scale == 1.0 and learned.correction is None
        resolved = self._resolved(model) if plain else None
        return self._counted_as(model, learned) if resolved is None else resolved.counted_as

    def _counted_as(self, model: str, learned: LearnedLimits) -> int:
        return hash((model, learned.scale, learned.correction)) & MASK

    def meter(self, prompt: Prompt, model: str, learned: LearnedLimits = NOTHING_LEARNED) -> Meter:
        """The meter that counts this prompt as the model does."""
        return meter_for(prompt, model, self.cache.memory, learned, self.windows.tokenizer(model), self.families)

    def prove(self, sent: Draft, refusal: Refusal, after: LearnedLimits, tenant: bytes, *, opaque: bool) -> None:
        """Stores what a refusal of `sent` proves for later requests of the same tenant; `after` are the limits learned
        from it."""
        stated = _doubtful(self._stated(sent.model))
        proved = proven(sent, refusal, after, stated, opaque=opaque)
        if stated.source == RULES or after.requested is not None:
            proved = proved.without_figures()
        if proved != NOTHING_LEARNED:
            named, quality = named_prompt(sent, refusal) or 0, str(sent.meter.quality)
            proof = Proof(0, 0, refusal.rule[:64], sent.prompt, sent.reply or 0, named, quality)
            self.cache.record_proof(sent.model, tenant, proved, proof)

    def suspicion(self, sent: Draft, refusal: Refusal, after: LearnedLimits, *, opaque: bool) -> Suspicion | None:
        """What a refusal of `sent` without figures proves once the same request, made smaller, is answered."""
        if after.requested is not None or self._stated(sent.model).source == RULES:
            return None
        return suspicion(sent, refusal, after, opaque=opaque)

    def read(self, model: str, sender: Headers, outcome: Outcome) -> None:
        """Learns from how many tokens of a prompt the upstream read. If it reads the same number of several different
        prompts, that is its limit."""
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
        if cut is not before and cut.proves and self._stated(model).source != RULES:
            proof = Proof(0, 0, SILENT, sent, 0, cut.read, str(outcome.quality))
            self.cache.record_proof(model, key[1], LearnedLimits(max_input=cut.read), proof)

    def cuts_silently(self, model: str, sender: Headers) -> bool:
        """Whether it is proved that the upstream cuts what is too long for a model, and says nothing."""
        return any(one.proof.rule == SILENT for one in self.cache.proofs(model, tenant_of(sender)))

    async def read_loaded(self, headers: Headers) -> None:
        """Reads what the upstream has loaded, unless that is known."""
        if not self.offline and self.loaded is not None and await self.loaded.load(headers):
            self.listing.version += 1  # windows may be others now

    def request_window(self, model: str) -> None:
        """Notes that a request makes the upstream load a model with a window of its own."""
        if self.loaded is not None and self.loaded.request(model):
            self.listing.version += 1

    async def listed_anew(self, model: str, headers: Headers) -> bool:
        """Reads the upstream's list again if a model's window comes from it and it is old. True if it changed."""
        before = self.known(model)
        if self.offline or before.source != UPSTREAM:
            return False
        await self.listing.load(model, headers, max_age=self.cache.probe_after)
        return self.known(model) != before

    async def inquire(self, model: str, headers: Headers) -> None:
        """Reads the upstream's list of models; logs an unknown model once. Does nothing where no upstream is called."""
        if self.offline:
            return
        await self.listing.load(model, headers)
        guess = self.known(model)
        if guess.guessed and self._warned.get(model) is None:
            self._warned.put(model, True)
            log.event("unknown model: its window is assumed", model=log.printable(model), guess=guess.tokens)

    def mark_unreachable(self) -> None:
        """The upstream could not be reached: it may have other limits when it is back."""
        self.cache.mark_unreachable()
        self.listing.mark_unreachable()

    async def close(self) -> None:
        """Cancels a read of the upstream's list."""
        await self.listing.close()


def _doubtful(window: Window) -> Window:
    """What is loaded, as a guess: another client's request may have had it loaded, and for one that asks for no window
    the server loads its own again. A refusal tells that one."""
    return replace(window, guessed=True) if window.source == LOADED else window


def _requested(window: Window, tokens: int) -> Window:
    """The window that a request asks for. A row of the operator bounds it."""
    if window.source == RULES and window.tokens <= tokens:
        return window
    return replace(window, tokens=tokens, max_input=None, source=REQUESTED, guessed=False)
