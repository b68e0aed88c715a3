"""Derives limits and count corrections from an upstream's refusal. It does no I/O.

Theory of operation
===================

`learn` plans the refused request again. It accepts every figure of the refusal, because a wrong figure affects only
that request and costs it one more round trip. `proven` returns what applies to later requests of the same caller. It
accepts only what our own count confirms, because the text of an error is not reliable: it may quote a client, name
another limit, or come from a temporary failure of a gateway.

* A figure is plausible if it is within a factor of our count. The factor follows from that count's quality
  (`PLAUSIBLE`). A refusal whose own count of the prompt is not plausible proves nothing.
* A limit is proven if the refused request, with its reply limit and our margin, exceeds the limit by our count. The
  upstream's count serves as well if it is plausible. A request of 50 tokens proves no limit of 200.
* A correction of our counts is proven by a plausible count that, with the reply, exceeds the named limit.
* A refusal without figures, or with none but the known window, proves nothing by itself. Its request is planned again
  with less: the largest size that was answered before, else a share of what was refused. If that is answered, the
  refusal is `suspicion` confirmed: the window is smaller than what was refused (`proxy.cache.intervals`).
* A bound in bytes, or on one request alone (memory that several requests share, a sum of inputs), proves nothing. But a
  limit of one pass (llama.cpp's batch) is the bound of an input that is embedded: such an input is not split.
"""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from proxy.fit import alternation
from proxy.model.limits import GUESS, NOTHING_LEARNED, UNKNOWN_WINDOW, LearnedLimits, Quality, Suspicion, Window
from proxy.model.outcome import Refusal
from proxy.model.plan import Draft, Facts

# A refusal without figures shows only that the request was too large. If what is left is refused, too, the window is
# not the one that is known, and may be a tenth of it.
UNKNOWN_REFUSAL_SHRINK, AGAIN_REFUSED_SHRINK = 0.7, 0.5
CUT_SHORT = 1.15  # factor for "at least N tokens": the upstream stopped counting there, so the true count is higher
FURTHEST = 8.0  # no tokenizer differs more from our count; a larger scale would refuse every later request
# The largest factor between an upstream's count and ours at which we accept the upstream's. Even an exact count may
# differ, because a model's name may be an alias of another model. An estimate may be far off in scripts that the
# nearest encoding covers better than the model's own.
PLAUSIBLE = {Quality.EXACT: 1.5, Quality.CALIBRATED: 2.0, Quality.ESTIMATED: 4.0}
SMALL_PROMPT = 8  # the margin's constant part counts at most as 1/8 of the prompt
# Tokens. No served model has a smaller window, so a shorter request that was refused without a figure was refused for
# another reason.
LEAST_SUPPOSED = 1_000
SUPPOSED, REFUSED = "supposed", "refusal"  # values of `Window.source` for learned windows
BODY = "body"  # `Refusal.bounds`: a limit in bytes
TOGETHER, INPUTS = "together", "inputs"  # `Refusal.bounds`: the tokens of all inputs of a request; their number
INPUT = "input"  # `Refusal.bounds`: a limit of the prompt alone
ONCE = "request"  # `Refusal.bounds`: a limit of this request alone
ROLES = "roles"  # `Refusal.bounds`: the order of roles, not a length
REASONING = "reasoning"  # `Refusal.bounds`: reasoning behind what was changed, not a length


