"""The heart: walks a request down its ladder until it fits, and learns from a refusal; it does no I/O."""

from __future__ import annotations

from proxy.fit import alternation
from proxy.fit.abridging import TRUNCATE, abridged
from proxy.fit.blocks import group
from proxy.fit.steps.clamp_output import squeezed
from proxy.types import (
    UNKNOWN_WINDOW,
    Block,
    Draft,
    Facts,
    Ladder,
    Learned,
    Message,
    Note,
    Plan,
    Prompt,
    Refusal,
    Rung,
    Want,
    Window,
    replace,
)

STINT = 0.7  # a refusal that names no figure teaches only that what we sent was too much: twice this is under a half
CUT_SHORT = 1.15  # an "at least N tokens" was cut short by the upstream: the truth is more, by how much it does not say
BODY = "body"  # what a refusal bounds that counts bytes
ROLES = "roles"  # what a refusal is about that is about no length
CLAMP = "clamp_output"  # the step that lowers reply limits
FURTHEST = 8.0  # no tokenizer is further from our count; a larger scale would refuse everything from then on


def plan(prompt: Prompt, ladder: Ladder, facts: Facts) -> Plan:
    """What to send so that it fits, or what must be known first. Always planned from what the client sent."""
    first = draft = start(prompt, ladder, facts)
    if facts.window.guessed and ladder.unknown == "learn":
        return Plan(first, first, trusting=True)  # a guess alone cuts nothing: a refusal teaches the truth
    facts = replace(facts, original=first)
    notes: list[Note] = []
    if first.excess > 0:
        draft = abridged(first, prompt, ladder)
        if draft is not first:
            notes.append(note(TRUNCATE, first, draft))
    for rung in ladder.rungs:
        if draft.excess <= 0:
            draft = _made(draft, notes)  # what fits by what it will cost about shall fit when it is made
        if not due(rung, draft, first):
            continue
        after = rung.apply(draft, facts)
        if isinstance(after, Want):
            return Plan(first, draft, tuple(notes), after)
        if _only_made(draft, after):
            draft = _made(draft, notes)
        elif after is not draft:
            notes.append(note(rung.step, draft, after))
            draft = after
    draft = _made(draft, notes)
    after = alternation.in_turn(first, draft)
    if after is not draft:
        notes.append(note(alternation.NAME, draft, after))
    if after.excess > 0 and any(rung.step == CLAMP for rung in ladder.rungs):
        draft, after = after, squeezed(after)
        if after is not draft:
            notes.append(note(CLAMP, draft, after))
    return Plan(first, after, tuple(notes))


def _made(draft: Draft, notes: list[Note]) -> Draft:
    """The draft with every block as it will be sent; the last step's note tells what it costs then."""
    made = draft.made()
    if made is not draft:
        notes[-1] = replace(notes[-1], tokens_after=made.prompt)
    return made


def _only_made(before: Draft, after: Draft) -> bool:
    """Whether a step did nothing of its own, but needed what an earlier one had decided. That is not made only to see
    this of a step that dropped something."""
    if after is before or after.drops != before.drops or all(block.later is None for block in before.blocks):
        return False
    return after == before.made()


def due(rung: Rung, draft: Draft, first: Draft) -> bool:
    """Whether it is the step's turn: the draft does not fit, or the load has reached the step's own `at`."""
    if rung.at is None:
        return draft.excess > 0
    return draft.excess > 0 or (first if rung.of_original else draft).load >= rung.at


def start(prompt: Prompt, ladder: Ladder, facts: Facts) -> Draft:
    """The draft of what the client sent, counted."""
    blocks = tuple(replace(b, messages=_counted(b, facts)) for b in group(prompt.messages, prompt.pins))
    fixed = sum(facts.meter.fixed.values())
    return Draft(
        model=prompt.model,
        window=facts.window,
        meter=facts.meter,
        blocks=blocks,
        prompt=fixed + sum(b.tokens for b in blocks),
        reply=prompt.ask,
        ladder_floor=ladder.floor,
        least=max(1, prompt.reply_floor),
        default_reserve=ladder.default_reserve,
        needs=prompt.needs,
    )


