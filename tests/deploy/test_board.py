"""The Grafana board: portable, whole, and by question. What its expressions return is tested in test_figures.py."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from tests.deploy.board import BOARD, FILE, PANELS, ROWS, VARIABLES, targets

MOST_BYTES = 256 * 1024  # of an annotation: kubectl apply keeps the whole object in one
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def test_it_can_be_imported_anywhere() -> None:
    assert "id" not in BOARD and "__inputs" not in BOARD
    assert BOARD["uid"] == "plimsoll" and BOARD["schemaVersion"] == 39  # Grafana 10 and newer read it
    for panel in PANELS:
        assert panel["datasource"] == DATASOURCE
        assert [target["datasource"] for target in panel["targets"]] == [DATASOURCE] * len(panel["targets"])


def test_its_file_is_as_json_writes_it_and_fits_into_a_config_map() -> None:
    assert FILE.read_text() == json.dumps(BOARD, indent=2, ensure_ascii=False) + "\n"
    assert FILE.stat().st_size < MOST_BYTES


def test_its_variables_are_source_job_instance_and_model() -> None:
    assert list(VARIABLES) == ["datasource", "job", "instance", "model"]
    assert VARIABLES["datasource"]["query"] == "prometheus"
    assert all(VARIABLES[name]["datasource"] == DATASOURCE for name in ("job", "instance", "model"))
    assert VARIABLES["model"]["allValue"] == ".*", "what is not fitted has no model, and belongs to all"


def test_each_row_is_a_question() -> None:
    assert [row["title"] for row in ROWS] == [
        "Is it healthy?",
        "Who is near the line?",
        "What is cut, and does it help?",
        "What does it cost, and what does it save?",
        "Can the counts be trusted?",
    ]


def test_no_panel_covers_another() -> None:
    for one, two in combinations([panel["gridPos"] for panel in BOARD["panels"]], 2):
        beside = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
        above = one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"]
        assert beside or above, (one, two)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in BOARD["panels"])


def test_names_are_unique() -> None:
    ids, titles = [panel["id"] for panel in BOARD["panels"]], [panel["title"] for panel in BOARD["panels"]]
    assert len({*ids}) == len(ids) and len({*titles}) == len(titles)
    for panel in PANELS:
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert len({*legends}) == len(legends), panel["title"]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_each_panel_says_what_it_shows_in_its_unit(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert all(target["legendFormat"] for target in panel["targets"])


def test_each_series_is_chosen_by_job_and_instance() -> None:
    for target in targets():
        selectors = re.findall(r"\{(.*?)\}", target.expr)
        assert selectors and all('job=~"$job",instance=~"$instance"' in found for found in selectors), target
        assert len(re.findall(r"\b(?:plimsoll|process)_\w+|\bup\b", target.expr)) == len(selectors), target


def test_rates_are_over_the_interval_that_grafana_chooses() -> None:
    for target in targets():
        assert {*re.findall(r"\[(.*?)\]", target.expr)} <= {"$__rate_interval", "$__range"}, target
