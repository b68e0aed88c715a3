"""Plans a request: applies the due steps of its ladder, in order, so that the draft fits. It does no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import structs

from proxy.fit import alternation, binding, left_out, placement, stored_ids
from proxy.fit import split_inputs as split
from proxy.fit.abridging import TRUNCATE, abridged
from proxy.fit.attribution import attributed
from proxy.fit.blocks import group
from proxy.fit.claims import repeat_stubs, stubs
from proxy.fit.claims.claims import ConversationClaims, room_for_claims
from proxy.fit.claims.reasons import reasoned
from proxy.fit.effective import by_own_window, is_kept, trusts, within, without_effective
from proxy.fit.provider_count import KIND, counted_by_provider, is_near
from proxy.fit.steps.clamp_output import squeezed
from proxy.fit.unknown_costs import on_what_is_shown, restated, unknown_tokens
from proxy.model.conversation import Block, Costs, Message, Prompt
from proxy.model.plan import CountRequest, Draft, Facts, Ladder, LadderStep, Note, Plan, Want, compared
from proxy.model.structs import replace

# What a cut may have left behind that the API or the model refuses: after all steps, in this order.
SETTLING = (
    (placement.NAME, placement.in_place),
    (binding.NAME, binding.unbound),
    (stored_ids.NAME, stored_ids.detached),
    (alternation.NAME, alternation.in_turn),
)
CLAMP = "clamp_output"  # the step that lowers reply limits


def plan(prompt: Prompt, ladder: Ladder, facts: Facts) -> Plan:
    """The plan for a request: the draft to send, or the `Want` that a step needs first.

    Every attempt is planned from what the client sent, never from the draft of an earlier attempt.
    """
    if facts.window.effective is None:
        return _planned(prompt, ladder, facts)
    made = _planned(prompt, ladder, within(facts, ladder))
    if made.want is not None:
        return made
    if is_kept(made):
        return by_own_window(made, facts.window, ladder)
    return _planned(prompt, ladder, without_effective(facts))


def _planned(prompt: Prompt, ladder: Ladder, facts: Facts) -> Plan:
    """The plan for a request by the window of the facts."""
    first = start(prompt, ladder, facts)
    if prompt.managed or trusts(facts.window, ladder):
        return _in_pieces(Plan(first, first, trusting=True))
    if facts.counter and is_near(first):
        return Plan(first, first, want=Want(KIND, KIND, CountRequest(prompt, first)))
    if facts.provider_meter is not None:
        whole = counted_by_provider(
            start(prompt, ladder, replace(facts, meter=facts.provider_meter)), facts.provider_count
        )
        if whole.excess <= 0:
            first, facts = whole, replace(facts, meter=facts.provider_meter)
    unknown = unknown_tokens(facts.meter, prompt.messages) if prompt.opaque and not facts.assuming else 0
    if unknown:
        return _by_what_is_shown(prompt, ladder, facts, first, unknown)
    return _descended(prompt, ladder, facts, first)


def _by_what_is_shown(prompt: Prompt, ladder: Ladder, facts: Facts, first: Draft, unknown: int) -> Plan:
    """The plan of a prompt with parts of unknown cost: they alone cut and refuse nothing. Its figures include what they
    usually cost."""
    shown = start(prompt, ladder, on_what_is_shown(facts, 0))
    if shown.excess <= 0 and not any(due(ladder_step, shown, shown) for ladder_step in ladder.steps):
        return _in_pieces(Plan(first, first, trusting=True))
    known = on_what_is_shown(facts, unknown)
    made = _descended(prompt, ladder, known, start(prompt, ladder, known))
    if made.want is not None or not made.possible:
        return made
    return replace(made, before=first, draft=restated(made.draft), trusting=True)


def _descended(prompt: Prompt, ladder: Ladder, facts: Facts, first: Draft) -> Plan:
    """The plan after the due steps of a ladder, or the `Want` that a step needs first."""
    draft = first
    facts = replace(facts, original=first)
    done = _Done()
    if first.excess > 0:
        draft = abridged(first, prompt, ladder, facts)
        done.add(TRUNCATE, first, draft)
    claiming = () if prompt.form.compaction else draft.blocks  # of texts that steps may read whole
    claims = ConversationClaims(claiming, ladder.conventions, first.meter)
    facts = replace(facts, claims=claims, conventions=ladder.conventions)
    for ladder_step in ladder.steps:
        if draft.excess <= 0:
            draft = done.made(draft)  # it fits by estimated costs: check that it fits when it is made
        if not due(ladder_step, draft, first):
            continue
        after = ladder_step.apply(draft, facts)
        if draft.texts and (isinstance(after, Want) or len(after.blocks) != len(draft.blocks)):
            continue  # only a conversation may have messages added or left out
        if isinstance(after, Want):
            return Plan(first, draft, tuple(done.notes), after, drafts=tuple(done.drafts))
        if _only_made(draft, after):
            draft = done.made(draft)
        else:
            if after.model != draft.model and _is_uncut(first, after):
                done, draft = _Done(), first  # what was tried before is not sent
            done.add(ladder_step.step, draft, after)
            draft = after
    after = done.replaced(draft, attributed(done.made(draft)))
    for name, settle in () if draft.texts else SETTLING:
        draft, after = after, settle(first, after)
        done.add(name, draft, after)
    if after is not first and not after.texts:
        draft, after = after, stubs.noted(first, after, claims.backs())
        done.add(stubs.NAME, draft, after)
        draft, after = after, repeat_stubs.resolved(after)
        done.add(stubs.NAME, draft, after)
    if after.opaque:
        draft, after = after, left_out.noted(first, after)
        done.add(left_out.NAME, draft, after)
    if after.excess > 0 and any(ladder_step.step == CLAMP for ladder_step in ladder.steps):
        draft, after = after, squeezed(after)
        done.add(CLAMP, draft, after)
    if after.blocks is not first.blocks and not after.texts:
        after = reasoned(after, claims.standing(room_for_claims(after, facts)))
    return _in_pieces(Plan(first, after, tuple(done.notes), drafts=tuple(done.drafts)))


def _is_uncut(first: Draft, after: Draft) -> bool:
    """Whether a draft for another model has all that the client sent."""
    reply = first.reply if first.reply is None else min(first.reply, after.window.max_output or first.reply)
    return (
        not after.definitions.changed
        and after.reply == reply
        and [m.raw for m in after.messages] == [m.raw for m in first.messages]
    )


@dataclass(slots=True)
class _Done:
    """What the steps have done so far: the note of each, and the draft that it left."""

    notes: list[Note] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)

    def add(self, step: str, before: Draft, after: Draft) -> None:
        """Notes a step that changed the draft."""
        if after is not before:
            self.notes.append(note(step, before, after))
            self.drafts.append(after)

    def made(self, draft: Draft) -> Draft:
        """The draft with every deferred block made. The last step's note gets the exact prompt tokens."""
        return self.replaced(draft, draft.made())

    def replaced(self, draft: Draft, made: Draft) -> Draft:
        """The draft `made` in place of what the last step left. Its note gets the prompt tokens of that."""
        if made is not draft:
            self.notes[-1] = replace(self.notes[-1], tokens_after=made.billed)
            self.drafts[-1] = made
        return made


