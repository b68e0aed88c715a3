"""Copies of frozen values."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from proxy.model.structs import replace


@dataclass(frozen=True, slots=True)
class Plain:
    """A dataclass."""

    a: int
    b: int = 2


class Struct(msgspec.Struct, frozen=True):
    """A struct."""

    a: int
    b: int = 2


@pytest.mark.parametrize("made", [Plain, Struct])
def test_a_copy_has_the_changes_and_the_rest_and_the_first_stays(made: type[Plain] | type[Struct]) -> None:
    first = made(1, 5)
    assert replace(first, a=3) == made(3, 5) and first == made(1, 5)
    with pytest.raises(TypeError):
        replace(first, c=3)
