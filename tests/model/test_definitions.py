"""A request that defines no tools."""

from __future__ import annotations

from proxy.model.definitions import NO_DEFINITIONS


def test_no_tools_have_no_fields_and_stay_as_they_are() -> None:
    assert not NO_DEFINITIONS.fields and not NO_DEFINITIONS.read() and not NO_DEFINITIONS.chosen()
    assert NO_DEFINITIONS.edited({}) is NO_DEFINITIONS.with_fields({}) is NO_DEFINITIONS
    assert not NO_DEFINITIONS.changed and not NO_DEFINITIONS.arguments()
