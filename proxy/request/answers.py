"""After an answer: what its usage teaches about a model's counts and limits."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.cache.cache import Cache
from proxy.fit.learn import LEAST_SUPPOSED
from proxy.model.limits import Quality
from proxy.model.outcome import Outcome
from proxy.request.facts import Knowledge
from proxy.request.figures import Figures
from proxy.request.stages import Answered, Received
from proxy.upstreams.internal_client import tenant_of, voter_of

# By how much of our count an upstream's may be lower and still be of the whole prompt; what cuts silently reports less.
WHOLE: dict[str, float] = {Quality.EXACT: 0.1, Quality.CALIBRATED: 0.25, Quality.ESTIMATED: 0.5}


@dataclass(frozen=True, slots=True)
class AnswerLearning:
    """Compares the upstream's own counts with ours. `keyed`: who gets answers has a key that an upstream accepted."""

    knowledge: Knowledge
    cache: Cache
    keyed: bool = True

    def learn(self, received: Received, answered: Answered | None, figures: Figures, outcome: Outcome) -> None:
        """Corrects the counts of the model, and takes back learned limits that the answer disproves."""
        if outcome.status != 200:
            return
        model, sender = outcome.model_sent, received.headers
        if outcome.usage is not None and (outcome.usage.stored_as or figures.appends_to):
            total = outcome.usage.prompt + outcome.usage.completion
            for ident in filter(None, (outcome.usage.stored_as, figures.appends_to)):
                self.cache.stored.put(tenant_of(sender), ident, total)
        if figures.tenant and self.cache.has_proofs:
            self._disprove(figures, answered, outcome)
        if figures.size >= LEAST_SUPPOSED and outcome.result != "refused":
            self._record_size(figures, answered, figures.tenant or tenant_of(sender), outcome)
        self.knowledge.read(model, sender, outcome)
        if outcome.usage is None or outcome.prompt_sent is None or outcome.truncated:
            return
        unit = figures.unit
        if figures.tenant and unit is not None and not figures.media:
            if self.cache.sampled_just_now(model, figures.tenant, unit.shape):
                return
        counted = outcome.prompt_sent, unit
        sample = self.knowledge.sample(model, outcome.endpoint, counted, outcome.usage)
        if sample is None and not figures.media:  # as mostly: whose answer it is makes no difference
            return
        tenant = figures.tenant or tenant_of(sender)
        if figures.media:
            self.knowledge.media.learn(tenant, model, figures.media, outcome.prompt_sent, outcome.usage.prompt)
        if sample is not None:
            voter = None
            if self.knowledge.keys.checked:
                voter = voter_of(sender, received.address, self.keyed, outcome.endpoint)
            self.knowledge.record_sample(sample, tenant, voter)

    def _record_size(self, figures: Figures, answered: Answered | None, tenant: bytes, outcome: Outcome) -> None:
        """Records how much was answered, and with it what the refusal before proved. An upstream that read less than
        it was sent has not answered it."""
        tap, sent = None if answered is None else answered.tap, outcome.prompt_sent
        if sent is None or outcome.truncated or (tap is not None and tap.error):
            return
        if outcome.usage is not None and outcome.usage.prompt < sent * (1 - WHOLE[outcome.quality]):
            return
        model = outcome.model_sent
        digests = figures.digests if model == outcome.model else ()
        if (found := figures.suspicion) is not None and outcome.healed:
            self.cache.record_refusal(model, tenant, digests, found, figures.size)
        else:
            self.cache.record_size(model, tenant, digests, figures.size)

    def _disprove(self, figures: Figures, answered: Answered | None, outcome: Outcome) -> None:
        """Takes back the limits that an answer disproves. An answer without usage counts if the request tested a limit
        and got content: an upstream that refuses long prompts has not cut this one."""
        sent, probed = outcome.prompt_sent, figures.probing and not outcome.refusals
        if outcome.usage is not None:
            used = outcome.usage.prompt
            whole = sent is not None and used >= sent * (1 - WHOLE[outcome.quality])
            agrees = whole and not outcome.truncated
        else:
            tap = None if answered is None else answered.tap
            if not probed or sent is None or tap is None or not tap.content_seen or tap.error:
                return
            used, agrees = sent, True
        reply = self.knowledge.windows.find(outcome.model_sent).counted(outcome.reply_sent or 0)
        self.cache.record_answer(outcome.model_sent, figures.tenant, used, reply, agrees=agrees, probed=probed)
