"""The report as JSON."""

from __future__ import annotations

import json
from typing import Any

from proxy.model.outcome import Usage
from proxy.replay.plan_worker import Column
from proxy.replay.prices import PricesAt, no_prices
from proxy.replay.recorded import Figures, Recorded
from proxy.replay.report import Replay, report
from tests.replay.recordings import chat, run
from tests.replay.test_sums import PRICES

COLUMNS = (Column(), Column(window=4_000))


def reported(*bodies: bytes | Recorded, prices: PricesAt = no_prices, **options: Any) -> dict[str, Any]:
    """The report on these requests, as it is written."""
    replay = Replay(COLUMNS, prices)
    for result in run(*bodies, columns=COLUMNS, **options):
        replay.coverage.add(result.placed.recorded, "bodies")
        replay.add(result)
    found: dict[str, Any] = json.loads(json.dumps(report(replay, ["a.jsonl"], "2026-01-02", 2.0, 1)))
    return found


def test_a_report_has_a_column_for_each_set_of_options() -> None:
    found = reported(chat(200), chat(60), chat(12), chat(3))
    usual, small = found["columns"]
    assert (usual["name"], small["name"]) == ("as configured", "window 4,000")
    assert usual["total"]["planned"] == 4 and usual["total"]["over"] < small["total"]["over"]
    assert usual["total"]["tokens"]["prompt"] - usual["total"]["tokens"]["prompt_sent"] == sum(
        step["tokens"] for step in usual["steps"]
    )
    assert found["speed"]["tokens"] == 2 * usual["total"]["tokens"]["prompt"] == 2 * found["speed"]["tokens_per_second"]
    assert usual["models"][0]["name"] == "gpt-4" and usual["models"][0]["over"] == usual["total"]["over"]


def test_the_worst_cuts_say_where_they_are_from() -> None:
    worst = reported(chat(200), chat(3))["columns"][0]["worst"]
    assert [(cut["file"], cut["entry"]) for cut in worst] == [("a.jsonl", 1)]
    assert worst[0]["prompt"] > worst[0]["prompt_sent"] and worst[0]["rows"] and worst[0]["rows_left_out"]


def test_money_is_net_of_the_cache() -> None:
    money = reported(chat(60), chat(60), prices=lambda recorded: lambda model, upstream: PRICES)["columns"][0]["total"][
        "money"
    ]
    assert money["priced"] == 2 and money["as_sent"] == money["fitted"] and money["saved_net"] == 0


def test_agreement_is_by_model() -> None:
    found = reported(
        Recorded(chat(3), usage=Usage(700), at=5.0), Recorded(chat(60), usage=Usage(6_900, 1, 1_024), at=9.0)
    )
    (counts,), (cache,) = found["columns"][0]["counts"], found["columns"][0]["prompt_cache"]
    assert counts["model"] == cache["model"] == "gpt-4" and (counts["requests"], cache["requests"]) == (2, 1)
    assert cache["reported"] == 1_024 and 0 <= counts["error_p50"] <= counts["error_p95"] <= 1
    assert (found["input"]["since"], found["input"]["until"], found["input"]["with_time"]) == (5.0, 9.0, 2)


def test_figures_alone_stand_apart() -> None:
    found = reported(chat(3), Recorded(figures=Figures(900, 500, 1.1)))
    assert found["figures_only"]["over"] == 1 and found["columns"][0]["total"]["requests"] == 1
    assert reported(chat(3))["figures_only"] is None


def test_what_was_not_planned_is_told_for_its_reason() -> None:
    assert list(reported(b"{")["columns"][0]["not_planned"].values()) == [1]
