"""tools.toml, parsed."""

from __future__ import annotations

from proxy.config.tools import parse_tools


def test_only_the_kinds_that_are_given_are_taken() -> None:
    assert parse_tools({}) == ({}, {}, [])
    table = {"arguments": {"paths": ["path", "file"], "pages": []}}
    assert parse_tools(table) == ({"paths": ("path", "file"), "pages": ()}, {}, [])


def test_an_unknown_key_and_a_wrong_type_are_problems() -> None:
    assert parse_tools({"arguments": {"path": ["a"]}})[2] != []
    assert parse_tools({"arguments": {"paths": "a"}}) == ({}, {}, ["arguments.paths: expected array, got str"])
    assert parse_tools({"tools": {}})[2] != []
