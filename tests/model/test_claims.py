"""Whether all of a claimed result must stay."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.model.claims import Reason, ResultClaim


@pytest.mark.parametrize(("parts", "whole"), [({}, True), ({"definitions": ("f",)}, False), ({"ids": ("a-1",)}, False)])
def test_a_claim_of_no_part_is_one_of_all(parts: dict[str, Any], whole: bool) -> None:
    assert ResultClaim("c", 1, 2, next(iter(Reason)), 10, **parts).whole is whole
