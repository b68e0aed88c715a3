"""What holds for a request where nobody says anything."""

from __future__ import annotations

from proxy.model.terms import USUAL, Reported, Terms


def test_usage_is_of_what_was_sent_unless_somebody_wants_it_otherwise() -> None:
    assert Terms() == USUAL and USUAL.usage is Reported.SENT
    assert [str(kind) for kind in Reported] == ["sent", "asked"]
