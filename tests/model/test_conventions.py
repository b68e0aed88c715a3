"""The rows of conventions that ship, and which arguments say what is read."""

from __future__ import annotations

import dataclasses

from proxy.config.rules import load_rules
from proxy.model.conventions import KINDS, NO_CONVENTIONS, Conventions, Signs


def test_the_shipped_rules_fill_every_kind() -> None:
    shipped = load_rules(None).ladders["default"].conventions
    assert [kind for kind in KINDS if not getattr(shipped, kind)] == []


def test_parts_are_the_names_that_say_what_is_read_and_no_others() -> None:
    found = Conventions(paths=("path",), offsets=("offset",), ends=("end",), free=("why",), commands=("command",))
    assert set(found.parts) == {"path", "offset", "end"} and NO_CONVENTIONS.parts == ()


def test_other_orders_are_other_conventions_though_they_share_a_hash() -> None:
    one = Conventions(orders=(Signs(("always",), ("always",)),))
    assert one != NO_CONVENTIONS and hash(one) == hash(NO_CONVENTIONS)
    assert one == dataclasses.replace(NO_CONVENTIONS, orders=one.orders)
