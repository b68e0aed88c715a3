"""The report of a replay for a terminal: tables whose names can be copied."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from proxy.cli.picture import View
from proxy.cli.replay_view import MOST_ROWS, drawn, named_table
from tests.replay.recordings import chat
from tests.replay.test_report import reported


def test_U26_a_name_is_never_broken_and_figures_stand_below_it_where_it_is_too_long() -> None:
    long = "mistral/mistral-small-latest-with-a-name-that-is-longer-than-any-terminal-of-eighty-columns"
    head, rows = ("model", "requests"), [("gpt-4o", "1,234"), ("名前", "5")]
    wide = named_table(head, rows, View(80)).plain.splitlines()
    assert wide == ["model   requests", "gpt-4o     1,234", "名前           5"]
    narrow = named_table(head, [*rows, (long, "7")], View(80)).plain.splitlines()
    assert long in narrow and narrow[narrow.index(long) + 1].split() == ["7"] and narrow[:2] == ["model", "  requests"]


def test_U26_a_narrow_terminal_has_whole_names_in_its_output() -> None:
    found = reported(chat(3, model="mistral-small-latest-2026-11-28-of-a-house"))
    console = Console(width=40, record=True, file=StringIO())
    console.print(drawn(found, View(40)), crop=False)
    assert "mistral-small-latest-2026-11-28-of-a-house" in console.export_text().splitlines()


def test_U26_a_cut_says_which_messages_lost_most_and_why() -> None:
    console = Console(width=120, record=True, file=StringIO())
    console.print(drawn(reported(chat(200)), View(120)), crop=False)
    lines = console.export_text().splitlines()
    (at,) = (number for number, line in enumerate(lines) if line == "a.jsonl, entry 1")
    rows = [line for line in lines[at:] if line.startswith("  #")]
    assert 0 < len(rows) <= MOST_ROWS and all("dropped: " in row or "recalled" in row for row in rows)