def learn(facts: Facts, sent: Draft, refusal: Refusal, gently: bool = False) -> Facts | None:
    """The facts for planning a refused request again, with the named limit or the correction of our count.

    `gently`: where no window is known or named, the next request is not much shorter at once; only if that is refused,
    too, as short as any window. None if the refusal adds nothing new.
    """
    refusal = _of_inputs(sent, refusal)
    if refusal.implied and sent.prompt + sent.margin <= (refusal.limit or 0):
        return None  # plans refuse short requests, too: it says nothing of a length
    if refusal.bounds == BODY:
        refusal = Refusal(refusal.rule)  # its figures are bytes
    if refusal.bounds == ROLES:
        is_known = facts.window.alternates is not None or alternation.alternates(sent.messages)
        return None if is_known else apply_learned(facts, replace(facts.learned, alternates=True))
    if refusal.bounds == REASONING:
        is_known = facts.window.binds is not None or not _was_changed(sent)
        return None if is_known else apply_learned(facts, replace(facts.learned, binds=True))
    if sent.window.separate and refusal.completion:  # it counts the reply after all
        return apply_learned(facts, replace(facts.learned, shared=True))
    if refusal.bounds in (TOGETHER, INPUTS):
        return _in_smaller_pieces(facts, sent, refusal)
    learned = _with_bound(_with_scale(facts.learned, sent, refusal), facts, sent, refusal, gently)
    known = not sent.window.guessed and sent.window.source != SUPPOSED
    if learned == facts.learned and sent.excess > 0 and known:
        return None  # our own count already exceeded the window
    if learned == facts.learned or _still_fits(facts, learned, sent):
        learned = _supposing(learned, _less(facts, sent, gently), sent)
    return None if learned == facts.learned else apply_learned(facts, learned)


def _of_inputs(sent: Draft, refusal: Refusal) -> Refusal:
    """The refusal as it is meant where each message has the window to itself: a limit of one pass bounds each."""
    if sent.apart and refusal.bounds == ONCE and refusal.limit is not None:
        return dataclasses.replace(refusal, bounds=INPUT)
    return refusal


def _supposing(learned: LearnedLimits, window: int, sent: Draft) -> LearnedLimits:
    """The limits with a window that nobody named. It bounds the prompt alone, too: a larger bound would widen it."""
    most = None if learned.max_input is None else min(learned.max_input, window)
    return replace(learned, window=window, max_input=most, supposed=True, refused=sent.prompt + _least(sent))


def _in_smaller_pieces(facts: Facts, sent: Draft, refusal: Refusal) -> Facts | None:
    """The facts with the number or the sum of inputs that one request may have. None if that is known already."""
    limit = refusal.limit
    if not sent.apart or limit is None or limit < 1:
        return None
    if refusal.bounds == INPUTS:
        known, learned = facts.window.max_inputs, replace(facts.learned, max_inputs=limit)
    else:
        known, learned = facts.window.max_together, replace(facts.learned, max_together=limit)
    return None if known is not None and known <= limit else apply_learned(facts, learned)


def _still_fits(facts: Facts, learned: LearnedLimits, sent: Draft) -> bool:
    """Whether the refused draft would fit the learned limits. If so, the refusal takes precedence over our count."""
    scale = learned.scale / facts.learned.scale
    window = with_learned(facts.window, learned)
    return dataclasses.replace(sent, window=window, prompt=int(sent.prompt * scale)).excess <= 0


def apply_learned(facts: Facts, learned: LearnedLimits) -> Facts:
    """The facts with the learned limits and the learned scale applied."""
    window = with_learned(facts.window, learned)
    meter = (
        facts.meter.scaled(learned.scale / facts.learned.scale) if learned.scale != facts.learned.scale else facts.meter
    )
    return replace(facts, window=window, meter=meter, learned=learned)


def with_learned(window: Window, learned: LearnedLimits) -> Window:
    """The window with the limits that refusals named. A limit of the prompt alone does not lower the window."""
    if learned.window is not None:
        source = SUPPOSED if learned.supposed else REFUSED
        refused = (learned.refused or None) if learned.supposed else None
        window = replace(window, tokens=learned.window, source=source, guessed=False, refused=refused)
    if learned.max_input is not None:
        window = replace(window, max_input=min(learned.max_input, window.max_input or learned.max_input))
        window = replace(window, tokens=max(window.tokens, learned.max_input), source=REFUSED, guessed=False)
    if learned.max_inputs is not None or learned.max_together is not None:
        inputs, tokens = learned.max_inputs or window.max_inputs, learned.max_together or window.max_together
        window = replace(window, max_inputs=inputs, max_together=tokens)
    if learned.alternates and window.alternates is None:
        window = replace(window, alternates=True)
    if learned.binds and window.binds is None:
        window = replace(window, binds=True)
    return replace(window, separate=False) if learned.shared and window.separate else window


