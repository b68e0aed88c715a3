"""The Grafana boards: portable, whole, and by question. What their expressions return is tested in test_figures.py."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from tests.deploy.board import BOARDS, FILES, PANELS, Panel, panels_of, rows_of, targets
from tests.deploy.prometheus_rule import rules

MOST_BYTES = 256 * 1024  # of an annotation: kubectl apply keeps the whole object in one
CHOSEN = 'job=~"$job",namespace=~"$namespace",pod=~"$pod",instance=~"$instance"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@pytest.fixture(params=BOARDS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def board(name: str) -> dict[str, Any]:
    return BOARDS[name]


def test_it_can_be_imported_anywhere(name: str, board: dict[str, Any]) -> None:
    assert "id" not in board and "__inputs" not in board
    assert board["uid"] == name and board["schemaVersion"] == 39  # Grafana 10 and newer read it
    for panel in panels_of(board):
        assert panel["datasource"] == DATASOURCE
        assert [target["datasource"] for target in panel["targets"]] == [DATASOURCE] * len(panel["targets"])


def test_its_file_is_as_json_writes_it(name: str, board: dict[str, Any]) -> None:
    assert FILES[name].read_text() == json.dumps(board, indent=2, ensure_ascii=False) + "\n"


def test_both_fit_into_one_config_map() -> None:
    assert sum(file.stat().st_size for file in FILES.values()) < MOST_BYTES


def test_its_variables_are_those_of_a_cluster_the_model_and_where_runbooks_are(board: dict[str, Any]) -> None:
    variables = {row["name"]: row for row in board["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "namespace", "pod", "instance", "model", "runbooks"]
    assert variables["datasource"]["query"] == "prometheus"
    asked = [row for row in variables.values() if row["type"] == "query"]
    assert len(asked) == 5 and all(row["datasource"] == DATASOURCE for row in asked)
    for name in ("namespace", "pod", "model"):
        assert variables[name]["allValue"] == ".*", "what has no such label belongs to all"
    assert variables["runbooks"]["type"] == "textbox"


def test_each_board_leads_to_the_other() -> None:
    there = {board["uid"]: [link["url"] for link in board["links"]] for board in BOARDS.values()}
    assert there == {"plimsoll": ["/d/plimsoll-on-call"], "plimsoll-on-call": ["/d/plimsoll"]}


def test_M20_each_row_is_a_question_and_all_but_the_first_are_collapsed() -> None:
    assert {name: [row["title"] for row in rows_of(board)] for name, board in BOARDS.items()} == {
        "plimsoll-on-call": [
            "Is it healthy?",
            "Who is affected?",
            "Is it the length?",
            "What does it run on?",
            "Does Redis help?",
        ],
        "plimsoll": [
            "Who spends, and on what?",
            "Who is near the line?",
            "What is cut, and does it help?",
            "What does it cost over time?",
            "Can the counts be trusted?",
        ],
    }
    for board in BOARDS.values():
        assert [row["collapsed"] for row in rows_of(board)] == [False, True, True, True, True]


def test_M20_callers_and_models_are_tables_on_both() -> None:
    found = {
        name: [panel["title"] for panel in panels_of(board) if panel["type"] == "table"]
        for name, board in BOARDS.items()
    }
    assert found == {"plimsoll-on-call": ["Who fails", "What fails"], "plimsoll": ["Who spends", "What is spent on"]}
    for panel in PANELS:
        if panel["type"] == "table":
            (merge, organize) = panel["transformations"]
            columns = organize["options"]["renameByName"]
            assert merge["id"] == "merge" and list(columns) == [f"Value #{one['refId']}" for one in panel["targets"]]
            assert [one["legendFormat"].rpartition(", ")[0] for one in panel["targets"]] == list(columns.values())


def drawn(panel: Panel) -> list[float]:
    """The values at which a panel has a line."""
    defaults = panel["fieldConfig"]["defaults"]
    if defaults.get("custom", {}).get("thresholdsStyle") != {"mode": "line"}:
        return []
    return [step["value"] for step in defaults["thresholds"]["steps"] if step["value"] is not None]


ALERTS = {rule["alert"]: rule["expr"] for rule in rules() if "alert" in rule}
# Panels with lines, and the alerts whose thresholds these are.
LINES = {
    "Own time": ("PlimsollSlow",),
    "File descriptors": ("PlimsollFilesShort",),
    "Load before and after": ("PlimsollNearTheLine",),
    "Failures for length": ("PlimsollUnfit", "PlimsollRefused"),
}


@pytest.mark.parametrize("title", LINES)
def test_M20_a_line_stands_where_the_alert_fires(title: str) -> None:
    (panel,) = (panel for panel in PANELS if panel["title"] == title)
    for alert in LINES[title]:
        compared = re.findall(r"> ([\d.]+)$", ALERTS[alert].partition(" and ")[0].strip(), re.MULTILINE)
        assert [float(found) for found in compared[:1]] == drawn(panel)[:1], alert


def test_M20_the_objective_has_its_lines() -> None:
    (panel,) = (panel for panel in PANELS if panel["title"] == "Failures and the objective")
    (budget,) = (float(rule["expr"][7:-1]) for rule in rules() if rule.get("record") == "plimsoll:error_budget:ratio")
    assert drawn(panel) == [budget, pytest.approx(14.4 * budget)]


def test_M20_each_alert_has_a_panel_that_leads_to_its_runbook() -> None:
    links = [link for panel in PANELS for link in panel.get("links", ())]
    assert sorted(link["title"].removeprefix("Runbook: ") for link in links) == sorted(ALERTS)
    for link in links:
        name = link["title"].removeprefix("Runbook: ")
        assert link["url"] == f"${{runbooks}}#{name.lower()}"


def test_no_panel_covers_another(board: dict[str, Any]) -> None:
    everything = [*board["panels"], *(panel for row in rows_of(board) for panel in row["panels"])]
    for one, two in combinations([panel["gridPos"] for panel in everything], 2):
        beside = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
        above = one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"]
        assert beside or above, (one, two)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in everything)


def test_names_are_unique(board: dict[str, Any]) -> None:
    everything = [*rows_of(board), *panels_of(board)]
    ids, titles = [panel["id"] for panel in everything], [panel["title"] for panel in everything]
    assert len({*ids}) == len(ids) and len({*titles}) == len(titles)
    for panel in panels_of(board):
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert len({*legends}) == len(legends), panel["title"]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_each_panel_says_what_it_shows_in_its_unit(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert all(target["legendFormat"] for target in panel["targets"])


def test_M20_each_series_is_chosen_by_job_namespace_pod_and_instance() -> None:
    for target in targets():
        selectors = re.findall(r"\{(.*?)\}", target.expr)
        assert selectors and all(CHOSEN in found for found in selectors), target
        assert len(re.findall(r"\b(?:plimsoll|process)_\w+|\bup\b", target.expr)) == len(selectors), target


def test_rates_are_over_the_interval_that_grafana_chooses() -> None:
    for target in targets():
        assert {*re.findall(r"\[(.*?)\]", target.expr)} <= {"$__rate_interval", "$__range"}, target
