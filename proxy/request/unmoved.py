"""Why a request that does not fit was not moved to a model that its ladder allows: for headers and the log."""

from __future__ import annotations

from proxy.fit.steps.switch_model import able, move
from proxy.model.plan import CandidateModel, Draft, Ladder, Plan
from proxy.request.facts import Knowledge
from proxy.upstreams.models_listing import Headers

FAILED = "the upstream {} failed"


def why_unmoved(
    plan: Plan | None,
    candidates: tuple[CandidateModel, ...],
    ladder: Ladder,
    home: Knowledge,
    api: str,
    headers: Headers,
) -> str:
    """The reason for each allowed model, `not moved to large-1: it is too small`; empty if the
    request was moved, fits as it came, or has no model to be moved to."""
    if plan is None or not plan.changed or plan.before.excess <= 0 or plan.draft.model != plan.before.model:
        return ""
    known = {candidate.model: candidate for candidate in candidates}
    names = [name for name in ladder.models if name != plan.before.model]
    found = ((name, _why(plan.before, known.get(name), name, home, api, headers)) for name in names)
    return "; ".join(f"not moved to {name}: {why}" for name, why in found)


def _why(draft: Draft, candidate: CandidateModel | None, name: str, home: Knowledge, api: str, headers: Headers) -> str:
    if candidate is None:
        denied = "" if home.peers is None else home.peers.denied(home, name, api, headers)
        return denied or "this request stays with its upstream"
    if candidate.window.guessed:
        return "its window is not known"
    if not able(candidate, draft):
        return "it lacks what the request needs"
    return "it is too small" if move(draft.made(), candidate).excess > 0 else "it has no room to spare"