def named_prompt(sent: Draft, refusal: Refusal) -> int | None:
    """The upstream's own count of the prompt, in tokens; None if the refusal names none."""
    completion = sent.reply if refusal.completion is None else refusal.completion
    if refusal.prompt is None and refusal.total is not None and completion is not None:
        return refusal.total - completion
    return refusal.prompt


def _with_scale(learned: LearnedLimits, sent: Draft, refusal: Refusal) -> LearnedLimits:
    """The learned scale, corrected by the upstream's own count of the prompt.

    A count lower than ours is accepted only if it is plausible, if ours is not exact, and if it reaches the limit
    together with the reply.
    """
    true = named_prompt(sent, refusal)
    if true is None or true <= 0 or true == sent.prompt:
        return learned
    if true < sent.prompt:
        bounded = refusal.limit is not None and true + _reply(sent) >= refusal.limit and not refusal.at_least
        if not bounded or sent.meter.quality is Quality.EXACT or not _plausible(sent, true):
            return learned
    scale = learned.scale * (CUT_SHORT if refusal.at_least else 1) * true / max(1, sent.prompt)
    return replace(learned, scale=scale) if scale <= FURTHEST else learned


def _with_bound(learned: LearnedLimits, facts: Facts, sent: Draft, refusal: Refusal, gently: bool) -> LearnedLimits:
    """The limit that the upstream named, if it differs from the one we planned with."""
    limit, supposed = _limit(sent, refusal), False
    if limit is None and sent.window.guessed and sent.prompt + _least(sent) > _guess(sent.window):
        limit, supposed = _supposed(facts, sent, gently), True
    if limit is None or limit <= 0:
        return learned
    if refusal.bounds == INPUT and not supposed:
        return learned if limit == sent.window.max_input else replace(learned, max_input=limit)
    if limit == sent.window.tokens and not sent.window.guessed:
        return learned
    refused = sent.prompt + _least(sent) if supposed else 0
    return replace(learned, window=limit, supposed=supposed, refused=refused)


def _supposed(facts: Facts, sent: Draft, gently: bool) -> int:
    """The window of an unknown model that refused without a figure, in tokens: the guess, unless what cannot be cut of
    this request is larger: then it was not the first of its kind that was sent. No less than what was answered before.
    """
    size = sent.prompt + _least(sent)
    answered = facts.answered if facts.answered < size else 0
    return max(answered, int(UNKNOWN_REFUSAL_SHRINK * size) if gently else 0, _guessed(sent))


def _guessed(sent: Draft) -> int:
    kept, guess = sent.fixed + sum(block.tokens for block in sent.blocks if block.pinned), _guess(sent.window)
    if kept + sent.meter.margin.of(kept) + min(sent.floor, _least(sent)) <= guess:
        return guess
    return max(guess, int(UNKNOWN_REFUSAL_SHRINK * (sent.prompt + _least(sent))))


def _guess(window: Window) -> int:
    """The window to guess, in tokens: that of most small models, or a larger one of models with such a name."""
    return max(UNKNOWN_WINDOW, window.tokens) if window.source == GUESS else UNKNOWN_WINDOW


def _limit(sent: Draft, refusal: Refusal) -> int | None:
    if refusal.limit is None and refusal.excess is not None:
        return sent.prompt + _least(sent) - refusal.excess
    return refusal.limit


def _less(facts: Facts, sent: Draft, gently: bool) -> int:
    """A window smaller than what was sent, in tokens, for a refusal without usable figures: what was answered before,
    if that is more than a share of it. A second refusal contradicts even that; one of an earlier request counts."""
    size = min(sent.window.tokens, sent.prompt + _least(sent))
    if facts.answered < facts.refused < size:
        return max(1, int(AGAIN_REFUSED_SHRINK * facts.refused))
    if sent.window.source == SUPPOSED:
        again = max(1, int(AGAIN_REFUSED_SHRINK * size))
        return min(again, UNKNOWN_WINDOW) if gently else again
    shrunk = max(1, int(UNKNOWN_REFUSAL_SHRINK * size))
    return max(shrunk, facts.answered) if facts.answered < size else shrunk


