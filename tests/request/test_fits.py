"""Whether a request fits by its bytes, by its count, or the smallest window that a server loads."""

from __future__ import annotations

import pytest

from proxy.model.limits import Margin, Quality, Window
from proxy.model.plan import LadderStep
from proxy.model.scan import Scan, ScanState, Total
from proxy.model.structs import replace
from proxy.request.fits import PROOF_MARGIN, is_below, is_tiny, load_of, proves
from proxy.request.stages import Counted
from tests.makers import ladder

WINDOW, PLAIN = Window(10_000), ladder()
MOST = WINDOW.tokens - PROOF_MARGIN - 500


def scan(most: int | None = 100, reserve: int | None = 500, count: int = 1, text: bytes = b"") -> Scan:
    return Scan("m", reserve, False, most, seen=ScanState(count), text=text)


def total(prompt: int) -> Total:
    return Total(prompt, Margin(100), Quality.EXACT, 1)


def test_bytes_prove_what_fits_with_everything_that_a_provider_may_add_and_the_reply() -> None:
    assert proves(scan(MOST), PLAIN, WINDOW) and not proves(scan(MOST + 1), PLAIN, WINDOW)
    assert not proves(scan(None), PLAIN, WINDOW)
    without_limit = MOST + 500 - PLAIN.default_reserve
    assert proves(scan(without_limit, None), PLAIN, WINDOW) and not proves(scan(without_limit + 1, None), PLAIN, WINDOW)


def test_bytes_prove_nothing_of_a_guessed_window() -> None:
    assert not proves(scan(), PLAIN, replace(WINDOW, guessed=True))


def test_inputs_have_bounds_of_their_own() -> None:
    window = replace(WINDOW, max_inputs=2, max_together=10)
    assert proves(scan(count=2, text=b"x" * 10), PLAIN, window)
    assert not proves(scan(count=3), PLAIN, window) and not proves(scan(text=b"x" * 11), PLAIN, window)


def test_a_counted_request_fits_below_the_at_of_every_step() -> None:
    early = ladder(LadderStep("x", lambda draft, facts: draft, at=0.5))
    assert is_below(total(4_499), scan(), early, WINDOW) and not is_below(total(4_500), scan(), early, WINDOW)
    assert is_below(total(9_400), scan(), PLAIN, WINDOW) and not is_below(total(9_401), scan(), PLAIN, WINDOW)


def test_a_guess_that_refusals_correct_fits_everything_and_has_no_load() -> None:
    guess = replace(WINDOW, guessed=True)
    assert is_below(total(10**6), scan(), ladder(unknown="learn"), guess)
    assert load_of(Counted(window=guess, total=total(9_000)), scan(), PLAIN) == 0.0
    assert load_of(Counted(window=WINDOW, total=total(9_000)), scan(), PLAIN) == pytest.approx(0.95)
    assert load_of(Counted(window=WINDOW), scan(), PLAIN) == 0.0


def test_a_tiny_request_is_told_by_its_bytes() -> None:
    assert is_tiny(scan(100)) and not is_tiny(scan(2_048)) and not is_tiny(scan(None))
