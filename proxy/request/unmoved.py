"""Why a request that does not fit was not moved to a model that its ladder allows: for headers, the log and metrics."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.fit.steps.switch_model import able, move
from proxy.model.outcome import Unmoved
from proxy.model.plan import CandidateModel, Draft, Ladder, Plan
from proxy.request.facts import Knowledge
from proxy.upstreams.models_listing import Headers

# In words; {} is the upstream that has the model.
TEXTS: Mapping[Unmoved, str] = {
    Unmoved.NO_API: "no upstream has it for this API",
    Unmoved.NOT_SERVED: "the upstream {} does not serve it",
    Unmoved.NAMED: "the request names its upstream",
    Unmoved.UNREACHED: "the upstream {} could not be reached",
    Unmoved.CALLER: "the upstream {} takes only callers whose own key was accepted within the last hour",
    Unmoved.BOUND: "the request refers to what its upstream stored or signed",
    Unmoved.WINDOW_UNKNOWN: "its window is not known",
    Unmoved.UNABLE: "it lacks what the request needs",
    Unmoved.TOO_SMALL: "it is too small",
    Unmoved.NO_SPARE: "it has no room to spare",
    Unmoved.FAILED: "the upstream {} failed",
}
Told = tuple[str, tuple[str, ...]]  # in words, and as values of `Unmoved`
NOTHING: Told = ("", ())


def after_failure(upstream: str) -> Told:
    """What is told of a request that comes back from an upstream that failed."""
    return f"not moved: {TEXTS[Unmoved.FAILED].format(upstream)}", (Unmoved.FAILED.value,)


def why_unmoved(
    plan: Plan | None,
    candidates: tuple[CandidateModel, ...],
    ladder: Ladder,
    home: Knowledge,
    api: str,
    headers: Headers,
) -> Told:
    """The reason for each allowed model, `not moved to large-1: it is too small`; `NOTHING` if the
    request was moved, fits as it came, or has no model to be moved to."""
    if plan is None or not plan.changed or plan.before.excess <= 0 or plan.draft.model != plan.before.model:
        return NOTHING
    known = {candidate.model: candidate for candidate in candidates}
    names = [name for name in ladder.models if name != plan.before.model]
    found = {name: _why(plan.before, known.get(name), name, home, api, headers) for name in names}
    texts = (f"not moved to {name}: {TEXTS[why].format(upstream)}" for name, (why, upstream) in found.items())
    return "; ".join(texts), tuple(dict.fromkeys(why.value for why, _ in found.values()))


def _why(
    draft: Draft, candidate: CandidateModel | None, name: str, home: Knowledge, api: str, headers: Headers
) -> tuple[Unmoved, str]:
    """The reason, and the upstream that it is about."""
    if candidate is None:
        denied = None if home.peers is None else home.peers.denied(home, name, api, headers)
        return denied or (Unmoved.BOUND, "")
    if candidate.window.guessed:
        return Unmoved.WINDOW_UNKNOWN, ""
    if not able(candidate, draft):
        return Unmoved.UNABLE, ""
    return (Unmoved.TOO_SMALL if move(draft.made(), candidate).excess > 0 else Unmoved.NO_SPARE), ""
