"""What a refusal teaches, to plan its own request anew, and what of that is proven for later ones; it does no I/O.

Theory of operation
===================

`learn` may believe all that a refusal says: it only heals the request that was refused, and a wrong figure costs that
request another round trip. `proven` says what later requests of the same caller may rest on, and believes only what our
own count bears out, because the text of an error is nobody's word: it may quote a client, speak of another limit, or be
a gateway's bad minute.

* A figure is plausible where it is within a factor of our count that follows from that count's quality (`PLAUSIBLE`).
  A refusal whose own count of the prompt is not plausible proves nothing.
* A limit is proven where the refused request, with the reply that it asked for and with our margin, was over it by our
  count, or by the upstream's where that is plausible. A request of 50 tokens proves no limit of 200.
* A correction of our counts is proven by a plausible count that, with the reply, is over the limit that was named.
* A refusal without figures proves at most that the window is smaller than what was refused. That is kept only where
  nobody knows the window, only from a request that no supposition had cut, and never for a window that nobody serves.
* What bounds a body in bytes or one request alone (memory that several requests share, a sum of inputs) proves nothing.
"""

from __future__ import annotations

from proxy.fit import alternation
from proxy.model.limits import NOTHING_LEARNED, UNKNOWN_WINDOW, LearnedLimits, Quality, Window
from proxy.model.outcome import Refusal
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace

# A refusal without figures shows only that the request was too large. Applied twice, this leaves less than half.
UNKNOWN_REFUSAL_SHRINK = 0.7
CUT_SHORT = 1.15  # an "at least N tokens" was cut short by the upstream: the truth is more, by how much it does not say
FURTHEST = 8.0  # no tokenizer is further from our count; a larger scale would refuse everything from then on
# How far an upstream's count may be from ours and still be believed. Names lie: behind one that we count exactly may be
# another model. An estimate may be far off in scripts that the nearest encoding knows better than the model's own.
PLAUSIBLE = {Quality.EXACT: 1.5, Quality.CALIBRATED: 2.0, Quality.ESTIMATED: 4.0}
SMALL_PROMPT = 8  # the margin's constant part is at most so large a part of a prompt
# Tokens; nobody serves a model that holds less. A shorter request that was refused without a figure was refused for
# something else.
LEAST_SUPPOSED = 1_000
SUPPOSED, REFUSED = "supposed", "refusal"  # sources of windows that were learned
BODY = "body"  # what a refusal bounds that counts bytes
ONCE = "request"  # what it bounds that holds for this request alone
ROLES = "roles"  # what a refusal is about that is about no length


def learn(facts: Facts, sent: Draft, refusal: Refusal) -> Facts | None:
    """The facts with which to plan a refused request anew: the model's bound, or by how much our count was off; None
    where nothing new."""
    if refusal.bounds == BODY:
        refusal = Refusal(refusal.rule)  # its figures are bytes
    if refusal.bounds == ROLES:
        told = facts.window.alternates is not None or alternation.alternates(sent.messages)
        return None if told else apply_learned(facts, replace(facts.learned, alternates=True))
    learned = _with_bound(_with_scale(facts.learned, sent, refusal), sent, refusal)
    if learned == facts.learned and sent.excess > 0 and not sent.window.guessed:
        return None  # it was known to be too long
    if learned == facts.learned or _still_fits(facts, learned, sent):
        learned = replace(learned, window=_less(sent), supposed=True)
    return None if learned == facts.learned else apply_learned(facts, learned)


def _still_fits(facts: Facts, learned: LearnedLimits, sent: Draft) -> bool:
    """Whether what was refused would fit by what it taught: then the refusal outweighs our count."""
    scale = learned.scale / facts.learned.scale
    window = with_learned(facts.window, learned)
    return replace(sent, window=window, prompt=int(sent.prompt * scale)).excess <= 0


def apply_learned(facts: Facts, learned: LearnedLimits) -> Facts:
    """The facts with what an upstream taught us laid over them."""
    window = with_learned(facts.window, learned)
    meter = (
        facts.meter.scaled(learned.scale / facts.learned.scale) if learned.scale != facts.learned.scale else facts.meter
    )
    return replace(facts, window=window, meter=meter, learned=learned)


def with_learned(window: Window, learned: LearnedLimits) -> Window:
    """The window with the bounds that refusals named. A bound on the prompt alone says nothing of a larger window."""
    if learned.window is not None:
        source = SUPPOSED if learned.supposed else REFUSED
        window = replace(window, tokens=learned.window, source=source, guessed=False)
    if learned.max_input is not None:
        window = replace(window, max_input=min(learned.max_input, window.max_input or learned.max_input))
        window = replace(window, tokens=max(window.tokens, learned.max_input), source=REFUSED, guessed=False)
    return replace(window, alternates=True) if learned.alternates and window.alternates is None else window


