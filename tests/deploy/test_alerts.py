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
from tests.deploy.renders import CHART, DEPLOY, ROOT, charted, missing, only, pod_of

FOUND: dict[str, Any] = {rule["alert"]: rule for rule in prometheus_rule.rules() if "alert" in rule}
CASES = [Path(__file__).with_name(name) for name in ("alerts.yaml", "alerts_of_days.yaml")]
PAGE = (ROOT / "deploy" / "docs" / "runbooks.md").read_text()


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
    promtool("test", "rules", *map(str, CASES))


def test_the_cases_name_all_groups_in_the_order_of_the_rules() -> None:
    groups = [group["name"] for group in yaml.safe_load(ALERTS.read_text())["groups"]]
    assert all(yaml.safe_load(case.read_text())["group_eval_order"] == groups for case in CASES)


def test_M10_each_alert_does_so_for_a_release_under_another_name(tmp_path: Path) -> None:
    """The job is named as the operator names it: by the namespace and the name of the monitor."""
    monitors = {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}
    made = charted({"fullnameOverride": "llm-gateway", "metrics": monitors})
    names = {one["metadata"]["name"] for one in made if one["kind"].endswith("Monitor")}
    assert names == {"llm-gateway"}
    job = "llm/llm-gateway"
    count = 0
    for file in CASES:
        text, jobs = re.subn(r"(?<=job=\")[\w/-]*plimsoll(?=\")|(?<=job: )[\w/-]*plimsoll\b", job, file.read_text())
        text = re.sub(r"(?<=summary: )(\".*)", lambda found: _named(found[1], job), text)
        (tmp_path / file.name).write_text(text.replace("../../deploy/prometheus/alerts.yaml", str(ALERTS)))
        count += jobs
    assert count > 100
    promtool("test", "rules", *(str(tmp_path / file.name) for file in CASES))


def _named(summary: str, job: str) -> str:
    """A summary with another job: it says `plimsoll` or `apps/plimsoll` for it, as a word of its own."""
    return re.sub(r"(?<![\w/])(apps/)?plimsoll(?![\w_])", job, summary)


def test_M10_targets_of_the_operator_have_the_label_that_alerts_go_by() -> None:
    monitors = {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}
    made = charted({"metrics": monitors})
    assert "plimsoll" in pod_of(only(made, "Deployment"))["metadata"]["labels"]
    for kind in ("PodMonitor", "ServiceMonitor"):
        assert "plimsoll" in only(made, kind)["spec"]["podTargetLabels"]
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    assert all(any(row.get("target_label") == "plimsoll" for row in one["relabel_configs"]) for one in scraped)


def test_no_rule_goes_by_the_name_of_a_job() -> None:
    assert not [rule for rule in prometheus_rule.rules() if re.search(r"job\s*[=!]", rule["expr"])]


def test_each_alert_is_tested_firing_and_not_firing() -> None:
    cases = [
        case for file in CASES for test in yaml.safe_load(file.read_text())["tests"] for case in test["alert_rule_test"]
    ]
    tried = {(case["alertname"], bool(case["exp_alerts"])) for case in cases}
    assert tried == {(alert, fires) for alert in FOUND for fires in (True, False)}


@pytest.mark.parametrize("alert", FOUND)
def test_each_alert_has_a_severity_a_summary_and_a_runbook(alert: str) -> None:
    rule = FOUND[alert]
    assert rule["labels"].keys() == {"severity"} and rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"] == {
        "summary": rule["annotations"]["summary"],
        "runbook": f"deploy/docs/runbooks.md#{alert.lower()}",
    }


def test_the_page_has_a_section_for_each_alert_in_their_order() -> None:
    section = PAGE.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    told = re.findall(r"^### (\w+)\n\n(\w+)\. ", section, re.MULTILINE)
    assert told == [(alert, rule["labels"]["severity"].capitalize()) for alert, rule in FOUND.items()]


def test_the_chart_and_kustomize_have_the_same_rules() -> None:
    assert (CHART / "alerts.yaml").read_text() == ALERTS.read_text()
    assert prometheus_rule.FILE.read_text() == prometheus_rule.made(), "python -m tests.deploy.prometheus_rule"
