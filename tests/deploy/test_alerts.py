"""The alerts: each fires and does not fire where it should, says what is wrong, and has its section on the page."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.deploy import prometheus_rule
from tests.deploy.prometheus_rule import ALERTS
from tests.deploy.renders import CHART, ROOT, missing

FOUND: dict[str, Any] = {rule["alert"]: rule for rule in prometheus_rule.rules() if "alert" in rule}
CASES = Path(__file__).with_name("alerts.yaml")
PAGE = (ROOT / "deploy" / "docs" / "alerts.md").read_text()


def promtool(*arguments: str) -> None:
    """Runs promtool; fails with what it says."""
    command = shutil.which("promtool")
    if command is None:
        missing("promtool is not installed")
    done = subprocess.run([command, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", str(ALERTS))


def test_each_alert_fires_where_it_should_and_nowhere_else() -> None:
    promtool("test", "rules", str(CASES))


def test_each_alert_is_tested_firing_and_not_firing() -> None:
    cases = [case for test in yaml.safe_load(CASES.read_text())["tests"] for case in test["alert_rule_test"]]
    tried = {(case["alertname"], bool(case["exp_alerts"])) for case in cases}
    assert tried == {(alert, fires) for alert in FOUND for fires in (True, False)}


@pytest.mark.parametrize("alert", FOUND)
def test_each_alert_has_a_severity_a_summary_and_a_runbook(alert: str) -> None:
    rule = FOUND[alert]
    assert rule["labels"].keys() == {"severity"} and rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"] == {
        "summary": rule["annotations"]["summary"],
        "runbook": f"deploy/docs/alerts.md#{alert.lower()}",
    }


def test_the_page_has_a_section_for_each_alert_in_their_order() -> None:
    section = PAGE.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    told = re.findall(r"^### (\w+)\n\n(\w+)\. ", section, re.MULTILINE)
    assert told == [(alert, rule["labels"]["severity"].capitalize()) for alert, rule in FOUND.items()]


def test_the_chart_and_kustomize_have_the_same_rules() -> None:
    assert (CHART / "alerts.yaml").read_text() == ALERTS.read_text()
    assert prometheus_rule.FILE.read_text() == prometheus_rule.made(), "python -m tests.deploy.prometheus_rule"
