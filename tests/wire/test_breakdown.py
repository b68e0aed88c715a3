"""What is kept of a plan: rows and parts, packed, without texts."""

from __future__ import annotations

import pytest

from proxy.model.limits import Window
from proxy.model.structs import replace
from proxy.wire import breakdown
from proxy.wire.breakdown import MAX_NAME, as_figures, pack, shown_role
from proxy.wire.report import parts
from proxy.wire.rows import as_json, rows
from tests.wire.test_rows import CUT


def test_what_is_packed_is_what_inspect_shows() -> None:
    found = as_figures(pack(CUT))
    assert found["rows"] == [as_json(row) for row in rows(CUT)] and found["rows_left_out"] == 0
    assert found["parts"] == {"before": parts(CUT.before), "sent": parts(CUT.draft)}
    besides = {"overhead": CUT.before.fixed, "overhead_sent": CUT.draft.fixed, "overhead_steps": []}
    assert found["tokens"] == besides
    assert found["window_sent"] == CUT.draft.window.tokens


def test_a_request_that_went_to_another_model_has_both_windows() -> None:
    moved = replace(CUT, draft=replace(CUT.draft, model="larger", window=Window(128_000, source="rules")))
    found = as_figures(pack(moved))
    assert (found["window"], found["window_source"]) == (CUT.before.window.tokens, CUT.before.window.source)
    assert found["window_sent"] == 128_000


def test_without_a_plan_there_are_no_figures() -> None:
    assert set(as_figures(b"").values()) == {None, 0}


def test_of_many_messages_there_are_no_rows_and_of_more_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakdown, "MAX_ROWS", 5)
    found = as_figures(pack(CUT))
    assert (found["rows"], found["rows_left_out"]) == ([], 6) and found["parts"] is not None
    monkeypatch.setattr(breakdown, "MAX_MESSAGES", 5)
    assert pack(CUT) == b""


def test_a_role_is_short_and_printable() -> None:
    assert shown_role("tool") == "tool" and shown_role("a\n\x1b[31m") == "a??[31m"
    assert len(shown_role("x" * 9999)) == MAX_NAME