def _in_pieces(made: Plan) -> Plan:
    """The plan, in several requests if its inputs are too many for one."""
    found = split.pieces(made.draft) if made.draft.apart else ()
    if not found:
        return made
    split_note = note(split.NAME, made.draft, made.draft)
    return replace(made, pieces=found, notes=(*made.notes, split_note), drafts=(*made.drafts, made.draft))


def _only_made(before: Draft, after: Draft) -> bool:
    """Whether a step changed nothing itself and only made the blocks that an earlier step had deferred.

    A step that dropped something, or changed anything but blocks (a reply limit), changed the draft: then the deferred
    blocks are not made for the comparison. Of the others no more are made than there are alike.
    """
    if after is before or after.drops != before.drops or all(block.later is None for block in before.blocks):
        return False
    if len(after.blocks) != len(before.blocks):
        return False
    if replace(after, blocks=before.blocks, prompt=before.prompt) != before:
        return False
    alike = all(new == old.made() for old, new in zip(before.blocks, after.blocks, strict=True))
    return alike and after == before.made()


def due(ladder_step: LadderStep, draft: Draft, first: Draft) -> bool:
    """Whether the step applies: the draft does not fit, or the load has reached the step's own `at`."""
    if ladder_step.at is None:
        return draft.excess > 0
    return draft.excess > 0 or (first if ladder_step.of_original else draft).load >= ladder_step.at


def start(prompt: Prompt, ladder: Ladder, facts: Facts) -> Draft:
    """The draft of what the client sent, counted."""
    blocks = tuple([Block(_counted(b, facts), b.pinned) for b in group(prompt.messages, prompt.pins)])
    fixed = sum(facts.meter.fixed.values())
    return Draft(
        model=prompt.model,
        window=facts.window,
        meter=facts.meter,
        blocks=blocks,
        prompt=fixed + compared([b.tokens for b in blocks], prompt.form.apart),
        reply=prompt.reply.limit,
        ladder_floor=ladder.floor,
        least=max(1, prompt.reply.least),
        default_reserve=ladder.default_reserve,
        needs=prompt.needs,
        pins=prompt.pins,
        texts=prompt.form.texts,
        apart=prompt.form.apart,
        opaque=prompt.costs is Costs.UNPROVABLE,
        definitions=prompt.definitions,
    )


def _counted(block: Block, facts: Facts) -> tuple[Message, ...]:
    costs = facts.meter.costs(block.messages)
    return tuple([structs.replace(m, tokens=c) for m, c in zip(block.messages, costs, strict=True)])


def note(step: str, before: Draft, after: Draft) -> Note:
    """The note of a step, from the drafts before and after it."""
    return Note(step, before.billed, after.billed, before.reply, after.reply, before.model, after.model)
