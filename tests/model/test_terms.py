"""What holds for a request where nobody says anything."""

from __future__ import annotations

from proxy.model.limits import Window
from proxy.model.terms import USUAL, OnFull, Reported, Terms


def test_usage_is_of_what_was_sent_unless_somebody_wants_it_otherwise() -> None:
    assert Terms() == USUAL and USUAL.usage is Reported.SENT
    assert [str(kind) for kind in Reported] == ["sent", "asked"]
    assert USUAL.on_full is OnFull.FIT and [str(kind) for kind in OnFull] == ["fit", "agent"]


def test_an_effective_window_of_a_request_stands_in_place_of_that_of_its_model() -> None:
    rows = Window(128_000, effective=32_000)
    assert USUAL.on(rows) is rows
    assert Terms(effective=64_000).on(rows) == Window(128_000, effective=64_000)