def proven(sent: Draft, refusal: Refusal, after: LearnedLimits, stated: Window, *, opaque: bool) -> LearnedLimits:
    """What a refusal of `sent` proves for later requests of the same caller.

    `after`: all that was learned from the refusal. `stated`: the model's stated window. `opaque`: the prompt has parts
    that cannot be counted reliably.
    """
    refusal = _of_inputs(sent, refusal)
    if refusal.bounds in (BODY, ONCE, TOGETHER, INPUTS):
        return NOTHING_LEARNED
    if refusal.bounds == ROLES:
        return LearnedLimits(alternates=after.alternates)
    if refusal.bounds == REASONING:
        return LearnedLimits(binds=after.binds)
    if sent.window.separate and after.shared:
        return LearnedLimits(shared=True)
    limit, true = _limit(sent, refusal), named_prompt(sent, refusal)
    if true is not None and not _plausible(sent, true, refusal.at_least):
        return NOTHING_LEARNED
    proved = NOTHING_LEARNED
    if limit is not None and limit > 0 and _over(sent, true, limit):
        if refusal.bounds == INPUT:
            proved = replace(proved, max_input=None if limit == stated.max_input else limit)
        elif limit != stated.tokens or stated.guessed:
            proved = replace(proved, window=limit)
    if true is not None and not opaque and true + _reply(sent) >= (limit or sent.window.tokens):
        most = PLAUSIBLE[sent.meter.quality]
        proved = replace(proved, scale=after.scale if 1 / most <= after.scale <= most else 1.0)
    return proved


def suspicion(sent: Draft, refusal: Refusal, after: LearnedLimits, *, opaque: bool) -> Suspicion | None:
    """What a refusal of `sent` that names no figure, or none but the known window, would prove once the same request,
    planned with what was learned `after` it, is answered. None if that would prove nothing. `opaque`: as in `proven`.
    """
    nothing = refusal.bounds in (BODY, ONCE, TOGETHER, INPUTS, ROLES, REASONING) or _says_more(sent, refusal)
    window = after.window or 0
    if nothing or not (after.supposed or _limit(sent, refusal)) or window < LEAST_SUPPOSED:
        return None
    return Suspicion(sent.prompt + _least(sent), window, refusal.rule[:64], shared=not opaque)


def _says_more(sent: Draft, refusal: Refusal) -> bool:
    """Whether a refusal has figures that are not known: another limit, or a count of the prompt. The known limit, or by
    how much it was passed, only says that the upstream counts more than we do."""
    if named_prompt(sent, refusal) is not None:
        return _limit(sent, refusal) is not None
    return refusal.limit is not None and refusal.limit != sent.window.tokens


def _plausible(sent: Draft, true: int, at_least: bool = False) -> bool:
    """Whether an upstream's count is close enough to ours. An "at least" count may be far below ours."""
    most = PLAUSIBLE[sent.meter.quality]
    return true <= sent.prompt * most and (at_least or sent.prompt <= true * most)


def _over(sent: Draft, true: int | None, limit: int) -> bool:
    """Whether prompt and reply reach a limit, by our count with its margin or by the upstream's count `true`."""
    margin, prompt = sent.meter.margin, sent.prompt
    counted = prompt + margin.of(prompt) - margin.base + min(margin.base, prompt // SMALL_PROMPT)
    return max(counted, true or 0) + _reply(sent) >= limit


def _was_changed(sent: Draft) -> bool:
    """Whether a tool or a message is not as the client sent it, or a message is missing."""
    return sent.definitions.changed or bool(sent.drops) or any(message.why for message in sent.messages)


def _reply(sent: Draft) -> int:
    """The reply limit that was sent, as far as it counts against the window."""
    return sent.window.counted(sent.reply or 0)


def _least(sent: Draft) -> int:
    return sent.window.counted(sent.least_reply)
