"""Whether a request fits, by its bytes or by its count, so that nothing needs to be planned."""

from __future__ import annotations

from proxy.config.windows import RULES
from proxy.fit.learn import REFUSED
from proxy.model.limits import NO_MARGIN, Window
from proxy.model.plan import Ladder
from proxy.model.scan import Scan, Total
from proxy.request.facts import LOADED, REQUESTED
from proxy.request.refusal_detection import NEAR_LOAD
from proxy.request.stages import Counted

# Sources of a window that say what the server has loaded, or that the operator answers for. A model's own window does
# not: Ollama loads 4,096 tokens of 131,072 on most machines, older versions 2,048.
SERVED = frozenset({LOADED, REQUESTED, RULES, REFUSED})
SMALLEST_LOADED = 2_048
PROOF_MARGIN = 1_900  # tokens that providers were seen to add on their own, whatever the body says (Cohere's most)


def is_tiny(scan: Scan) -> bool:
    """Whether a request fits the smallest window that a server loads."""
    return scan.most is not None and scan.most <= NEAR_LOAD * SMALLEST_LOADED


def proves(scan: Scan, ladder: Ladder, window: Window) -> bool:
    """Whether the body's bytes alone prove that it fits and that no step is due: a token has at least one byte."""
    if scan.most is None or window.guessed:  # of a guess, the upstream's own list may have a better value
        return False
    reserve = ladder.default_reserve if scan.reserve is None else scan.reserve
    if window.max_inputs is not None and scan.seen.count > window.max_inputs:
        return False
    if window.max_together is not None and len(scan.text) > window.max_together:
        return False
    most = scan.most + PROOF_MARGIN
    return window.load(most, reserve) <= ladder.least_at and window.fits(most, reserve, NO_MARGIN)


def is_below(total: Total, scan: Scan, ladder: Ladder, window: Window) -> bool:
    """Whether a counted request fits, with a load below the `at` of every step. A guessed window that refusals will
    correct fits everything."""
    if window.guessed and ladder.unknown == "learn":
        return window.effective is None or total.prompt <= window.effective
    reply = window.floor(ladder.floor) if scan.reserve is None else scan.reserve
    reserve = ladder.default_reserve if scan.reserve is None else scan.reserve
    prompt = total.shown if total.media else total.prompt  # what is not known cuts nothing
    return window.load(prompt, reserve) < ladder.least_at and window.fits(prompt, reply, total.margin)


def load_of(counted: Counted, scan: Scan, ladder: Ladder) -> float:
    """The load of a counted request; 0 where the window is guessed."""
    if counted.total is None or counted.window.guessed:
        return 0.0
    reserve = ladder.default_reserve if scan.reserve is None else scan.reserve
    return counted.window.load(counted.total.prompt, reserve)
