"""What limits a report, and how its figures are written."""

from __future__ import annotations

from typing import Any

from proxy.replay.notes import MOST_NAMED, dollars, money, notes, shows_group, unpriced
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


def test_money_says_where_nothing_has_a_price() -> None:
    assert money({"money": {"priced": 0, "saved_net": 0.0}}, "saved_net") == "no price"
    assert money({"money": {"priced": 1, "saved_net": 1234.5}}, "saved_net") == "$1,234.50"
    assert (dollars(0.0), dollars(0.0123), dollars(-0.5)) == ("$0.00", "$0.0123", "$-0.5000")


def test_names_of_upstreams_and_rules_without_use_are_told() -> None:
    found = reported(chat(3))
    found["input"] |= {"unknown_upstreams": ["groq"], "unused_rules": ["team-a", "team-b"]}
    said = "\n".join(notes(found))
    assert "without a row in upstreams.toml: groq:" in said and "that no request is under: team-a, team-b" in said
