"""What a scan and a total say of themselves."""

from __future__ import annotations

from proxy.model.limits import Margin, Quality
from proxy.model.ports import Medium
from proxy.model.scan import Scan, Total


def test_only_the_bytes_that_were_not_known_are_new() -> None:
    assert Scan("m", None, False, 10, text=b"abc").new == 3 and Scan("m", None, False, 10).new == 0


def test_a_total_shows_the_tokens_of_what_has_a_known_cost() -> None:
    media = [Medium(1, 300, False), Medium(2, 50, True)]
    total = Total(1_000, Margin(), Quality.ESTIMATED, 2, media=media)
    assert total.shown == 700
