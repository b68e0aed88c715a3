"""Names of models that are too long to be one."""

from __future__ import annotations

from proxy.model.names import LONGEST_NAME, NAMELESS, name_of


def test_every_name_that_is_too_long_is_the_same_one() -> None:
    assert name_of("m" * LONGEST_NAME) == "m" * LONGEST_NAME
    assert name_of("m" * (LONGEST_NAME + 1)) == name_of("n" * 10**6) == NAMELESS
    assert len(NAMELESS) <= LONGEST_NAME