def _counted(block: Block, facts: Facts) -> tuple[Message, ...]:
    costs = facts.meter.costs(block.messages)
    return tuple(replace(m, tokens=c) for m, c in zip(block.messages, costs, strict=True))


def note(step: str, before: Draft, after: Draft) -> Note:
    """What a step did, read off the drafts before and after it."""
    return Note(step, before.prompt, after.prompt, before.reply, after.reply, before.model, after.model)


def learn(facts: Facts, sent: Draft, refusal: Refusal) -> Facts | None:
    """What a refusal of `sent` teaches: the model's bound, or by how much our count was off; None where nothing new."""
    if refusal.bounds == BODY:
        refusal = Refusal(refusal.rule)  # its figures are bytes
    if refusal.bounds == ROLES:
        told = facts.window.alternates is not None or alternation.alternates(sent.messages)
        return None if told else apply_learned(facts, replace(facts.learned, alternates=True))
    learned = _with_bound(_with_scale(facts.learned, sent, refusal), sent, refusal)
    if learned == facts.learned and (sent.excess <= 0 or sent.window.guessed):  # else it was known to be too long
        learned = replace(learned, window=_less(sent), supposed=True)
    if learned == facts.learned:
        return None
    return apply_learned(facts, learned)


def apply_learned(facts: Facts, learned: Learned) -> Facts:
    """The facts with what an upstream taught us laid over them."""
    window = with_learned(facts.window, learned)
    meter = (
        facts.meter.scaled(learned.scale / facts.learned.scale) if learned.scale != facts.learned.scale else facts.meter
    )
    return replace(facts, window=window, meter=meter, learned=learned)


def with_learned(window: Window, learned: Learned) -> Window:
    """The window with the bounds that refusals named. A bound on the prompt alone says nothing of a larger window."""
    if learned.window is not None:
        source = "supposed" if learned.supposed else "refusal"
        window = replace(window, tokens=learned.window, source=source, guessed=False)
    if learned.max_input is not None:
        window = replace(window, max_input=min(learned.max_input, window.max_input or learned.max_input))
        window = replace(window, tokens=max(window.tokens, learned.max_input), source="refusal", guessed=False)
    return replace(window, alternates=True) if learned.alternates and window.alternates is None else window


def _with_scale(learned: Learned, sent: Draft, refusal: Refusal) -> Learned:
    """Our count corrected, where the upstream named its own and it is larger."""
    true, completion = refusal.prompt, sent.reply if refusal.completion is None else refusal.completion
    if true is None and refusal.total is not None and completion is not None:
        true = refusal.total - completion
    if true is None or true <= sent.prompt:
        return learned
    scale = learned.scale * (CUT_SHORT if refusal.at_least else 1) * true / max(1, sent.prompt)
    return replace(learned, scale=scale) if scale <= FURTHEST else learned


def _with_bound(learned: Learned, sent: Draft, refusal: Refusal) -> Learned:
    """The bound that the upstream named, where it is another than the one we planned with."""
    limit, supposed = refusal.limit, False
    if limit is None and refusal.excess is not None:
        limit = sent.prompt + sent.least_reply - refusal.excess
    if limit is None and sent.window.guessed and sent.prompt + sent.least_reply > UNKNOWN_WINDOW:
        limit, supposed = UNKNOWN_WINDOW, True
    if limit is None or limit <= 0:
        return learned
    if refusal.bounds == "input" and not supposed:
        return learned if limit == sent.window.max_input else replace(learned, max_input=limit)
    known = limit == sent.window.tokens and not sent.window.guessed
    return learned if known else replace(learned, window=limit, supposed=supposed)


def _less(sent: Draft) -> int:
    """A window so small that what was sent counts as too long, where the refusal itself says no more."""
    return max(1, int(STINT * min(sent.window.tokens, sent.prompt + sent.least_reply)))