def named_prompt(sent: Draft, refusal: Refusal) -> int | None:
    """The upstream's own count of the prompt."""
    completion = sent.reply if refusal.completion is None else refusal.completion
    if refusal.prompt is None and refusal.total is not None and completion is not None:
        return refusal.total - completion
    return refusal.prompt


def _with_scale(learned: LearnedLimits, sent: Draft, refusal: Refusal) -> LearnedLimits:
    """Our count corrected, where the upstream named its own. One that is lower is believed where ours is no exact one,
    and where it is over the limit all the same."""
    true = named_prompt(sent, refusal)
    if true is None or true <= 0 or true == sent.prompt:
        return learned
    if true < sent.prompt:
        bounded = refusal.limit is not None and true + (sent.reply or 0) >= refusal.limit and not refusal.at_least
        if not bounded or sent.meter.quality is Quality.EXACT or not _plausible(sent, true):
            return learned
    scale = learned.scale * (CUT_SHORT if refusal.at_least else 1) * true / max(1, sent.prompt)
    return replace(learned, scale=scale) if scale <= FURTHEST else learned


def _with_bound(learned: LearnedLimits, sent: Draft, refusal: Refusal) -> LearnedLimits:
    """The bound that the upstream named, where it is another than the one we planned with."""
    limit, supposed = _limit(sent, refusal), False
    if limit is None and sent.window.guessed and sent.prompt + sent.least_reply > UNKNOWN_WINDOW:
        limit, supposed = UNKNOWN_WINDOW, True
    if limit is None or limit <= 0:
        return learned
    if refusal.bounds == "input" and not supposed:
        return learned if limit == sent.window.max_input else replace(learned, max_input=limit)
    known = limit == sent.window.tokens and not sent.window.guessed
    return learned if known else replace(learned, window=limit, supposed=supposed)


def _limit(sent: Draft, refusal: Refusal) -> int | None:
    if refusal.limit is None and refusal.excess is not None:
        return sent.prompt + sent.least_reply - refusal.excess
    return refusal.limit


def _less(sent: Draft) -> int:
    """A window so small that what was sent counts as too long, where the refusal itself says no more."""
    return max(1, int(UNKNOWN_REFUSAL_SHRINK * min(sent.window.tokens, sent.prompt + sent.least_reply)))


def proven(sent: Draft, refusal: Refusal, after: LearnedLimits, told: Window, *, opaque: bool) -> LearnedLimits:
    """What a refusal of `sent`, which taught `after`, proves for later requests of the same caller.

    `told` is the model's window by what anybody states of it; `opaque` says that the prompt has parts that no count
    can prove.
    """
    if refusal.bounds in (BODY, ONCE):
        return NOTHING_LEARNED
    if refusal.bounds == ROLES:
        return LearnedLimits(alternates=after.alternates)
    limit, true = _limit(sent, refusal), named_prompt(sent, refusal)
    if true is not None and not _plausible(sent, true, refusal.at_least):
        return NOTHING_LEARNED
    proved = NOTHING_LEARNED
    if limit is None:
        first = sent.window.source != SUPPOSED and not opaque
        if after.supposed and told.guessed and first and (after.window or 0) >= LEAST_SUPPOSED:
            proved = LearnedLimits(window=after.window, supposed=True)
    elif limit > 0 and _over(sent, true, limit):
        if refusal.bounds == "input":
            proved = replace(proved, max_input=None if limit == told.max_input else limit)
        elif limit != told.tokens or told.guessed:
            proved = replace(proved, window=limit)
    if true is not None and not opaque and true + (sent.reply or 0) >= (limit or sent.window.tokens):
        most = PLAUSIBLE[sent.meter.quality]
        proved = replace(proved, scale=after.scale if 1 / most <= after.scale <= most else 1.0)
    return proved


def _plausible(sent: Draft, true: int, at_least: bool = False) -> bool:
    """Whether an upstream's count may be of the request that we sent; one that was cut short may be far under ours."""
    most = PLAUSIBLE[sent.meter.quality]
    return true <= sent.prompt * most and (at_least or sent.prompt <= true * most)


def _over(sent: Draft, true: int | None, limit: int) -> bool:
    """Whether a request was over a limit: by our count with the margin of its quality, or by the upstream's."""
    margin, prompt = sent.meter.margin, sent.prompt
    counted = prompt + margin.of(prompt) - margin.base + min(margin.base, prompt // SMALL_PROMPT)
    return max(counted, true or 0) + (sent.reply or 0) >= limit
