"""What a prompt says of itself, in values with a name."""

from __future__ import annotations

from typing import get_type_hints

from proxy.model.conversation import Costs, Prompt


def test_a_prompt_says_what_belongs_together_in_values_with_a_name() -> None:
    flags = [name for name, kind in get_type_hints(Prompt).items() if kind is bool]
    assert len(Prompt.__struct_fields__) <= 14 and flags == ["stream", "managed", "placed"]


def test_only_known_costs_leave_nothing_opaque() -> None:
    made = [Costs.of(False), Costs.of(False, True), Costs.of(True)]
    assert made == [Costs.PROVABLE, Costs.SEALED, Costs.UNPROVABLE]
    assert [Prompt("m", (), costs=costs).opaque for costs in made] == [False, True, True]
