"""An effective window: a prompt is cut to it, where cuts reach it; nothing is refused for it, and no reply is lowered.

Models answer worse long before their window is full. What fits the effective window is left alone. Of what does not,
the plan is made with `Window.effective` as a bound on the prompt, beside the model's own window; if no plan keeps that
bound, the plan is the one without it. What comes out knows the model's own window alone.
"""

from __future__ import annotations

from msgspec import structs

from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts, Ladder, Plan
from proxy.model.structs import replace

UNBOUNDED = 10**9  # tokens of a window that is not known: the effective one alone is to be kept


def without_effective(facts: Facts) -> Facts:
    """The facts as if nobody wished an effective window."""
    candidates = tuple(structs.replace(one, window=own(one.window)) for one in facts.candidates)
    return structs.replace(facts, window=own(facts.window), candidates=candidates)


def own(window: Window) -> Window:
    """A window without what somebody wishes."""
    return window if window.effective is None else structs.replace(window, effective=None)


def fits_own(draft: Draft) -> bool:
    """Whether a draft that is to keep an effective window fits the model's own: then no step lowers its reply."""
    window = draft.window
    return window.effective is not None and own(window).fits(draft.prompt, draft.least_reply, draft.meter.margin)


def within(facts: Facts, ladder: Ladder) -> Facts:
    """The facts for a plan that keeps the effective window, also where the model's own is a guess that cuts nothing."""
    window = facts.window
    if not trusts(window, ladder):
        return facts
    return structs.replace(facts, window=structs.replace(window, tokens=UNBOUNDED, max_input=None, guessed=False))


def trusts(window: Window, ladder: Ladder) -> bool:
    """Whether a window is a guess, which alone cuts nothing: the limit is learned from a refusal."""
    return window.guessed and ladder.unknown == "learn"


def is_kept(made: Plan) -> bool:
    """Whether a plan keeps the effective window, and may be sent."""
    effective = made.draft.window.effective
    return made.trusting or (made.possible and (effective is None or made.draft.prompt <= effective))


def by_own_window(made: Plan, window: Window, ladder: Ladder) -> Plan:
    """A plan that keeps the effective window, with the model's own `window` in its drafts."""
    model = made.before.model

    def restored(draft: Draft) -> Draft:
        return replace(draft, window=own(window if draft.model == model else draft.window))

    before, drafts = restored(made.before), tuple(map(restored, made.drafts))
    draft = before if made.draft is made.before else restored(made.draft)
    return replace(made, before=before, draft=draft, drafts=drafts, trusting=made.trusting or trusts(window, ladder))
