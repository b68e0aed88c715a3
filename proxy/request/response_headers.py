"""The x-plimsoll-* response headers of a request, and the notices among them: what follows from its stages."""

from __future__ import annotations

from proxy.config.upstreams import DEFAULT
from proxy.fit.compactions import uncovered
from proxy.model.limits import Window
from proxy.model.outcome import Usage
from proxy.model.plan import Mode
from proxy.model.terms import USUAL
from proxy.request.stages import Planned, Scanned
from proxy.tokens.meter import unit_of
from proxy.tokens.truncation import truncated
from proxy.wire.report import count, header_value, notices, plan_headers, total_headers

OBSERVED = (b"x-plimsoll-mode", b"observe")
REFUSING = "the request is near the window: the server is told to refuse it rather than to shorten it without a word"
UNKNOWN_STORED = "what the upstream has stored is not known here, and is not counted"
OVERRULED = "a rule of the proxy's operator holds here, not what the request asks for: {}"
UNPLANNED = "the request was sent as it came, unmeasured: {}"
EDITED = "the context edits that the request asks for were made before it was sent: {}"
NOT_EFFECTIVE = "no cut reaches the effective window of {:,} tokens: the model's own counts"
LEFT_OUT = "{:,} messages in the middle are left out and not counted: there are too many to be parsed"


def headers_of(planned: Planned, upstream: str) -> list[tuple[bytes, bytes]]:
    """The headers, as far as the figures are known by now. `upstream`: where it was sent, if there are several."""
    scanned, plan, total = planned.scanned, planned.plan, planned.total
    if plan is not None:
        found = plan_headers(plan, sent=planned.received.may_change)
    else:
        found = [] if total is None or scanned is None else total_headers(total, scanned.scan.reserve)
    if planned.received.mode is Mode.OBSERVE:
        found.append(OBSERVED)
    if upstream and upstream != DEFAULT:
        found.append((b"x-plimsoll-upstream", upstream.encode()))
    if _has_notices(planned) and (notes := notices_of(planned)):
        found.append((b"x-plimsoll-notice", header_value("; ".join(notes))))
    return found


def notices_of(planned: Planned) -> list[str]:
    """What the client asked for that has no effect, and the extra calls that a dry run did not make."""
    scanned, plan, counted = planned.scanned, planned.plan, planned.counted
    overruled = planned.received.controls.overruled
    said = [OVERRULED.format(", ".join(overruled))] if overruled else []
    if planned.unplanned:
        return [*said, UNPLANNED.format(planned.unplanned)]
    if scanned is None:
        return said
    if plan is not None:
        window: Window | None = plan.before.window
    else:
        window = None if counted is None else counted.window
    messages = scanned.scan.seen.count if plan is None else count(plan.before)
    return [
        *said,
        *notices(scanned.controls, window, messages),
        *([LEFT_OUT.format(scanned.left_out)] if scanned.left_out else []),
        *([UNKNOWN_STORED] if _is_uncounted(planned) else []),
        *([planned.unmoved[0]] if planned.unmoved[0] else []),
        *([REFUSING] if planned.refusing else []),
        *_without_effect(planned),
        *([EDITED.format(scanned.applied.decode())] if scanned.applied is not None else []),
        *([uncovered(plan.before, plan.draft)] if plan is not None and _is_cut_summary(planned) else []),
        *(() if planned.descent is None else planned.descent.missing),
    ]


def _has_notices(planned: Planned) -> bool:
    """Whether there may be notices; most requests ask for nothing."""
    scanned: Scanned | None = planned.scanned
    if planned.unplanned or planned.received.controls.overruled:
        return True
    if scanned is None:
        return False
    if planned.received.terms is not USUAL and _without_effect(planned):
        return True
    if scanned.applied is not None:
        return True
    if scanned.controls.asks or scanned.left_out or planned.unmoved[0] or planned.refusing:
        return True
    return _is_uncounted(planned) or _is_cut_summary(planned)


def _is_cut_summary(planned: Planned) -> bool:
    """Whether it asks for a summary of its conversation, of which a part is not sent."""
    scanned, plan = planned.scanned, planned.plan
    asks = scanned is not None and bool(scanned.compaction) and planned.received.may_change
    return asks and plan is not None and plan.draft.blocks is not plan.before.blocks


def _without_effect(planned: Planned) -> list[str]:
    """A notice of an effective window that the request asks for and that its plan does not keep."""
    plan, effective = planned.plan, planned.received.terms.effective
    if plan is None or effective is None or plan.draft.prompt <= effective or not planned.received.may_change:
        return []
    return [NOT_EFFECTIVE.format(effective)]


def _is_uncounted(planned: Planned) -> bool:
    """Whether it goes on from something stored whose length is not known here."""
    prompt = None if planned.descent is None else planned.descent.prompt
    return prompt is not None and bool(prompt.stored.continues) and not prompt.stored.tokens


def is_truncated(planned: Planned, usage: Usage) -> bool:
    """Whether the upstream read far fewer tokens than it was sent, by the figures that are known by now."""
    plan, total = planned.plan, planned.total
    if plan is not None:
        sent = plan.draft if planned.received.may_change else plan.before
        return truncated(sent.billed, sent.meter.quality, unit_of(sent.meter), usage)
    if total is None or usage.prompt >= total.prompt:  # as of nearly all
        return False
    return truncated(total.prompt, total.quality, total.unit, usage)
