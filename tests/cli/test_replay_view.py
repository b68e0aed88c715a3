"""The report of a replay for a terminal: notes, and tables whose names can be copied."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from proxy.cli.picture import View
from proxy.cli.replay_view import MOST_NAMED, drawn, named_table, notes, shows_group, unpriced
from tests.replay.recordings import chat
from tests.replay.test_report import reported


def test_what_limits_the_report_is_said() -> None:
    found = reported(chat(3))
    found["input"] |= {"missing": {"tools": 2}, "with_time": 0, "out_of_order": 3, "redacted": 4}
    found["figures_only"] = found["columns"][0]["total"]
    said = "\n".join(notes(found))
    assert all(
        word in said for word in ("tools (2 requests)", "no time", "3 requests came out", "redacted", "figures only")
    )


def test_U26_a_name_is_never_broken_and_figures_stand_below_it_where_it_is_too_long() -> None:
    long = "mistral/mistral-small-latest-with-a-name-that-is-longer-than-any-terminal-of-eighty-columns"
    head, rows = ("model", "requests"), [("gpt-4o", "1,234"), ("名前", "5")]
    wide = named_table(head, rows, View(80)).plain.splitlines()
    assert wide == ["model   requests", "gpt-4o     1,234", "名前           5"]
    narrow = named_table(head, [*rows, (long, "7")], View(80)).plain.splitlines()
    assert long in narrow and narrow[narrow.index(long) + 1].split() == ["7"] and narrow[:2] == ["model", "  requests"]


def test_U26_a_narrow_terminal_has_whole_names_in_its_output() -> None:
    found = reported(chat(3, model="mistral-small-latest-2026-11-28-of-a-house"))
    console = Console(width=40, record=True, file=open("/dev/null", "w"))
    with console.file:
        console.print(drawn(found, View(40)), crop=False)
    assert "mistral-small-latest-2026-11-28-of-a-house" in console.export_text().splitlines()


def test_models_without_a_price_are_named_up_to_a_few() -> None:
    row = {"model": "m", "where": "", "why": "no_price", "requests": 2}
    searched = {**row, "where": "openai", "why": "no_price_of_searches"}
    assert unpriced([]) == []
    (said,) = unpriced([row, searched])
    assert said.startswith("without a price: m (2), m (its searches of the web) at openai (2): give them one")
    (said,) = unpriced([row] * (MOST_NAMED + 3))
    assert "and 3 more:" in said


def test_apps_are_shown_where_they_are_not_the_callers() -> None:
    def column(*apps: str) -> dict[str, Any]:
        return {"callers": [{"name": "a"}, {"name": "b"}], "apps": [{"name": name} for name in apps]}

    assert shows_group(column("b", "x"), "apps") and not shows_group(column("b", "a"), "apps")
    assert shows_group(column("a", "b"), "callers")
